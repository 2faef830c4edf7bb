"""The forms in which public functions take a problem.

These are the same problem:

    problem_of(4096, 4096, 4096, compute="bf16")
    problem_of((4096, 4096, 4096), compute="bf16")
    problem_of("4096x4096x4096:bf16")
    problem_of(Problem(4096, 4096, 4096, "bf16"))

In a `Span` of problems one size varies, as in `1..512x4096x4096:bf16`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from autotune.errors import ProblemError, require_list
from autotune.problem.fields import AccuracyText, ProblemFields, compute_of, split_sizes
from autotune.problem.problem import Problem

if TYPE_CHECKING:
    from typing_extensions import Unpack

ProblemLike = str | Problem | Sequence[int]
"""A problem as text, as a `Problem` or as (m, n, k)."""


class ProblemDefaults(ProblemFields, total=False):
    """The fields of a problem as keywords, and the accuracy that may change its compute.

    Attributes:
        accuracy: `near` computes `f32` as `tf32x3`; by default `exact`.
    """

    accuracy: AccuracyText


class ProblemArguments(ProblemDefaults, total=False):
    """The keywords of functions that take one problem.

    Attributes:
        m: rows of A and C, if the sizes are not positional.
        n: columns of B and C.
        k: columns of A, rows of B.
    """

    m: int
    n: int
    k: int


def problem_of(
    *problem: ProblemLike | int,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    accuracy: AccuracyText = "exact",
    **fields: Unpack[ProblemFields],
) -> Problem:
    """The problem that the arguments of a public function describe.

    Args:
        problem: the problem as text, as a `Problem` or as (m, n, k), or its three sizes.
        m: rows of A and C, if the sizes are not positional.
        n: columns of B and C.
        k: columns of A, rows of B.
        accuracy: `near` computes `f32` as `tf32x3`; else `exact`.
        fields: the fields that the problem does not state itself.

    Raises:
        ProblemError: for an impossible problem, or a field that differs from what the problem
            states.
        TypeError: for an unknown keyword.
    """
    stated = _stated(problem, (m, n, k), fields)
    for name, value in fields.items():
        changed: dict[str, object] = {name: value}
        if replace(stated, **changed) != stated:  # type: ignore[arg-type]
            raise ProblemError(
                f"{problem[0]} has {name} {getattr(stated, name)}, the argument {name} is {value}; "
                "leave one out"
            )
    return replace(stated, compute=compute_of(stated.compute, accuracy))


def problems_of(
    shapes: Iterable[ProblemLike],
    *,
    accuracy: AccuracyText = "exact",
    **fields: Unpack[ProblemFields],
) -> list[Problem]:
    """The problems of a list. The keywords are for texts and sizes that do not state a field.

    Raises:
        ProblemError: for an impossible problem.
        TypeError: for an unknown keyword.
    """
    require_list("shapes", str(shapes) if isinstance(shapes, Problem) else shapes)
    fields["compute"] = compute_of(fields.get("compute", "f32"), accuracy)
    return [_one(shape, fields) for shape in shapes]


def _stated(
    problem: tuple[ProblemLike | int, ...],
    keywords: tuple[int | None, int | None, int | None],
    fields: ProblemFields,
) -> Problem:
    """The problem as it states itself; the fields complete it."""
    named = [size is not None for size in keywords]
    if len(problem) == 1 and not any(named):
        (shape,) = problem
        if isinstance(shape, str | Problem) or hasattr(shape, "__len__"):
            return _one(cast("ProblemLike", shape), fields)
    sizes: list[Any] = [*problem, *keywords[len(problem) :]]
    if len(sizes) != 3 or None in sizes or any(named[: len(problem)]):
        raise ProblemError(
            "give one problem: a text such as 4096x4096x4096:bf16, a Problem, (m, n, k) or m, n, k"
        )
    return _one(sizes, fields)


def _one(shape: ProblemLike, fields: ProblemFields) -> Problem:
    if isinstance(shape, Problem):
        return shape
    if isinstance(shape, str):
        return Problem.parse(shape, **fields)
    if not hasattr(shape, "__len__"):
        raise ProblemError(f"a shape is {shape!r}; give one such as 4096x4096x4096, or (m, n, k)")
    if len(shape) != 3:
        raise ProblemError(f"shape {tuple(shape)} has {len(shape)} sizes; give (m, n, k)")
    m, n, k = shape
    return Problem(m, n, k, **fields)


Dimension = Literal["m", "n", "k"]
DIMENSIONS: tuple[str, ...] = get_args(Dimension)
PROBES_AN_OCTAVE = 2
"""Sizes at which a span is looked at, from one power of two to the next."""

_SIZES = re.compile(r"(\d{1,99})\.\.(\d{1,99})")


@dataclass(frozen=True)
class Span:
    """The problems whose size in one dimension goes from `low` to the problem's own.

    Attributes:
        problem: the largest problem.
        dimension: the size that varies: `m`, `n` or `k`.
        low: the smallest value of that size.
    """

    problem: Problem
    dimension: str
    low: int

    @classmethod
    def parse(cls, text: str, **arguments: Unpack[ProblemDefaults]) -> Span:
        """Reads `1..512x4096x4096:bf16`: the text of a problem (see `Problem.parse`) with LOW..HIGH
        in the place of one size. The keywords are those of `problem_of`.

        Raises:
            ProblemError: if the text has another form or names an impossible problem.
        """
        text = text.strip()
        shape, *rest = text.lower().split(":")
        sizes = [*split_sizes(shape)]
        places = [place for place, size in enumerate(sizes) if _SIZES.match(size)]
        match = _SIZES.fullmatch(sizes[places[0]]) if len(places) == 1 else None
        if match is None or len(sizes) != 3:
            raise ProblemError(
                f"malformed range {text!r}; give one size as LOW..HIGH, such as 1..512x4096x4096"
            )
        low, high = int(match[1]), int(match[2])
        if not 1 <= low <= high:
            raise ProblemError(
                f"range {low}..{high} in {text!r}; give 1 or more, the smaller first"
            )
        sizes[places[0]] = str(high)
        problem = problem_of(":".join(("x".join(sizes), *rest)), **arguments)
        return cls(problem, DIMENSIONS[places[0]], low)

    @property
    def high(self) -> int:
        """The largest size."""
        return int(getattr(self.problem, self.dimension))

    def at(self, size: int) -> Problem:
        """The problem of a size."""
        return sized(self.problem, self.dimension, size)

    @property
    def probes(self) -> tuple[int, ...]:
        """The sizes to look at, ascending: both ends, and `PROBES_AN_OCTAVE` in each octave."""
        steps = range(PROBES_AN_OCTAVE * math.ceil(math.log2(self.high) + 1))
        sizes = {round(2 ** (step / PROBES_AN_OCTAVE)) for step in steps}
        inside = {size for size in sizes if self.low < size < self.high}
        return tuple(sorted({self.low, self.high, *inside}))


def sized(problem: Problem, dimension: str, size: int) -> Problem:
    """The problem with another size in one dimension.

    Raises:
        ProblemError: for an impossible size.
    """
    changed: dict[str, Any] = {dimension: size}
    return replace(problem, **changed)


def distance(a: Problem, b: Problem) -> float:
    """The distance of two problems, in octaves: the Euclidean norm of log2 of the ratios of their
    sizes and batches."""
    pairs = ((a.m, b.m), (a.n, b.n), (a.k, b.k), (a.batch, b.batch))
    return math.hypot(*(math.log2(size / size_b) for size, size_b in pairs))
