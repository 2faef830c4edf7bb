"""Element types: how the elements of matrices are stored, one row each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ElementType:
    """How one element of a matrix is stored.

    Attributes:
        name: as plans and records spell it.
        bytes: size of an element.
        number: place in `ElementType` of `cuda_src/include/common/number.cuh`.
        dtype: name of the dtype in PyTorch and CuPy.
        interface: type string for `__cuda_array_interface__`; for types it cannot describe, an
            integer of the same size.
        mantissa_bits: explicit bits of the mantissa; of an integer, its bits without the sign.
        underflow: largest absolute change when an fp32 value too small for the type's normal
            numbers is rounded; 0 for types with the exponents of fp32.
        compute: the default precision of operands of this type; None if it is an output only.
        largest: the largest finite value where larger ones are rounded to it; infinite for types
            whose rounding overflows to infinity.
        integer: whether it is an integer.
    """

    name: str
    bytes: int
    number: int
    dtype: str
    interface: str
    mantissa_bits: int
    underflow: float = 0.0
    compute: str | None = None
    largest: float = float("inf")
    integer: bool = False

    @property
    def roundoff(self) -> float:
        """Largest relative change when an fp32 value is rounded to the type; 0 for integers, which
        hold exact sums."""
        exact = self.integer or self.mantissa_bits == 23
        return 0.0 if exact else 2.0 ** -(self.mantissa_bits + 1)

    @property
    def enumerator(self) -> str:
        """Its name in `ElementType` of the CUDA sources, in lower case: `s8` for `i8`."""
        return f"s{self.name[1:]}" if self.integer else self.name


F32 = ElementType("f32", 4, 0, "float32", "<f4", mantissa_bits=23, compute="f32")
F16 = ElementType(
    "f16", 2, 1, "float16", "<f2", mantissa_bits=10, underflow=2.0**-25, compute="f16"
)
BF16 = ElementType("bf16", 2, 2, "bfloat16", "<i2", mantissa_bits=7, compute="bf16")
E4M3 = ElementType(
    *("e4m3", 1, 3, "float8_e4m3fn", "|i1"),
    mantissa_bits=3,
    underflow=2.0**-10,
    compute="f8",
    largest=448.0,
)
E5M2 = ElementType(
    *("e5m2", 1, 4, "float8_e5m2", "|i1"),
    mantissa_bits=2,
    underflow=2.0**-17,
    compute="f8e5",
    largest=57344.0,
)
I8 = ElementType(
    "i8", 1, 5, "int8", "|i1", mantissa_bits=7, compute="i8", largest=127.0, integer=True
)
I32 = ElementType("i32", 4, 6, "int32", "<i4", mantissa_bits=31, largest=2.0**31 - 1, integer=True)

ELEMENT_TYPES: Mapping[str, ElementType] = {
    row.name: row for row in (F32, F16, BF16, E4M3, E5M2, I8, I32)
}
"""The element types by name."""


@dataclass(frozen=True)
class TensorMapType:
    """An element type of tensor maps.

    Attributes:
        name: as plans spell it.
        number: value of `CUtensorMapDataType` in cuda.h.
        bytes: size of an element in memory.
    """

    name: str
    number: int
    bytes: int


TENSOR_MAP_TYPES: Mapping[str, TensorMapType] = {
    row.name: row
    for row in (
        TensorMapType("u8", 0, 1),
        TensorMapType("i32", 3, 4),
        TensorMapType("f16", 6, 2),
        TensorMapType("f32", 7, 4),
        TensorMapType("bf16", 9, 2),
        TensorMapType("tf32", 11, 4),
    )
}
"""The element types of tensor maps by name; 8-bit types of any kind are copied as `u8`."""
