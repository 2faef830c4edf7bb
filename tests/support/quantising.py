"""The results of `quantize.cu`, in NumPy and to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.problem import ELEMENT_TYPES, SCALE_BLOCK
from support import eight_bits

Values = NDArray[np.float32]
LEAST_NORMAL = np.float32(2.0**-126)


def quantised(
    values: Values, element: str, scale: str, fixed: float | None = None
) -> tuple[NDArray[np.uint8], Values]:
    """The bytes of (batch, rows, columns) in fp32, and their scales as kernels read those of A."""
    batch, rows, columns = values.shape
    largest = np.float32(ELEMENT_TYPES[element].largest)
    if scale == "block":
        widened = np.zeros((batch, rows, -(-columns // SCALE_BLOCK) * SCALE_BLOCK), np.float32)
        widened[..., :columns] = values
        groups = widened.reshape(batch, rows, -1, SCALE_BLOCK)
        scales, factors = _scales(_finite(groups).max(3), largest)
        spread = factors.repeat(SCALE_BLOCK, 2)[..., :columns]
        return _bytes(values * spread, element), np.ascontiguousarray(scales.swapaxes(1, 2))
    if scale == "row":
        scales, factors = _scales(_finite(values).max(2), largest)
        return _bytes(values * factors[..., None], element), scales
    if fixed is None:
        scales, factors = _scales(_finite(values).max().reshape(1), largest)
    else:
        scales = np.array([fixed], np.float32)
        with np.errstate(divide="ignore", over="ignore"):
            factors = np.minimum(np.float32(1) / scales, np.finfo(np.float32).max)
    with np.errstate(over="ignore"):
        return _bytes(values * factors, element), scales


def _finite(values: Values) -> Values:
    """The sizes of the finite values; 0 for others."""
    return np.where(np.isfinite(values), np.abs(values), np.float32(0))


def _scales(most: Values, largest: Any) -> tuple[Values, Values]:
    """The scale of each group and the factor that quantises its elements."""
    sizes = np.where(most == 0, largest, np.maximum(most, LEAST_NORMAL * largest))
    sizes = sizes.astype(np.float32)
    return sizes / largest, largest / sizes


def _bytes(values: Values, element: str) -> NDArray[np.uint8]:
    """The nearest bytes, with the sign of zeros in fp8."""
    codes = eight_bits.encoded(values, element)
    if ELEMENT_TYPES[element].integer:
        return codes
    zeros = codes & 0x7F == 0
    return np.where(zeros, np.signbit(values) * np.uint8(0x80), codes).astype(np.uint8)
