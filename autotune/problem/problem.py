"""A GEMM problem: its shape, precision, operand layout, batch and epilogue."""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import index
from typing import TYPE_CHECKING, SupportsIndex

from autotune.errors import ProblemError
from autotune.problem import text as texts
from autotune.problem.aliases import canonical
from autotune.problem.fields import (
    ACTIVATIONS,
    LARGEST_BATCH,
    LARGEST_DIMENSION,
    VALUES,
    ProblemFields,
)
from autotune.problem.precision import F32, PRECISIONS, ElementType, Precision

if TYPE_CHECKING:
    from typing_extensions import Unpack


@dataclass(frozen=True, order=True)
class Problem:
    """`C = act(alpha op(A) op(B) + beta C + bias)`: op(A) is (m, k), op(B) (k, n) and C (m, n).

    Matrices are row-major. `layout` has one letter for each operand: `n`, stored as in the
    formula, or `t`, stored transposed (A as (k, m), B as (n, k)). There are `batch` matrices each
    of A, B and C. The `epilogue` is applied to each element before it is stored: `bias` adds one
    value for each of the n columns, the same for all rows and the whole batch. The activations are

        relu       max(x, 0)
        gelu       x (1 + erf(x / sqrt 2)) / 2
        gelu_tanh  x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2
        silu       x / (1 + exp(-x))

    NaN stays NaN. At -infinity `gelu` is 0; `gelu_tanh` and `silu` are NaN, as PyTorch's.

    `compute` is the precision (see `autotune.problem.precision`): how A and B are stored and
    multiplied. Sums and the epilogue are always fp32:

        f32      stored as fp32; IEEE products
        tf32     stored as fp32; rounded to tf32 (a mantissa of 10 bits) before the products
        tf32x3   stored as fp32; nearly as accurate as f32, by three tf32 products or IEEE products
        f16      stored as fp16
        bf16     stored as bfloat16

    C and the bias have the type of A and B, or fp32 with `output="f32"`. For fp32 operands `f32`
    becomes `same`. Words may be in capitals, and precisions be spelled as `fp16` or `float16`.

    Raises:
        ProblemError: for a dimension outside 1..2**31-1, a batch outside 1..65535, or an unknown
            `compute`, `layout`, `epilogue` or `output`.
    """

    m: int
    n: int
    k: int
    compute: str = "f32"
    layout: str = "nn"
    batch: int = 1
    epilogue: str = "none"
    output: str = "same"

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            object.__setattr__(self, name, _size(name.upper(), getattr(self, name)))
        object.__setattr__(self, "batch", _size("batch", self.batch, LARGEST_BATCH))
        for name, values in VALUES.items():
            if (value := getattr(self, name)) not in values:
                object.__setattr__(self, name, canonical(name, value, values))
        if self.output == self.precision.outputs[0].name:
            object.__setattr__(self, "output", "same")

    @classmethod
    def parse(cls, text: str, **defaults: Unpack[ProblemFields]) -> Problem:
        """Reads `MxNxK` and, after colons and in any order, a compute, a layout, `batch=8`, an
        epilogue and `out=f32`, such as `512x512x64:bf16:nt:batch=8:bias_relu:out=f32`.

        The keywords are for fields that the text does not state.

        Raises:
            ProblemError: if the text has another form or names an impossible problem.
        """
        sizes, stated = texts.parse(text)
        fields: ProblemFields = {**defaults, **stated}
        return cls(*sizes, **fields)

    def __str__(self) -> str:
        return f"{self.shape}:{self.compute}:{self.layout}{self.extras}"

    @property
    def shape(self) -> str:
        """The text `MxNxK`."""
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def extras(self) -> str:
        """The end of the text, such as `:batch=8:relu:out=f32`; no fields at their defaults."""
        batch = f":batch={self.batch}" if self.batch > 1 else ""
        epilogue = f":{self.epilogue}" if self.epilogue != "none" else ""
        return batch + epilogue + (f":out={self.output}" if self.output != "same" else "")

    @property
    def slug(self) -> str:
        """The problem as part of a file name, such as `4096x4096x4096-f32-nn`."""
        return str(self).replace(":", "-")

    @property
    def has_bias(self) -> bool:
        """Whether the epilogue adds a bias."""
        return self.epilogue.startswith("bias")

    @property
    def activation(self) -> str | None:
        """The activation of the epilogue, one of `ACTIVATIONS`; None without one."""
        return next((name for name in ACTIVATIONS if self.epilogue.endswith(name)), None)

    @property
    def flops(self) -> int:
        """Floating-point operations: 2 M N K for each matrix of the batch (a multiplication and an
        addition count one each)."""
        return 2 * self.batch * self.m * self.n * self.k

    def speed(self, time_us: float) -> float:
        """FLOP/s if the GEMM takes `time_us` microseconds."""
        return self.flops / time_us * 1e6

    @property
    def precision(self) -> Precision:
        """The row of `compute` in the table of precisions."""
        return PRECISIONS[self.compute]

    @property
    def output_element(self) -> ElementType:
        """How C and the bias are stored."""
        return self.precision.outputs[0] if self.output == "same" else F32

    @property
    def operand_type(self) -> str:
        """Name of the element type of A and B."""
        return self.precision.operand.name

    @property
    def output_type(self) -> str:
        """Name of the element type of C and the bias."""
        return self.output_element.name

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of A or B."""
        return self.precision.operand.bytes

    @property
    def output_bytes(self) -> int:
        """Bytes of one element of C or the bias."""
        return self.output_element.bytes

    @property
    def products(self) -> int:
        """Tensor-core products for each product of two elements."""
        return self.precision.products

    @property
    def bytes(self) -> int:
        """Least traffic of device memory in bytes: A, B and the bias read once, C written once."""
        a, b, c = self.strides
        bias = self.n if self.has_bias else 0
        return self.element_bytes * self.batch * (a + b) + self.output_bytes * (
            self.batch * c + bias
        )

    @property
    def leading_dimensions(self) -> tuple[int, int, int]:
        """Row lengths of A, B and C stored without gaps, in elements."""
        lda = self.k if self.layout[0] == "n" else self.m
        ldb = self.n if self.layout[1] == "n" else self.k
        return lda, ldb, self.n

    @property
    def stored_rows(self) -> tuple[int, int, int]:
        """Rows of A, B and C as they are stored."""
        rows_a = self.m if self.layout[0] == "n" else self.k
        rows_b = self.k if self.layout[1] == "n" else self.n
        return rows_a, rows_b, self.m

    @property
    def strides(self) -> tuple[int, int, int]:
        """Elements from one matrix of A, B and C to the next of a batch, stored without gaps."""
        return self.m * self.k, self.k * self.n, self.m * self.n


def _size(name: str, size: object, largest: int = LARGEST_DIMENSION) -> int:
    """A size as an int. Any integer type will do, such as NumPy's."""
    # Test for int first: testing for SupportsIndex takes longer than everything else here.
    if type(size) is not int and (isinstance(size, bool) or not isinstance(size, SupportsIndex)):
        raise ProblemError(f"{name} is {size!r}; give a whole number of at least 1")
    if not 1 <= (whole := index(size)) <= largest:
        raise ProblemError(f"{name} is {whole}; give 1 to {largest}")
    return whole


def distance(a: Problem, b: Problem) -> float:
    """How far apart two problems are, in octaves: the Euclidean norm of log2 of the ratios of their
    sizes and batches."""
    pairs = ((a.m, b.m), (a.n, b.n), (a.k, b.k), (a.batch, b.batch))
    return math.hypot(*(math.log2(size / size_b) for size, size_b in pairs))
