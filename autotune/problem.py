"""A matrix multiplication to be tuned: its shape, precision and operand layout."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from operator import index
from typing import Literal, SupportsIndex, get_args

from autotune.errors import ProblemError

Compute = Literal["f32"]
Layout = Literal["nn", "nt", "tn", "tt"]

COMPUTES: tuple[str, ...] = get_args(Compute)
LAYOUTS: tuple[str, ...] = get_args(Layout)
LARGEST_DIMENSION = 2**31 - 1

# Python refuses to read numbers of thousands of digits.
_SHAPE = re.compile(r"(-?\d{1,99})x(-?\d{1,99})x(-?\d{1,99})")


@dataclass(frozen=True, order=True)
class Problem:
    """`C = alpha op(A) op(B) + beta C` with op(A) of shape (m, k), op(B) (k, n) and C (m, n).

    Matrices are row-major. `layout` has one letter for each operand: `n`, stored as the formula
    reads it, or `t`, stored transposed (A as (k, m), B as (n, k)).

    Raises:
        ProblemError: for a dimension outside 1..2**31-1, an unknown `compute` or `layout`.
    """

    m: int
    n: int
    k: int
    compute: str = "f32"
    layout: str = "nn"

    def __post_init__(self) -> None:
        for name in ("m", "n", "k"):
            object.__setattr__(self, name, _size(name.upper(), getattr(self, name)))
        if self.compute not in COMPUTES:
            raise ProblemError(f"unknown compute {self.compute!r}; give one of {_either(COMPUTES)}")
        if self.layout not in LAYOUTS:
            raise ProblemError(f"unknown layout {self.layout!r}; give one of {_either(LAYOUTS)}")

    @classmethod
    def parse(cls, text: str, *, compute: str = "f32", layout: str = "nn") -> Problem:
        """Reads `MxNxK`, `MxNxK:compute` or `MxNxK:compute:layout`.

        What the text leaves out is taken from `compute` and `layout`.

        Raises:
            ProblemError: if the text has another form or names an impossible problem.
        """
        shape, *rest = text.strip().lower().split(":")
        match = _SHAPE.fullmatch(shape)
        if match is None or len(rest) > 2:
            raise ProblemError(f"malformed shape {text!r}; give MxNxK, such as 4096x4096x4096")
        m, n, k = (int(size) for size in match.groups())
        return cls(m, n, k, *rest, *(compute, layout)[len(rest) :])

    def __str__(self) -> str:
        return f"{self.shape}:{self.compute}:{self.layout}"

    @property
    def shape(self) -> str:
        """The text `MxNxK`."""
        return f"{self.m}x{self.n}x{self.k}"

    @property
    def slug(self) -> str:
        """The problem as part of a file name, such as `4096x4096x4096-f32-nn`."""
        return f"{self.shape}-{self.compute}-{self.layout}"

    @property
    def flops(self) -> int:
        """Floating-point operations of the product: 2 M N K (multiply and add each count)."""
        return 2 * self.m * self.n * self.k

    def speed(self, time_us: float) -> float:
        """FLOP/s of a product that takes so many microseconds."""
        return self.flops / time_us * 1e6

    @property
    def element_bytes(self) -> int:
        """Bytes of one element of A, B or C."""
        return 4

    @property
    def bytes(self) -> int:
        """Fewest bytes of device memory moved: A and B read once, C written once."""
        return self.element_bytes * (self.m * self.k + self.k * self.n + self.m * self.n)

    @property
    def leading_dimensions(self) -> tuple[int, int, int]:
        """Row lengths, in elements, of A, B and C stored without gaps."""
        lda = self.k if self.layout[0] == "n" else self.m
        ldb = self.n if self.layout[1] == "n" else self.k
        return lda, ldb, self.n


def _size(name: str, size: object) -> int:
    """A dimension as an int; whatever else counts as a whole number, such as NumPy's, is taken."""
    if isinstance(size, bool) or not isinstance(size, SupportsIndex):
        raise ProblemError(f"{name} is {size!r}; give a whole number of at least 1")
    if not 1 <= (whole := index(size)) <= LARGEST_DIMENSION:
        raise ProblemError(f"{name} is {whole}; give 1 to {LARGEST_DIMENSION}")
    return whole


def distance(a: Problem, b: Problem) -> float:
    """How far two shapes are apart, in octaves: the length of the log2 of the sizes' ratios."""
    pairs = ((a.m, b.m), (a.n, b.n), (a.k, b.k))
    return math.hypot(*(math.log2(one / other) for one, other in pairs))


def _either(names: tuple[str, ...]) -> str:
    return ", ".join(names)
