"""The element types in NumPy. It lacks bfloat16, which is stored as its bits in `uint16`."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

STORED: dict[str, npt.DTypeLike] = {
    "float32": np.float32,
    "float16": np.float16,
    "bfloat16": np.uint16,
}


def name_of(stored: Any) -> str:
    """The name of an array's type in the array libraries."""
    name: str = stored.dtype.name
    return "bfloat16" if name == "uint16" else name


def decoded(stored: Any) -> npt.NDArray[np.float32]:
    """The values of an array of any type, in float32."""
    if name_of(stored) == "bfloat16":
        return (np.asarray(stored, np.uint32) << 16).view(np.float32)
    return np.asarray(stored, np.float32)


def encoded(values: Any, name: str) -> Any:
    """Values as an array of a type, rounded to the nearest, ties to even."""
    if name != "bfloat16":
        return values.astype(STORED[name])
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
