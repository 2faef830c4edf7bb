"""A GEMM problem: its shape, precision, operand layout, batch and epilogue."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune.errors import ProblemError
from autotune.problem.fields import (
    GATE_SPAN,
    LARGEST_BATCH,
    PLAIN,
    SCALE_BLOCK,
    USUAL,
    VALUES,
    Epilogue,
    EpilogueField,
    ProblemFields,
    parse_fields,
    whole_size,
)
from autotune.problem.integers import ceil_div
from autotune.problem.precision import ELEMENT_TYPES, PRECISIONS, ElementType, Precision, SumError
from autotune.problem.words import canonical

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

    In place of an activation, operands of 16 and 8 bits may have a `residual`: a matrix R like C is
    added, `C = alpha op(A) op(B) + beta C + bias + R`. Or they have `swiglu`: of each 16 columns of
    P = op(A) op(B) the first 8 are gates, the others what these are for, and C has n / 2 columns,
    `C[:, 8 j + l] = silu(P[:, 16 j + l]) P[:, 16 j + 8 + l]` for l < 8, at alpha = 1 and beta = 0.

    NaN stays NaN. At -infinity `gelu` is 0; `gelu_tanh` and `silu` are NaN, as PyTorch's.

    `compute` is the precision (see `autotune.problem.precision`): how A and B are stored and
    multiplied. Sums and the epilogue are always fp32:

        f32      stored as fp32; IEEE products
        tf32     stored as fp32; rounded to tf32 (a mantissa of 10 bits) before the products
        tf32x3   stored as fp32; nearly as accurate as f32, by three tf32 products or IEEE products
        f16      stored as fp16
        bf16     stored as bfloat16
        f8       stored as fp8 e4m3
        f8e5     stored as fp8 e5m2, which `e5m2` names (`a`, `b` or `ab`), the other as e4m3
        i8       stored as int8; sums are exact in int32 (and wrap around beyond it)

    Operands of 8 bits have fp32 scales that their elements are multiplied with, as `scale` says:

        none     no scales
        tensor   1 for A, 1 for B
        row      (batch, m) for the rows of op(A), (batch, n) for the columns of op(B)
        block    (batch, ceil(k / 128), m) for 1 x 128 blocks of op(A), and
                 (batch, ceil(n / 128), ceil(k / 128)) for 128 x 128 blocks of op(B); not for `i8`

    Tensor cores keep 14 bits of fp8 sums. With `accumulate="exact"` sums of 128 products are added
    in fp32; `fast` leaves that out.

    C and the bias have the type of A and B, bf16 for operands of 8 bits, or the `output`: f32 for
    operands of 16 bits; f16, bf16 or f32 for those of 8. `i8` can also give its sums as `i32`,
    without scales and epilogue; `f8` and `f8e5` give C times a scale as `e4m3` or `e5m2`, with a
    bias in bf16, at alpha = 1 and beta = 0, without a residual. A precision's default output
    becomes `same`. Words may be in capitals, and precisions be spelled as `fp16` or `float16`.

    Raises:
        ProblemError: for a dimension outside 1..2**31-1, a batch outside 1..65535, an unknown word
            for a field, or one that the precision does not have; for `swiglu` with an n that is no
            multiple of 16.
    """

    m: int
    n: int
    k: int
    compute: str = "f32"
    layout: str = "nn"
    batch: int = 1
    epilogue: EpilogueField = PLAIN
    output: str = "same"
    scale: str = "none"
    accumulate: str = "exact"
    e5m2: str = "a"

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            object.__setattr__(self, name, whole_size(name.upper(), getattr(self, name)))
        object.__setattr__(self, "batch", whole_size("batch", self.batch, LARGEST_BATCH))
        if type(self.epilogue) is not Epilogue:
            object.__setattr__(self, "epilogue", Epilogue.parse(self.epilogue))
        for name, values in _WORDS:
            if (value := getattr(self, name)) not in values:
                object.__setattr__(self, name, canonical(name, value, values))
        if not self.epilogue.elementwise:
            _require(self, "epilogue")
            if self.gated and self.n % (2 * GATE_SPAN):
                raise ProblemError(
                    f"epilogue {self.epilogue} takes {GATE_SPAN} columns of gates and {GATE_SPAN} "
                    f"of their values; N is {self.n}, give a multiple of {2 * GATE_SPAN}"
                )
        if self.output != "same":
            if self.output == self.precision.outputs[0].name:
                object.__setattr__(self, "output", "same")
            else:
                _check_output(self)
        if (self.scale, self.accumulate, self.e5m2) != _NOT_EIGHT_BIT:
            _require(self, "scale", "accumulate", "e5m2")

    @classmethod
    def parse(cls, text: str, **defaults: Unpack[ProblemFields]) -> Problem:
        """Reads `MxNxK` and, after colons and in any order, a compute, a layout, `batch=8`, an
        epilogue, `scale=row`, `fast`, `e5m2=b` and `out=f32`, such as
        `512x512x64:bf16:nt:batch=8:bias_relu:out=f32`.

        The keywords are for fields that the text does not state.

        Raises:
            ProblemError: if the text has another form or names an impossible problem.
        """
        sizes, stated = parse_fields(text)
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
        words = {
            "batch": f":batch={self.batch}",
            "epilogue": f":{self.epilogue}",
            "scale": f":scale={self.scale}",
            "accumulate": f":{self.accumulate}",
            "e5m2": f":e5m2={self.e5m2}",
            "output": f":out={self.output}",
        }
        return "".join(word for name, word in words.items() if getattr(self, name) != USUAL[name])

    def fields(self) -> dict[str, Any]:
        """The fields as JSON data."""
        return vars(self) | {"epilogue": str(self.epilogue)}

    @property
    def slug(self) -> str:
        """The problem as part of a file name, such as `4096x4096x4096-f32-nn`."""
        return str(self).replace(":", "-")

    @property
    def has_bias(self) -> bool:
        """Whether the epilogue adds a bias."""
        return self.epilogue.bias

    @property
    def activation(self) -> str | None:
        """The activation of the epilogue, one of `ACTIVATIONS`; None without one."""
        return self.epilogue.activation

    @property
    def has_residual(self) -> bool:
        """Whether the epilogue adds a matrix like C."""
        return self.epilogue.residual

    @property
    def gated(self) -> bool:
        """Whether the epilogue makes one column of C of two columns of the product."""
        return self.epilogue.gate

    @property
    def width(self) -> int:
        """Columns of C: n, or half of them if the epilogue is gated."""
        return self.n // 2 if self.gated else self.n

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
        """The storage of C."""
        return self.precision.outputs[0] if self.output == "same" else ELEMENT_TYPES[self.output]

    @property
    def has_fp8_output(self) -> bool:
        """Whether C is fp8, which has a scale."""
        return self.output_element.bytes == 1

    @property
    def bias_element(self) -> ElementType:
        """The storage of the bias."""
        return self.precision.outputs[0] if self.has_fp8_output else self.output_element

    @property
    def operand_elements(self) -> tuple[ElementType, ElementType]:
        """The storage of A and of B."""
        own, second = self.precision.operand, self.precision.second or self.precision.operand
        return own if "a" in self.e5m2 else second, own if "b" in self.e5m2 else second

    @property
    def operand_types(self) -> tuple[str, str]:
        """Names of the element types of A and B."""
        a, b = self.operand_elements
        return a.name, b.name

    @property
    def scale_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Shapes of the scales of A and B, fp32 without gaps; None without scales."""
        if self.scale == "none":
            return None
        if self.scale == "tensor":
            return (1,), (1,)
        if self.scale == "row":
            return (self.batch, self.m), (self.batch, self.n)
        blocks, down = ceil_div(self.k, SCALE_BLOCK), ceil_div(self.n, SCALE_BLOCK)
        return (self.batch, blocks, self.m), (self.batch, down, blocks)

    @property
    def scale_counts(self) -> tuple[int, int]:
        """Numbers of scales of A and B; 0 without scales."""
        shapes = self.scale_shapes or ((0,), (0,))
        return math.prod(shapes[0]), math.prod(shapes[1])

    @property
    def output_type(self) -> str:
        """Name of the element type of C."""
        return self.output_element.name

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of A or B."""
        return self.precision.operand.bytes

    @property
    def sum_error(self) -> SumError:
        """The error bound of its sums."""
        fast = self.precision.fast_sum_error if self.accumulate == "fast" else None
        return fast or self.precision.sum_error

    @property
    def has_factors(self) -> bool:
        """Whether calls may give alpha and beta: not for exact sums, gates and an fp8 C."""
        return not (self.output == "i32" or self.gated or self.has_fp8_output)

    @property
    def output_bytes(self) -> int:
        """Bytes of one element of C."""
        return self.output_element.bytes

    @property
    def products(self) -> int:
        """Tensor-core products for each product of two elements."""
        return self.precision.products

    @property
    def bytes(self) -> int:
        """Least traffic of device memory in bytes: A, B, their scales, the bias and the residual
        read once, C written once."""
        a, b, c = self.strides
        like_c = self.output_bytes * self.batch * c * (2 if self.has_residual else 1)
        operands = self.element_bytes * self.batch * (a + b) + 4 * sum(self.scale_counts)
        return operands + like_c + self.bias_element.bytes * self.n * self.has_bias

    @property
    def leading_dimensions(self) -> tuple[int, int, int]:
        """Row lengths of A, B and C stored without gaps, in elements."""
        lda = self.k if self.layout[0] == "n" else self.m
        ldb = self.n if self.layout[1] == "n" else self.k
        return lda, ldb, self.width

    @property
    def stored_rows(self) -> tuple[int, int, int]:
        """Rows of A, B and C as they are stored."""
        rows_a = self.m if self.layout[0] == "n" else self.k
        rows_b = self.k if self.layout[1] == "n" else self.n
        return rows_a, rows_b, self.m

    @property
    def strides(self) -> tuple[int, int, int]:
        """Elements from one matrix of A, B and C to the next of a batch, stored without gaps."""
        return self.m * self.k, self.k * self.n, self.m * self.width


_WORDS = tuple((name, words) for name, words in VALUES.items() if name != "epilogue")
_NOT_EIGHT_BIT = USUAL["scale"], USUAL["accumulate"], USUAL["e5m2"]

_RULES: Mapping[str, Callable[[Precision, Any], bool]] = {
    "epilogue": lambda row, epilogue: epilogue.elementwise or row.operand.bytes <= 2,
    "output": lambda row, output: output in ("same", *(element.name for element in row.outputs)),
    "scale": lambda row, scale: scale in row.scales,
    "accumulate": lambda row, sums: sums == "exact" or row.fast_sum_error is not None,
    "e5m2": lambda row, operand: operand == "a" or row.second is not None,
}
"""Whether a precision has a value of a field that only some precisions have."""


def _require(problem: Problem, *names: str) -> None:
    """Raises a `ProblemError` if the precision does not have the values of these fields."""
    for name in names:
        value, rule = getattr(problem, name), _RULES[name]
        if not rule(problem.precision, value):
            able = ", ".join(row.name for row in PRECISIONS.values() if rule(row, value))
            raise ProblemError(
                f"{name} {value} is for compute {able}, not {problem.compute}; leave one out"
            )


def _check_output(problem: Problem) -> None:
    """Raises a `ProblemError` for an output that the other fields do not allow."""
    if not _RULES["output"](problem.precision, problem.output):
        names = (element.name for element in problem.precision.outputs)
        legal = ", ".join(dict.fromkeys(["same", *names]))
        raise ProblemError(
            f"compute {problem.compute} has no output {problem.output!r}; give one of {legal}"
        )
    if problem.output == "i32" and not (problem.scale == "none" and problem.epilogue.plain):
        raise ProblemError(
            f"output i32 has no scales and no epilogue, here scale {problem.scale} and epilogue "
            f"{problem.epilogue}; leave them out or give another output"
        )
    if problem.has_fp8_output and problem.has_residual:
        raise ProblemError(
            f"output {problem.output} has no residual, here epilogue {problem.epilogue}; leave it "
            "out or give another output"
        )


UNIT_ROUNDOFF = 2.0**-24

EXACT = 2 * UNIT_ROUNDOFF
"""A relative error that is always accepted: a few roundings, because the baseline may have one or
none, as at K = 1."""

COMPARABLE = 512
"""Elements of C needed to compare two relative errors.

An error has an excess kurtosis of 4 (`autotune.measure.oracle.tolerance` has its law), so the
root mean square of n of them scatters by sqrt(6 / n) / 2, and the ratio of two by 1.73 / sqrt(n):
8 % at 512. A kernel that is as accurate as the baseline exceeds `Precision.accuracy` when that is
6.5 standard deviations off."""


def relative_bound(problem: Problem, baseline_error: float | None) -> float:
    """The largest relative error (Frobenius norms) allowed beside the vendor baseline's.

    Infinite if the baseline's is unknown, or if C has fewer than `COMPARABLE` elements: then the
    tolerance of single elements alone decides.
    """
    if baseline_error is None or problem.batch * problem.m * problem.width < COMPARABLE:
        return math.inf
    return max(problem.precision.accuracy * baseline_error, _always_accepted(problem))


def _always_accepted(problem: Problem) -> float:
    """A relative error accepted however small the baseline's is, which may be 0 at K = 1.

    Rounding both operands to tf32 causes 0.6 h, h = 2^-11, while the library may multiply in fp32;
    rounding C to 16 bits causes 0.42 of its roundoff. Splitting operands in two parts causes up to
    6.4 u, which is not accepted where K is so short that the library's sums err by less than half
    of that: there the kernel has to be as accurate as fp32. The 14 bits of fp8 sums cause
    1.3e-4 with exact accumulation and 2.1e-5 sqrt(K) with fast accumulation in the simulation of
    `autotune.measure.oracle.tolerance`; 1.5 times that is accepted.
    """
    error = problem.sum_error
    fp8 = error.accepted + error.accepted_drift * math.sqrt(problem.k)
    return problem.precision.operand_roundoff or EXACT + fp8 + problem.output_element.roundoff / 2
