"""Precisions and the types of their operands, one row each.

Every list of precisions (help texts, legal outputs, rates, tolerances, what a result is compared
with) derives from these rows. A new precision starts as one row here; the kernel families say on
their own which precisions they serve.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal


@dataclass(frozen=True)
class ElementType:
    """The storage of a matrix element.

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
        """The element's name in `ElementType` of the CUDA sources, in lower case: `s8` for `i8`."""
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


@dataclass(frozen=True)
class SumError:
    """The largest error of a sum of K products of normal numbers, in units of 2^-24.

    The bound is `linear K + drift K sqrt(K) + root sqrt(K) + constant`;
    `autotune.measure.oracle.tolerance` derives the coefficients. A relative error (Frobenius
    norms) of `accepted + accepted_drift sqrt(K)` is always accepted, however small the vendor
    baseline's is.
    """

    linear: float
    drift: float
    root: float
    constant: float
    accepted: float = 0.0
    accepted_drift: float = 0.0


IEEE_SUM = SumError(linear=8, drift=0, root=0, constant=64)
"""Each addition rounds to the nearest fp32 value."""
TENSOR_SUM = SumError(linear=24, drift=2, root=0, constant=64)
"""Tensor cores truncate the addends and the sum."""
EXACT_SUM = SumError(linear=0, drift=0, root=0, constant=0)
"""Integers, which are added without error."""
EIGHT_BIT_SUM = SumError(linear=2**14, drift=2**8, root=0, constant=2**18, accepted_drift=2.0**-15)
"""Tensor cores keep 14 bits of the sums of fp8 products."""
PROMOTED_EIGHT_BIT_SUM = SumError(linear=8, drift=0, root=2**15, constant=2**20, accepted=2.0**-12)
"""The error bound where sums of 128 products are added in IEEE fp32."""


@dataclass(frozen=True)
class Precision:
    """A precision: the storage of A and B, their multiplication and summation, and the error.

    Attributes:
        name: the problem's `compute`.
        label: the name in tables, such as `fp32`.
        operand: element type of A and B.
        second: element type of the operand that `Problem.e5m2` does not name; None where A and B
            always have one type.
        outputs: element types that C may have; the first is the default, `same`.
        mantissa_bits: explicit bits of the mantissa that a product keeps of each operand.
        sums: `fp32`, by IEEE additions; `tensor`, by tensor cores that truncate; `promoted`, by
            tensor cores whose partial sums are added in IEEE fp32 before truncation builds up;
            `integer`, by tensor cores in int32, which wrap around on overflow.
        sum_error: error bound of the sums and, for split operands, of their parts.
        fast_sum_error: error bound with fast accumulation; None if there is no such choice.
        accuracy: a kernel's relative error may be this many times that of the vendor baseline.
        products: tensor-core products for each product of two elements.
        tensor_rate: fused multiply-adds of tensor cores, as a share of the rate of fp16; None for
            a precision of CUDA cores.
        compute_capability: the first with hardware for it.
        tensor_map: element type of tensor maps over A and B.
        vendor: precision in which the vendor's library computes the baseline; None if it has none.
        cupy: whether CuPy's matmul computes the baseline too.
        near: precision that `accuracy="near"` selects; None if there is none.
        twin: precision whose kernels take almost the same time.
        scales: the legal values of `Problem.scale`.
    """

    name: str
    label: str
    operand: ElementType
    outputs: tuple[ElementType, ...]
    mantissa_bits: int
    sums: Literal["fp32", "tensor", "promoted", "integer"]
    sum_error: SumError
    vendor: str | None
    tensor_map: TensorMapType
    tensor_rate: float | None
    compute_capability: tuple[int, int]
    accuracy: float = 1.5
    products: int = 1
    cupy: bool = False
    near: str | None = None
    twin: str | None = None
    second: ElementType | None = None
    fast_sum_error: SumError | None = None
    scales: tuple[str, ...] = ("none",)

    @property
    def eight_bit(self) -> bool:
        """Whether operands are stored in 8 bits."""
        return self.operand.bytes == 1

    @property
    def on_tensor_cores(self) -> bool:
        """Whether tensor cores have instructions for it."""
        return self.tensor_rate is not None

    @property
    def operand_roundoff(self) -> float:
        """Largest relative change when an operand is rounded before it is multiplied; 0 where it
        is multiplied as stored or split into parts."""
        rounded = self.products == 1 and self.mantissa_bits < self.operand.mantissa_bits
        return 2.0 ** -(self.mantissa_bits + 1) if rounded else 0.0


_F8 = Precision(
    name="f8",
    label="fp8",
    operand=E4M3,
    outputs=(BF16, F16, F32, E4M3, E5M2),
    mantissa_bits=3,
    sums="promoted",
    sum_error=PROMOTED_EIGHT_BIT_SUM,
    fast_sum_error=EIGHT_BIT_SUM,
    tensor_map=TENSOR_MAP_TYPES["u8"],
    tensor_rate=2.0,
    compute_capability=(8, 9),
    vendor="f8",
    twin="f8e5",
    scales=("none", "tensor", "row", "block"),
)

_ROWS = (
    Precision(
        name="f32",
        label="fp32",
        operand=F32,
        outputs=(F32,),
        mantissa_bits=23,
        sums="fp32",
        sum_error=IEEE_SUM,
        tensor_map=TENSOR_MAP_TYPES["f32"],
        tensor_rate=None,
        compute_capability=(1, 0),
        vendor="f32",
        cupy=True,
        near="tf32x3",
    ),
    Precision(
        name="tf32",
        label="tf32",
        operand=F32,
        outputs=(F32,),
        mantissa_bits=10,
        sums="tensor",
        sum_error=TENSOR_SUM,
        tensor_map=TENSOR_MAP_TYPES["tf32"],
        tensor_rate=0.5,
        compute_capability=(8, 0),
        vendor="tf32",
    ),
    Precision(
        name="tf32x3",
        label="tf32x3",
        operand=F32,
        outputs=(F32,),
        mantissa_bits=21,
        sums="promoted",
        sum_error=SumError(linear=16, drift=0, root=64, constant=1664),
        accuracy=2.0,
        products=3,
        tensor_map=TENSOR_MAP_TYPES["f32"],
        tensor_rate=0.5,
        compute_capability=(8, 0),
        vendor="f32",
        cupy=True,
        near="tf32x3",
    ),
    Precision(
        name="f16",
        label="fp16",
        operand=F16,
        outputs=(F16, F32),
        mantissa_bits=10,
        sums="tensor",
        sum_error=TENSOR_SUM,
        tensor_map=TENSOR_MAP_TYPES["f16"],
        tensor_rate=1.0,
        compute_capability=(7, 0),
        vendor="f16",
        cupy=True,
        twin="bf16",
    ),
    Precision(
        name="bf16",
        label="bf16",
        operand=BF16,
        outputs=(BF16, F32),
        mantissa_bits=7,
        sums="tensor",
        sum_error=TENSOR_SUM,
        tensor_map=TENSOR_MAP_TYPES["bf16"],
        tensor_rate=1.0,
        compute_capability=(8, 0),
        vendor="bf16",
        twin="f16",
    ),
    _F8,
    replace(
        _F8,
        name="f8e5",
        label="fp8e5",
        operand=E5M2,
        second=E4M3,
        vendor="f8e5",
        twin="f8",
    ),
    Precision(
        name="i8",
        label="int8",
        operand=I8,
        outputs=(BF16, F16, F32, I32),
        mantissa_bits=7,
        sums="integer",
        sum_error=EXACT_SUM,
        tensor_map=TENSOR_MAP_TYPES["u8"],
        tensor_rate=2.0,
        compute_capability=(8, 0),
        vendor="i8",
        scales=("none", "tensor", "row"),
    ),
)

PRECISIONS: Mapping[str, Precision] = {row.name: row for row in _ROWS}
"""The precisions by name, in the order of the C library's `enum gemm_compute`."""
