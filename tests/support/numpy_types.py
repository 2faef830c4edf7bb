"""The element types in NumPy. It lacks bfloat16, which is stored as its bits in `uint16`, and fp8,
stored as bytes: e4m3 in `uint8`, e5m2 in `V1`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.problem import ELEMENT_TYPES
from support import eight_bits

STORED: dict[str, npt.DTypeLike] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": np.uint16,
    "float8_e4m3fn": np.uint8,
    "float8_e5m2": "V1",
    "int8": np.int8,
    "int32": np.int32,
}
"""By the names in the array libraries, in the order of `ElementType` in the CUDA sources."""

_NAMES = {"uint16": "bfloat16", "uint8": "float8_e4m3fn", "void8": "float8_e5m2"}
_FP8 = {row.dtype: row.name for row in ELEMENT_TYPES.values() if row.name in ("e4m3", "e5m2")}


def name_of(stored: Any) -> str:
    """The name of an array's type in the array libraries."""
    name: str = stored.dtype.name
    return _NAMES.get(name, name)


def decoded(stored: Any) -> npt.NDArray[np.float32]:
    """The values of an array of any type, in float32."""
    name = name_of(stored)
    if name == "bfloat16":
        return (np.asarray(stored, np.uint32) << 16).view(np.float32)
    if name in _FP8:
        return eight_bits.decoded(stored.view(np.uint8), _FP8[name])
    return np.asarray(stored, np.float32)


def encoded(values: Any, name: str) -> Any:
    """Values as an array of a type, rounded to the nearest, ties to even; NaN is 0 in integers."""
    if name in _FP8:
        return eight_bits.encoded(values, _FP8[name]).view(STORED[name])
    if name in ("int8", "int32"):
        limits = np.iinfo(name)
        return np.clip(np.rint(np.nan_to_num(values)), limits.min, limits.max).astype(name)
    if name != "bfloat16":
        return values.astype(STORED[name])
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
