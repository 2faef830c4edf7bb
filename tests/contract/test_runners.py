"""What every runner guarantees (see `runner.Runner`), whichever way it gets its answers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from support.fake_runner import FakeRunner, compiled

from autotune.device import find
from autotune.families import registry
from autotune.families.config import Config
from autotune.gpu import GpuRunner
from autotune.problem import Problem
from autotune.runners import recording
from autotune.runners.base import Candidate, Failure, Measurement, Runner
from autotune.runners.predicted import PredictedRunner
from autotune.runners.replay import ReplayRunner
from autotune.tuning.evaluate import prepare

PROBLEM = Problem(4096, 4096, 4096)
TILED = Config.parse("tiled:tile_width=16,specialized=1")
NAIVE = Config.parse("naive:mapping=coalesced,block=32")

# Worker processes whose benches answer without a GPU stand in for those that measure.
TIRELESS = "support.worker_benches:tireless"
RUNNERS: dict[str, Callable[[], Runner]] = {
    "fake": lambda: FakeRunner(lambda config: Measurement(float(len(str(config))))),
    "measured": lambda: GpuRunner(PROBLEM, bench=TIRELESS, vendor=TIRELESS),
    "measured without a vendor": lambda: GpuRunner(PROBLEM, bench=TIRELESS, vendor=None),
    "predicted": lambda: PredictedRunner(PROBLEM, find("h100")),
    "replayed": lambda: ReplayRunner(recording.find("h100", PROBLEM)),
}


@pytest.fixture(params=RUNNERS)
def runner(request: pytest.FixtureRequest) -> Iterator[Runner]:
    runner = RUNNERS[request.param]()
    yield runner
    runner.close()


def candidate(runner: Runner, config: Config = TILED) -> Candidate:
    made = prepare(registry.plan(config, PROBLEM), runner, compiled)
    assert isinstance(made, Candidate)
    return made


def test_a_measurement_has_a_time(runner: Runner) -> None:
    outcome = runner.measure(candidate(runner), None)
    assert isinstance(outcome, Measurement)
    assert outcome.time_us > 0


def test_a_measurement_that_ran_was_verified(runner: Runner) -> None:
    outcome = runner.measure(candidate(runner), None)
    assert isinstance(outcome, Measurement)
    if runner.evidence != "predicted":
        assert (outcome.error or 0) <= (outcome.tolerance or 0)
    else:
        assert (outcome.samples, outcome.error) == (0, None)


def test_one_that_is_clearly_slower_still_has_a_measurement(runner: Runner) -> None:
    assert isinstance(runner.measure(candidate(runner), 1e-3), Measurement)


def test_a_rematch_answers_for_each_in_order(runner: Runner) -> None:
    both = [candidate(runner, NAIVE), candidate(runner)]
    alone = [runner.measure(one, None) for one in both]
    outcomes = runner.rematch(both)
    times = [
        [one.time_us for one in row if isinstance(one, Measurement)] for row in (alone, outcomes)
    ]
    assert times[1] == pytest.approx(times[0], rel=0.05)


def test_a_rematch_of_none_is_empty(runner: Runner) -> None:
    assert runner.rematch([]) == []


def test_what_it_knows_it_can_answer_for(runner: Runner) -> None:
    for config in (runner.known() or [TILED])[:3]:
        answer = runner.measure(candidate(runner, config), None)
        assert isinstance(answer, Measurement | Failure)


def test_the_baseline_does_not_change_by_asking(runner: Runner) -> None:
    assert runner.baseline() == runner.baseline()


def test_either_objective_has_a_hot_time(runner: Runner) -> None:
    outcome = runner.measure(candidate(runner), None, "cold")
    assert isinstance(outcome, Measurement)
    assert outcome.time_us > 0


def test_the_baseline_is_ready_in_time(runner: Runner) -> None:
    deadline = time.monotonic() + 30.0
    while not runner.baseline_ready and time.monotonic() < deadline:
        time.sleep(0.01)
    assert runner.baseline_ready


def test_it_may_be_closed_twice(runner: Runner) -> None:
    runner.close()
    runner.close()
