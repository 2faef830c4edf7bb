"""Requirements that a kernel or a library has to fulfil."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from autotune.problem import Problem
from autotune.verification import exact, oracle
from autotune.verification.exact import Draw


@dataclass(frozen=True)
class Requirements:
    """Requirements that a kernel has to fulfil.

    Attributes:
        exact: alpha and beta of products of small integers, which have to be right bit for bit.
        scalings: alpha and beta of products of normal numbers; the verdict is that of the last.
        tolerance: the largest error allowed there in an element, for a problem, alpha and beta.
        specials: whether infinities, NaN and denormal numbers have to stay where they belong, and
            operands of 8 bits that are all maximal or denormal are right.
        draw: draws a product of small integers.
        rounds: whether the product may be rounded before its epilogue; then products of integers
            are left out where the epilogue rounds too.
    """

    exact: tuple[tuple[float, float], ...]
    scalings: tuple[tuple[float, float], ...]
    tolerance: Callable[[Problem, float, float], float]
    specials: bool = False
    draw: Callable[[Problem], Draw] = Draw.of
    rounds: bool = False

    def of_integers(self, problem: Problem) -> tuple[tuple[float, float], ...]:
        """Alpha and beta of the products of integers, as far as the problem has a choice."""
        if self.rounds and exact.tolerance(problem):
            return ()
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
LIBRARY = Requirements(
    *(PLAIN * 2, PLAIN * 2, oracle.library_tolerance), draw=Draw.of_library, rounds=True
)
"""For a library, which may add partial sums of K in 16 bits, and computes the product and the
epilogue one after the other. Integers show what the tolerance hides: a dropped tail of K."""
