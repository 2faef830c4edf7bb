"""Searches that spend no trial on kernels that are predicted to be too inaccurate."""

from __future__ import annotations

import pytest
from support import results
from support.fake_runner import ORIGIN, uncompiled
from support.sample_study import store as store

from autotune.measure.measurement import Failure, Measurement
from autotune.measure.recording import Recording
from autotune.measure.runner import Candidate
from autotune.measure.without_gpu import ReplayRunner
from autotune.records import Store
from autotune.tuning.loop import Search, tune
from autotune.tuning.tunable import GemmTunable

RECORDED = "1023x1025x1027-tf32x3-nn"


INACCURATE = 22
"""Of its 37 kernels, which the verification refused."""


class CountingRunner(ReplayRunner):
    """A replay that counts the trials that fail at a stage."""

    def __init__(self, recording: Recording) -> None:
        super().__init__(recording)
        self.failed: list[str] = []
        self.trials = 0

    def measure(self, candidate: Candidate, *rest: object) -> Measurement | Failure:
        outcome = super().measure(candidate, *rest)  # type: ignore[arg-type]
        self.trials += 1
        if isinstance(outcome, Failure):
            self.failed.append(outcome.stage)
        return outcome


def test_search_spends_no_trial_on_inaccurate_kernels(store: Store) -> None:
    recording = results.recording("h100", RECORDED)
    runner = CountingRunner(recording)
    tunable = GemmTunable(recording.problem)
    record = tune(
        tunable, runner, store, Search(sampler="random"), compile=uncompiled, origin=ORIGIN
    )
    assert "accuracy" not in runner.failed
    assert runner.trials == len(recording.rows) - INACCURATE
    times = [row.outcome.time_us for row in recording.rows if isinstance(row.outcome, Measurement)]
    assert record.best.measurement.time_us == pytest.approx(min(times), rel=0.05)


def test_nothing_is_refused_before_the_baseline_is_known() -> None:
    recording = results.recording("h100", RECORDED)
    tunable, configs = GemmTunable(recording.problem), [row.config for row in recording.rows]
    assert tunable.inaccurate(configs, Measurement(10.0)) == ()
    assert recording.baseline is not None
    assert len(tunable.inaccurate(configs, recording.baseline)) == INACCURATE
