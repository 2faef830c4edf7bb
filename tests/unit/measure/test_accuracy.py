"""Accuracy relative to the vendor baseline: what fails, and with which message."""

from __future__ import annotations

import pytest

from autotune.measure.measurement import Failure, Measurement
from autotune.measure.oracle import checked_accuracy
from autotune.problem import Problem

PROBLEM = Problem(64, 64, 64)
VENDOR_ERROR = 5.7e-7


def measured(error: float | None) -> Measurement:
    return Measurement(100.0, relative_error=error)


def test_inaccurate_candidate_fails_with_the_numbers() -> None:
    assert checked_accuracy(PROBLEM, measured(1.2e-6), VENDOR_ERROR) == Failure(
        "accuracy",
        "relative error 1.2e-06 is 2.1 times the vendor library's 5.7e-07; 8.6e-07 is allowed",
    )


@pytest.mark.parametrize("error", [0.0, 5.7e-7, 8.54e-7])
def test_up_to_1_5_times_the_baselines_error_is_accurate(error: float) -> None:
    assert checked_accuracy(PROBLEM, measured(error), VENDOR_ERROR) == measured(error)


def test_failure_beside_an_exact_baseline_says_so() -> None:
    assert checked_accuracy(PROBLEM, measured(2e-7), 0.0) == Failure(
        "accuracy",
        "relative error 2e-07 is more than the vendor library's 0; 1.2e-07 is allowed",
    )


def test_nan_is_inaccurate() -> None:
    assert isinstance(checked_accuracy(PROBLEM, measured(float("nan")), VENDOR_ERROR), Failure)


@pytest.mark.parametrize(("error", "vendor"), [(1.0, None), (None, VENDOR_ERROR)])
def test_unknown_errors_are_not_checked(error: float | None, vendor: float | None) -> None:
    assert checked_accuracy(PROBLEM, measured(error), vendor) == measured(error)


def test_failure_is_passed_through() -> None:
    crash = Failure("crash", "illegal access")
    assert checked_accuracy(PROBLEM, crash, VENDOR_ERROR) == crash


def test_too_few_elements_are_not_compared() -> None:
    assert checked_accuracy(Problem(8, 8, 64), measured(1e-6), VENDOR_ERROR) == measured(1e-6)
