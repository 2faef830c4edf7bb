"""The fields of a problem: their legal values, epilogues, and the text form.

A text is such as `512x512x64:bf16:nt:batch=8:bias_relu:out=f32`. Fields of 8-bit precisions follow
the epilogue: `512x512x64:f8:nt:scale=row:fast:out=f16`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from operator import index
from typing import TYPE_CHECKING, Final, Literal, SupportsIndex, TypedDict, cast, get_args

from autotune.errors import ProblemError
from autotune.problem.precision import PRECISIONS
from autotune.problem.words import (
    COMPUTE_ALIASES,
    DtypeLike,
    FrozenWord,
    canonical,
    dtype_word,
    spelled,
)

if TYPE_CHECKING:
    from autotune.problem.words import WordField

ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu")
SWIGLU = "swiglu"
"""The word of the epilogue that makes one column of C of two columns of the product."""
GATE_SPAN = 8
"""Columns of op(B) that are gates, before as many that are their values."""


class Epilogue(FrozenWord):
    """An epilogue. Its text is its word, such as `none`, `bias_relu` or `swiglu`.

    There is one value for each word, so that it hashes, sorts and compares as its text does.

    Attributes:
        bias: whether a bias is added.
        activation: the activation, one of `ACTIVATIONS`; None without one.
        residual: whether a matrix like C is added.
        gate: whether one column of C is made of two columns of the product (SwiGLU).

    Raises:
        ProblemError: for an unknown activation, one with a residual, or a gate with anything else.
    """

    __slots__ = ("activation", "bias", "gate", "residual")

    activation: str | None
    bias: bool
    gate: bool
    residual: bool

    def __new__(
        cls,
        bias: bool = False,
        activation: str | None = None,
        residual: bool = False,
        gate: bool = False,
    ) -> Epilogue:
        """The value of these parts."""
        if gate and activation not in (None, SWIGLU):
            raise ProblemError(f"{SWIGLU} has no activation, here {activation}; leave one out")
        return epilogue_of(bias, SWIGLU if gate else activation, residual)

    def __reduce__(self) -> tuple[Callable[[object], Epilogue], tuple[str]]:
        """A copy, also that of another process, is the same value."""
        return Epilogue.parse, (str(self),)

    @classmethod
    def parse(cls, word: object) -> Epilogue:
        """The epilogue of a word, whatever its case.

        Raises:
            ProblemError: for any other word.
        """
        value = _BY_WORD.get(word) if isinstance(word, str) else None
        return value or _BY_WORD[canonical("epilogue", word, EPILOGUES)]

    @property
    def plain(self) -> bool:
        """Whether elements are stored as they are."""
        return self is NO_EPILOGUE

    @property
    def elementwise(self) -> bool:
        """Whether it has a bias and an activation at most, as every precision may have."""
        return not (self.residual or self.gate)


def epilogue_of(bias: bool, activation: str | None, residual: bool = False) -> Epilogue:
    """The epilogue of a call that adds a bias or not and then applies an activation, adds a
    residual or does neither; `swiglu` counts as an activation.

    Raises:
        ProblemError: for an unknown activation, or one with a residual; for `swiglu` with a bias.
    """
    try:
        return _BY_PARTS[bias, activation, residual]
    except (KeyError, TypeError):
        if activation not in (*ACTIVATIONS, SWIGLU):
            raise ProblemError(
                f"unknown activation {activation!r}; give one of {', '.join(ACTIVATIONS)}, "
                f"{SWIGLU} or None"
            ) from None
        if residual:
            raise ProblemError(
                f"a residual comes without an activation, here {activation}; leave one out"
            ) from None
        raise ProblemError(f"{SWIGLU} comes without a bias; leave one out") from None


def _made(bias: bool, activation: str | None, residual: bool) -> Epilogue:
    last = "residual" if residual else activation
    word = "_".join(filter(None, ("bias" if bias else None, last))) or "none"
    gate = activation == SWIGLU
    made = str.__new__(Epilogue, word)
    made._hold(
        {
            "activation": None if gate else activation,
            "bias": bias,
            "gate": gate,
            "residual": residual,
        }
    )
    return made


# In the order of the kernels' EPILOGUE argument: bit 0 is the bias, the rest the activation, the
# residual or SwiGLU.
_BY_PARTS = {
    parts: _made(*parts)
    for parts in (
        *((bias, last, False) for last in (None, *ACTIVATIONS) for bias in (False, True)),
        *((False, None, True), (True, None, True), (False, SWIGLU, False)),
    )
}
EPILOGUES: Final = tuple(_BY_PARTS.values())
ELEMENTWISE: Final = tuple(epilogue for epilogue in EPILOGUES if epilogue.elementwise)
"""The epilogues that every precision has: a bias and an activation."""
NO_EPILOGUE: Final = EPILOGUES[0]
_BY_WORD = {str(epilogue): epilogue for epilogue in EPILOGUES}


if TYPE_CHECKING:
    EpilogueField = WordField[str, Epilogue]
    PLAIN = EpilogueField()
else:
    EpilogueField, PLAIN = str, NO_EPILOGUE

Layout = Literal["nn", "nt", "tn", "tt"]
Output = Literal["same", "f32", "f16", "bf16", "i32", "e4m3", "e5m2"]
Scale = Literal["none", "tensor", "row", "block"]
Accumulate = Literal["exact", "fast"]
E5m2 = Literal["a", "b", "ab"]
AccuracyText = Literal["exact", "near"]

COMPUTES = tuple(PRECISIONS)
LAYOUTS: tuple[str, ...] = get_args(Layout)
OUTPUTS: tuple[str, ...] = get_args(Output)
# In the order of the kernels' SCALE argument.
SCALES: tuple[str, ...] = get_args(Scale)
ACCUMULATES: tuple[str, ...] = get_args(Accumulate)
E5M2_OPERANDS: tuple[str, ...] = get_args(E5m2)
ACCURACIES: tuple[str, ...] = get_args(AccuracyText)

LARGEST_DIMENSION = 2**31 - 1
LARGEST_BATCH = 65535
"""Blocks of a grid along z, where kernels find their matrix (CUDA programming guide)."""

SCALE_BLOCK = 128
"""Sides of a block with a scale of its own: 1x128 of A, 128x128 of B."""

VALUES: Mapping[str, tuple[str, ...]] = {
    "compute": COMPUTES,
    "layout": LAYOUTS,
    "epilogue": EPILOGUES,
    "output": OUTPUTS,
    "scale": SCALES,
    "accumulate": ACCUMULATES,
    "e5m2": E5M2_OPERANDS,
}
"""The values of each field that is a word."""

USUAL: Mapping[str, object] = {
    "batch": 1,
    "epilogue": NO_EPILOGUE,
    "output": "same",
    "scale": "none",
    "accumulate": "exact",
    "e5m2": "a",
}
"""The defaults of the fields that texts and records state only where they differ."""


class ProblemFields(TypedDict, total=False):
    """The fields of a problem beside its sizes, as keywords.

    Attributes:
        compute: the precision, one of `COMPUTES` or a dtype (`bfloat16`, `torch.bfloat16`,
            `np.float16`); by default `f32`.
        layout: how A and B are stored: `nn`, `nt`, `tn` or `tt`; by default `nn`.
        batch: number of matrices of C; by default 1.
        epilogue: `none`, `bias`, an activation (`relu`, `gelu`, `gelu_tanh` or `silu`) or both,
            such as `bias_relu`; for operands of 16 and 8 bits also `residual`, `bias_residual`
            or `swiglu`; by default `none`.
        output: type of C and the bias, a word or a dtype, if the precision has a choice; by default
            `same`, the first of its outputs.
        scale: of 8-bit operands: `none`, one scale a `tensor`, a `row` of A and column of B, or a
            `block`; by default `none`.
        accumulate: of fp8: `exact`, sums promoted to fp32 every 128 of K, or `fast`; by default
            `exact`.
        e5m2: the operand of `f8e5` that is e5m2: `a`, `b` or `ab`; by default `a`.
    """

    compute: DtypeLike
    layout: str
    batch: int
    epilogue: str
    output: DtypeLike
    scale: str
    accumulate: str
    e5m2: str


def compute_of(compute: DtypeLike, accuracy: AccuracyText) -> DtypeLike:
    """The compute for an accuracy: `exact` keeps it, `near` turns `f32` into `tf32x3`.

    Raises:
        ProblemError: for an unknown accuracy, or if `near` has no meaning for the compute.
    """
    if accuracy not in ACCURACIES:
        raise ProblemError(f"unknown accuracy {accuracy!r}; give one of {', '.join(ACCURACIES)}")
    if accuracy == "exact":
        return compute
    named = spelled("compute", compute)
    near = {name: row.near for name, row in PRECISIONS.items() if row.near is not None}
    if named not in near:
        served = ", ".join(name for name, target in near.items() if name != target)
        raise ProblemError(f"accuracy near is for compute {served}, not {named}; leave one out")
    return near[str(named)]


# Python refuses to read numbers of thousands of digits.
_SIZE = re.compile(r"-?\d{1,99}")
_SEPARATORS = "x", "×", "*", ",", None
"""The separators between the sizes of a shape; None for blanks."""
_BATCH = re.compile(r"batch=(-?\d{1,99})")
_NAMED = re.compile(r"(out|scale|e5m2)=([\w.]{1,99})")
_NAMES = {"out": "output", "scale": "scale", "e5m2": "e5m2"}
# A text names some fields, as `f32` alone is a compute and `none` an epilogue.
_FIELDS = {
    word: name for name, words in VALUES.items() if name not in _NAMES.values() for word in words
}
_FIELDS |= dict.fromkeys(COMPUTE_ALIASES, "compute")


def parse_fields(text: str) -> tuple[tuple[int, int, int], ProblemFields]:
    """The sizes of a problem's text, and the fields that it states.

    Raises:
        ProblemError: if the text has another form, or states a field twice.
    """
    shape, *parts = text.strip().lower().split(":")
    sizes = split_sizes(shape)
    if len(sizes) != 3 or not all(map(_SIZE.fullmatch, sizes)):
        raise ProblemError(f"malformed shape {text!r}; give MxNxK, such as 4096x4096x4096")
    stated: dict[str, str] = {}
    for part in parts:
        name, value = _field(part.strip())
        if stated.setdefault(name, value) != value:
            raise ProblemError(f"{text!r} says {stated[name]} and {value}; give one {name}")
    fields = cast("ProblemFields", stated)
    if "batch" in stated:
        fields["batch"] = int(stated["batch"])
    m, n, k = map(int, sizes)
    return (m, n, k), fields


def split_sizes(shape: str) -> tuple[str, ...]:
    """The three sizes in the text of a shape, between which one of `_SEPARATORS` stands; empty for
    another form."""
    split = ([size.strip() for size in shape.split(separator)] for separator in _SEPARATORS)
    return next((tuple(sizes) for sizes in split if len(sizes) == 3), ())


def _field(part: str) -> tuple[str, str]:
    """The field that a part of the text states, and its value."""
    if match := _BATCH.fullmatch(part):
        return "batch", match[1]
    if match := _NAMED.fullmatch(part):
        field = _NAMES[match[1]]
        return field, str(spelled(field, match[2]))
    word = str(dtype_word(part))
    if word not in _FIELDS:
        words = ", ".join(word for word in _FIELDS if word not in COMPUTE_ALIASES)
        raise ProblemError(
            f"unknown {part!r} after the shape; give {words}, batch=8, scale=row, e5m2=b or out=f32"
        )
    return _FIELDS[word], COMPUTE_ALIASES.get(word, word)


def whole_size(name: str, size: object, largest: int = LARGEST_DIMENSION) -> int:
    """A size as an int. Any integer type will do, such as NumPy's."""
    # Test for int first: testing for SupportsIndex takes longer than everything else here.
    if type(size) is not int and (isinstance(size, bool) or not isinstance(size, SupportsIndex)):
        raise ProblemError(f"{name} is {size!r}; give a whole number of at least 1")
    if not 1 <= (whole := index(size)) <= largest:
        raise ProblemError(f"{name} is {whole}; give 1 to {largest}")
    return whole
