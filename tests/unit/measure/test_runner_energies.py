"""Energies from worker processes: in order, with the baseline's, and in spite of crashes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from autotune.errors import RunnerError
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan, Resources
from autotune.measure.gpu_runner import GpuRunner
from autotune.measure.measurement import Energy, Failure
from autotune.measure.runner import Candidate
from autotune.problem import Problem

FAKE = "support.worker_benches:fake"


def candidate(act: str) -> Candidate:
    config = Config.of("fake", {"act": act})
    return Candidate(config, LaunchPlan(config, ()), (), Resources(32, 32, 0))


@pytest.fixture
def runner() -> Iterator[GpuRunner]:
    runner = GpuRunner(Problem(64, 64, 64), bench=FAKE, baseline_bench=FAKE, time_limit=30.0)
    yield runner
    runner.close()


def test_energies_of_candidates_and_baseline(runner: GpuRunner) -> None:
    first, second = candidate("count"), candidate("count")
    assert runner.baseline() is not None
    runner.rematch([first])
    assert runner.energy_fault() is None
    energies = runner.energies([first, second])
    assert [energy.joules for energy in energies if isinstance(energy, Energy)] == [2.0, 3.0]
    baseline = runner.baseline()
    assert baseline is not None
    assert (baseline.time_us, baseline.energy and baseline.energy.joules) == (20.0, 20.0)
    # A crash costs the energy of one candidate, a failing counter that of all.
    energies = runner.energies([first, candidate("kill"), second])
    assert [type(energy) for energy in energies] == [Energy, Failure, Energy]
    with pytest.raises(RunnerError, match="the counter stands still"):
        runner.energies([first, candidate("still")])
