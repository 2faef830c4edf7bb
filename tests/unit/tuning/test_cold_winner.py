"""The cold winner of a search for the hot one, on a recording whose winners differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from support.fake_runner import compiled

from autotune.families.config import Config
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import HOT, BestTimes, Objective
from autotune.measure.recording import Recording, find
from autotune.measure.runner import Candidate
from autotune.measure.timing import CLOSE
from autotune.measure.without_gpu import ReplayRunner
from autotune.problem import Problem
from autotune.records import Record, Store
from autotune.tuning.loop import tune
from autotune.tuning.options import Search
from autotune.tuning.tunable import GemmTunable

# The fastest kernel with L2 flushed takes 1.4 times as long hot as the fastest hot.
WEIGHTS = Problem(16, 4096, 4096, "bf16")


class TimedRunner(ReplayRunner):
    """A replay that times cold what a GPU would: what may win hot or cold."""

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure:
        outcome = super().measure(candidate, best, objective)
        best = best or BestTimes()
        if isinstance(outcome, Failure):
            return outcome
        if outcome.time_us <= max(CLOSE * best.of(objective), best.cold_us):
            return outcome
        return replace(outcome, cold_us=None, cold_spread_us=None)


@pytest.fixture(scope="module")
def recording() -> Recording:
    """Every kernel near one of the winners, and every tenth of the others: a fifth of all."""
    whole = find("h100", WEIGHTS)
    timed = [row.outcome for row in whole.rows if isinstance(row.outcome, Measurement)]
    best = BestTimes(
        min(outcome.time_us for outcome in timed),
        min(outcome.cold_us for outcome in timed if outcome.cold_us is not None),
    )

    def near(outcome: Measurement | Failure) -> bool:
        if isinstance(outcome, Failure) or outcome.cold_us is None:
            return False
        return outcome.time_us <= 1.3 * best.hot_us or outcome.cold_us <= 1.05 * best.cold_us

    rows = [row for place, row in enumerate(whole.rows) if place % 10 == 0 or near(row.outcome)]
    return replace(whole, rows=tuple(rows))


@pytest.fixture(scope="module")
def cold_us(recording: Recording) -> Mapping[Config, float]:
    return {
        row.config: row.outcome.cold_us
        for row in recording.rows
        if isinstance(row.outcome, Measurement) and row.outcome.cold_us is not None
    }


@pytest.fixture(scope="module")
def tuned(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Record:
    return tune(
        GemmTunable(WEIGHTS),
        TimedRunner(recording),
        Store(tmp_path_factory.mktemp("cache")),
        Search(sampler="exhaustive"),  # what is timed cold is tested here, not what is proposed
        compile=compiled,
        origin=recording.origin,
    )


def test_search_for_the_hot_winner_finds_the_cold_one(
    tuned: Record, cold_us: Mapping[Config, float]
) -> None:
    assert tuned.best_cold is not None
    assert cold_us[tuned.best_cold.config] <= 1.01 * min(cold_us.values())


def test_cold_winner_is_slower_hot_than_any_close_kernel(tuned: Record) -> None:
    assert tuned.best_cold is not None
    assert tuned.best_cold.measurement.time_us > CLOSE * tuned.best.measurement.time_us


def test_hot_winner_is_slower_cold(tuned: Record, cold_us: Mapping[Config, float]) -> None:
    assert tuned.best_cold is not None
    assert cold_us[tuned.best.config] > 1.03 * cold_us[tuned.best_cold.config]
