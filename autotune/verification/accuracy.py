"""Whether a result is as accurate as it has to be beside the vendor library's."""

from __future__ import annotations

from autotune.problem import Problem
from autotune.runners.base import Failure, Measurement
from autotune.verification.oracle import relative_bound


def judged(
    problem: Problem, outcome: Measurement | Failure, vendor: float | None
) -> Measurement | Failure:
    """The outcome, or a failure if it is less accurate than `vendor`, the vendor library's relative
    error on operands of the same kind, allows; None judges nothing."""
    if isinstance(outcome, Failure) or outcome.relative_error is None:
        return outcome
    return inaccuracy(problem, outcome.relative_error, vendor) or outcome


def inaccuracy(problem: Problem, error: float, vendor: float | None) -> Failure | None:
    """Why a relative error is too large beside the vendor library's; None if it is not."""
    bound = relative_bound(problem, vendor)
    if vendor is None or error <= bound:
        return None
    times = f"{error / vendor:.1f} times" if vendor else "more than"
    return Failure(
        "accuracy",
        f"relative error {error:.2g} is {times} the vendor library's {vendor:.2g}; "
        f"{bound:.2g} is allowed",
    )
