"""Judgement of the findings of verification: stray writes and wrong elements become failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autotune.problem import Problem
from autotune.runners.base import Failure
from autotune.verification.exact import Special

WRITTEN = ("around C", "around the workspace", "in or around the counters, which stay zero")
READ = (
    *("in or around A", "in or around B", "in or around the bias"),
    *("in or around the scales of A", "in or around the scales of B"),
)
RESIDUAL = "in or around the residual"
RESULT = "around the scale of C and amax"
ERRORS = 4
"""Figures of `compare`: largest error, wrong elements, sums of squares of errors and of values. Of
`compare_exact` the last two are the largest size of C that is expected and that found, for fp8."""
AMAX_ERROR = 2.0**-10
"""The relative error that `amax` may have: that of an activation."""


@dataclass(frozen=True)
class Verdict:
    """How far a correct kernel was from the float64 reference in its last run.

    Attributes:
        error: largest absolute error of an element, less what rounding to C's type may change.
        tolerance: the largest error allowed.
        relative: Frobenius norm of the error over that of the reference.
        time_us: the faster of the two runs, launches and a cold L2 included.
    """

    error: float
    tolerance: float
    relative: float
    time_us: float


@dataclass(frozen=True)
class VerifiedRun:
    """A verified run.

    Attributes:
        run: alpha, beta and special values, for a reason.
        place: index of its findings: the counts of `WRITTEN`, then `ERRORS` figures.
        tolerance: the largest error allowed.
        exact: whether it was of small integers.
    """

    run: str
    place: int
    tolerance: float
    exact: bool = False


def first_failure(
    problem: Problem, checks: Sequence[VerifiedRun], findings: Sequence[float], when: str = ""
) -> Failure | None:
    """The failure of the first run that is not right; `when` says when it was, such as ` later`."""
    for check in checks:
        counts = findings[check.place :]
        if failure := stray_writes(counts, WRITTEN, f"{when} {check.run}"):
            return failure
        error, wrong = counts[len(WRITTEN) :][:2]
        if error <= check.tolerance and not wrong:
            if failure := _amax_failure(problem, check, counts, when):
                return failure
            continue
        integers = " for small integers" if check.exact else ""
        return Failure(
            "verify",
            f"wrong result{integers}{when}: largest error {error:.3g}, tolerance "
            f"{check.tolerance:.3g}, exceeded by {wrong:.0f} of "
            f"{problem.batch * problem.m * problem.width} elements {check.run}",
        )
    return None


def _amax_failure(
    problem: Problem, check: VerifiedRun, counts: Sequence[float], when: str
) -> Failure | None:
    """The failure of the largest size of an fp8 C, which runs of small integers look at."""
    expected, largest = counts[len(WRITTEN) + 2 :][:2]
    if not (check.exact and problem.has_fp8_output) or expected == largest:
        return None
    if abs(largest - expected) <= AMAX_ERROR * expected:
        return None
    return Failure(
        "verify", f"amax is {largest:.6g}{when}, the largest size of C {expected:.6g} {check.run}"
    )


def described(scaling: tuple[float, float], special: Special | None = None) -> str:
    """The text of a run for a reason: alpha, beta and the special value."""
    text = "alpha={:g}, beta={:g}".format(*scaling)
    if special is None:
        return f"({text})"
    where = (
        f"row {special.row} of A" if special.row is not None else f"column {special.column} of B"
    )
    return f"({text}, {special.value:.3g} in {where})"


def stray_writes(counts: Sequence[float], places: Sequence[str], when: str = "") -> Failure | None:
    """The failure that names every place with changed elements; None if there is none."""
    changed = [
        f"{count:.0f} elements {place}"
        for count, place in zip(counts, places, strict=False)
        if count
    ]
    if not changed:
        return None
    return Failure("verify", f"stray writes: changed {' and '.join(changed)}{when}")
