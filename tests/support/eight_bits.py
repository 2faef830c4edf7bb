"""The element types of 8 bits in NumPy, which lacks them: arrays of their bytes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.problem import ELEMENT_TYPES


def _fp8(exponent_bits: int, mantissa_bits: int) -> NDArray[np.float32]:
    """The value of each byte, by the definition of a small floating-point format."""
    code = np.arange(256)
    sign = np.where(code & 0x80, -1.0, 1.0)
    exponent = code >> mantissa_bits & (1 << exponent_bits) - 1
    fraction = (code & (1 << mantissa_bits) - 1) / (1 << mantissa_bits)
    least = 2 - (1 << exponent_bits - 1)
    size = np.where(
        exponent == 0,
        fraction * 2.0**least,
        (1 + fraction) * 2.0 ** (exponent - 1.0 + least),
    )
    return (sign * size).astype(np.float32)


def _e4m3() -> NDArray[np.float32]:
    values = _fp8(4, 3)
    values[[0x7F, 0xFF]] = np.nan
    return values


def _e5m2() -> NDArray[np.float32]:
    values = _fp8(5, 2)
    values[[0x7C, 0xFC]] = np.inf, -np.inf
    values[[*range(0x7D, 0x80), *range(0xFD, 0x100)]] = np.nan
    return values


VALUES: Mapping[str, NDArray[np.float32]] = {
    "e4m3": _e4m3(),
    "e5m2": _e5m2(),
    "i8": np.arange(256, dtype=np.uint8).view(np.int8).astype(np.float32),
}
"""The value of each byte by element type."""


def nearest(values: NDArray[np.float32], element: str) -> NDArray[np.float32]:
    """The values rounded to a type, ties to even; those out of range to its largest."""
    if element == "i32":
        limits = -(2.0**31), 2.0**31 - 1
        return np.clip(np.rint(values.astype(np.float64)), *limits).astype(np.float32)
    return decoded(encoded(values, element), element)


def encoded(values: NDArray[Any], element: str) -> NDArray[np.uint8]:
    """The bytes of values rounded to a type: to the nearest, ties to an even byte."""
    table = VALUES[element].astype(np.float64)
    codes = np.flatnonzero(np.isfinite(table))
    codes = codes[np.lexsort((codes, table[codes]))]
    numbers = table[codes]
    wide = np.clip(values.astype(np.float64), numbers[0], numbers[-1])
    above = np.clip(np.searchsorted(numbers, wide), 1, numbers.size - 1)
    below = above - 1
    left, right = wide - numbers[below], numbers[above] - wide
    even = codes[above] % 2 == 0
    chosen = np.where((right < left) | ((right == left) & even), above, below)
    nan = 0 if ELEMENT_TYPES[element].integer else 0x7F
    result: NDArray[np.uint8] = np.where(np.isnan(values), nan, codes[chosen]).astype(np.uint8)
    return result


def decoded(codes: NDArray[np.uint8], element: str) -> NDArray[np.float32]:
    """The values of bytes."""
    return VALUES[element][codes]
