"""Spans of problems: one size varies, as in `1..512x4096x4096:bf16`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

from autotune.errors import ProblemError
from autotune.problem.arguments import ProblemDefaults, problem_of
from autotune.problem.problem import Problem
from autotune.problem.text import split_sizes

if TYPE_CHECKING:
    from typing_extensions import Unpack

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
