"""Accuracy of a result relative to the vendor baseline."""

from __future__ import annotations

from autotune.problem import Problem
from autotune.problem.problem import relative_bound
from autotune.runners.base import Failure, Measurement


def judged(
    problem: Problem, outcome: Measurement | Failure, baseline_error: float | None
) -> Measurement | Failure:
    """The outcome, or a failure if it is too inaccurate beside the vendor baseline.

    `baseline_error` is the baseline's relative error on operands of the same kind; without it
    nothing is judged.
    """
    if isinstance(outcome, Failure) or outcome.relative_error is None:
        return outcome
    return inaccuracy(problem, outcome.relative_error, baseline_error) or outcome


def inaccuracy(problem: Problem, error: float, baseline_error: float | None) -> Failure | None:
    """The failure of a relative error that is too large beside the baseline's, else None."""
    bound = relative_bound(problem, baseline_error)
    if baseline_error is None or error <= bound:
        return None
    times = f"{error / baseline_error:.1f} times" if baseline_error else "more than"
    return Failure(
        "accuracy",
        f"relative error {error:.2g} is {times} the vendor library's {baseline_error:.2g}; "
        f"{bound:.2g} is allowed",
    )
