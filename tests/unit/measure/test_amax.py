"""Checks of the largest size of a C in fp8, which kernels raise `amax` to."""

from __future__ import annotations

import pytest

from autotune.measure.verify import WRITTEN, EnqueuedRun, first_failure
from autotune.problem import Problem

FP8 = Problem(8, 8, 8, "f8", output="e4m3")
RUN = EnqueuedRun("(alpha=1, beta=0)", 0, 0.0, exact=True)


def findings(expected: float, largest: float) -> list[float]:
    return [*[0.0] * len(WRITTEN), 0.0, 0.0, expected, largest]


@pytest.mark.parametrize("expected", [13.0, float("inf")])
def test_right_amax_passes(expected: float) -> None:
    assert first_failure(FP8, [RUN], findings(expected, expected)) is None


@pytest.mark.parametrize("largest", [12.0, 14.0, float("nan"), float("inf")])
def test_wrong_amax_fails(largest: float) -> None:
    failure = first_failure(FP8, [RUN], findings(13.0, largest))
    assert failure is not None
    assert failure.reason == (f"amax is {largest:.6g}, the largest size of C 13 (alpha=1, beta=0)")


def test_sums_of_squares_of_rounded_runs_are_no_amax() -> None:
    rounded = EnqueuedRun("(alpha=1, beta=0)", 0, 0.0)
    assert first_failure(FP8, [rounded], findings(1.0, 200.0)) is None
