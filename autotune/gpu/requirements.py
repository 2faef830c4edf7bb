"""Requirements that a kernel or a library has to fulfil."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune.problem import Problem
from autotune.verification import exact, oracle


@dataclass(frozen=True)
class Requirements:
    """Requirements that a kernel has to fulfil.

    Attributes:
        exact: alpha and beta of products of small integers, which have to be right bit for bit.
        scalings: alpha and beta of products of normal numbers; the verdict is that of the last.
        tolerance: the largest error allowed there in an element, for a problem, alpha and beta.
        specials: whether infinities, NaN and denormal numbers have to stay where they belong, and
            operands of 8 bits that are all maximal or denormal are right.
    """

    exact: tuple[tuple[float, float], ...]
    scalings: tuple[tuple[float, float], ...]
    tolerance: Callable[[Problem, float, float], float]
    specials: bool = False

    def of_integers(self, problem: Problem) -> tuple[tuple[float, float], ...]:
        """Alpha and beta of the products of integers, as far as the problem has a choice."""
        return self.exact if problem.has_factors else PLAIN[: len(self.exact)]

    def of_normals(self, problem: Problem) -> tuple[tuple[float, float], ...]:
        """Alpha and beta of the products of normal numbers."""
        return self.scalings if problem.has_factors else PLAIN


PLAIN = ((1.0, 0.0),)
"""Alpha and beta of problems that have no others."""
KERNEL = Requirements(((exact.ALPHA, -1.0),), ((1.0, 0.0),), oracle.tolerance)
"""For a kernel: it has to read C in the first run and must not read it in the second."""
THOROUGH = Requirements(
    ((exact.ALPHA, 1.0),), ((0.75, -0.5), (0.0, 1.0), (1.0, 0.0)), oracle.tolerance, specials=True
)
"""For a kernel that is about to be recorded."""
LIBRARY = Requirements((), ((1.0, 0.0),) * 2, oracle.library_tolerance)
"""For a library, which computes the product and the epilogue one after the other."""
