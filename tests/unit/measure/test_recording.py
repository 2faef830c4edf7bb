"""The recording of an H100 that the package ships."""

from __future__ import annotations

import pytest

from autotune.measure import recording
from autotune.measure.measurement import Measurement
from autotune.measure.recording import Recording
from autotune.problem import Problem

pytestmark = pytest.mark.skipif(
    not (recording.ROOT / "h100").is_dir(), reason="no recording of an H100 is there yet"
)

SQUARE = Problem(4096, 4096, 4096)


@pytest.fixture(scope="module")
def square() -> Recording:
    return recording.find("h100", SQUARE)


def fastest_us(recorded: Recording) -> float:
    outcomes = [row.outcome for row in recorded.rows]
    return min(outcome.time_us for outcome in outcomes if isinstance(outcome, Measurement))


@pytest.mark.parametrize(
    ("problem", "least"),
    [(SQUARE, 400), (Problem(1024, 1024, 1024), 250), (Problem(128, 4096, 14336), 250)],
    ids=str,
)
def test_it_holds_enough_simt_configurations(problem: Problem, least: int) -> None:
    rows = recording.find("h100", problem).rows
    assert len({row.config for row in rows if row.config.family == "simt"}) >= least


def test_every_time_is_of_a_verified_kernel(square: Recording) -> None:
    measured = [row.outcome for row in square.rows if isinstance(row.outcome, Measurement)]
    assert all(
        outcome.error is not None
        and outcome.tolerance is not None
        and outcome.error <= outcome.tolerance
        for outcome in measured
    )


def test_cublas_was_timed(square: Recording) -> None:
    assert square.baseline is not None


def test_best_is_at_least_95_percent_of_cublas(square: Recording) -> None:
    assert square.baseline is not None
    assert square.baseline.time_us / fastest_us(square) >= 0.95
