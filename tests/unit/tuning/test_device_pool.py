"""Devices that share the work of a tuning run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing

import pytest
from support.fake_runner import FakeRunner, by_width, tiled
from support.sample_records import SQUARE

from autotune.errors import RunnerError
from autotune.families import registry
from autotune.families.config import Config
from autotune.runners.base import Candidate, Failure, Measurement, Runner
from autotune.tuning.device_pool import DevicePool
from autotune.tuning.evaluate import Trial
from autotune.tuning.pipeline import Ready

WIDTHS = range(8, 20)


def ready(config: Config) -> Ready:
    taken = registry.find(config.family).estimate(config)
    return config, Candidate(config, registry.plan(config, SQUARE), (), taken)


CANDIDATES = [ready(tiled(width)) for width in WIDTHS]
FAILED: Ready = tiled(4), Failure("compile", "no")


def measured(runner: Runner, candidate: Candidate) -> Trial:
    return Trial(candidate.config, runner.measure(candidate, None))


def always() -> bool:
    return True


def worked(
    runners: Sequence[FakeRunner],
    prepared: Iterable[Ready] = CANDIDATES,
    going: Callable[[], bool] = always,
    *,
    ahead: bool = True,
) -> list[Trial]:
    with closing(DevicePool(runners, measured, ahead=ahead)) as crew:
        return [*crew.trials(prepared, going)]


class Vendor(FakeRunner):
    """Its baseline is ready after so many trials; how often it was timed is counted."""

    def __init__(self, after: int) -> None:
        super().__init__()
        self.after, self.timed = after, 0

    @property
    def baseline_ready(self) -> bool:
        return len(self.measured) >= self.after

    def baseline(self) -> Measurement | None:
        self.timed += 1
        return super().baseline()


@pytest.mark.parametrize("ahead", [True, False])
@pytest.mark.parametrize("devices", [1, 2, 3])
def test_each_candidate_is_measured_once(devices: int, ahead: bool) -> None:
    runners = [FakeRunner() for _ in range(devices)]
    trials = worked(runners, ahead=ahead)
    configs = [config for config, _ in CANDIDATES]
    assert sorted(config for runner in runners for config in runner.measured) == configs
    assert sorted(trial.config for trial in trials) == configs


def test_all_devices_are_busy_at_once() -> None:
    # Each waits for the other: alone it would break.
    meeting = threading.Barrier(2)

    def meet(config: Config) -> Measurement:
        meeting.wait(5)
        return by_width(config)

    runners = [FakeRunner(meet), FakeRunner(meet)]
    worked(runners)
    assert [len(runner.measured) for runner in runners] == [6, 6]


def test_a_device_that_is_slow_gets_less() -> None:
    done = threading.Event()

    def slow(config: Config) -> Measurement:
        assert done.wait(5)
        return by_width(config)

    def prepared() -> Iterator[Ready]:
        yield from CANDIDATES
        done.set()

    runners = [FakeRunner(slow), FakeRunner()]
    worked(runners, prepared())
    assert [len(runner.measured) for runner in runners] == [1, len(CANDIDATES) - 1]


def test_the_next_is_prepared_while_the_last_is_on_the_device() -> None:
    prepared_more = threading.Event()

    def waits(config: Config) -> Measurement:
        assert prepared_more.wait(5)
        return by_width(config)

    def prepared() -> Iterator[Ready]:
        yield CANDIDATES[0]
        prepared_more.set()
        yield CANDIDATES[1]

    assert len(worked([FakeRunner(waits)], prepared())) == 2


def test_without_looking_ahead_the_next_is_asked_for_once_the_last_is_told() -> None:
    told: set[Config] = set()
    seen: list[int] = []

    def prepared() -> Iterator[Ready]:
        for one in CANDIDATES:
            seen.append(len(told))
            yield one

    with closing(DevicePool([FakeRunner()], measured, ahead=False)) as crew:
        for trial in crew.trials(prepared(), always):
            told.add(trial.config)
    assert seen == [*range(len(CANDIDATES))]


def test_a_candidate_that_cannot_run_needs_no_device() -> None:
    release = threading.Event()

    def waits(config: Config) -> Measurement:
        assert release.wait(5)
        return by_width(config)

    with closing(DevicePool([FakeRunner(waits)], measured, ahead=True)) as crew:
        trials = crew.trials([CANDIDATES[0], FAILED, CANDIDATES[1]], always)
        first = next(trials)  # while the device is busy
        release.set()
        assert (first.config, first.outcome) == FAILED
        assert [trial.config for trial in trials] == [tiled(8), tiled(9)]


def test_it_ends_when_it_is_told_to_and_drops_nothing_that_runs() -> None:
    runner = FakeRunner()
    trials = worked([runner], going=lambda: len(runner.measured) < 3)
    assert [trial.config for trial in trials] == runner.measured
    assert len(trials) == 3


def test_a_trial_is_given_out_for_each_that_fails_on_the_device() -> None:
    trials = worked([FakeRunner(lambda _: Failure("launch", "no"))])
    assert len(trials) == len(CANDIDATES)


def test_a_runner_that_breaks_ends_it() -> None:
    def breaks(config: Config) -> Measurement:
        raise RunnerError(f"lost at {config}")

    with pytest.raises(RunnerError, match="lost at tiled"):
        worked([FakeRunner(breaks)])


def test_leaving_waits_for_what_runs() -> None:
    ended: list[Config] = []

    def slow(config: Config) -> Measurement:
        time.sleep(0.05)
        ended.append(config)
        return by_width(config)

    with closing(DevicePool([FakeRunner(slow)], measured, ahead=True)) as crew:
        trials = crew.trials([CANDIDATES[0], FAILED, *CANDIDATES[1:]], always)
        with closing(trials):  # type: ignore[type-var]
            next(trials)
    assert ended == [tiled(8)]


def test_the_baseline_is_taken_once_it_is_ready() -> None:
    runner = Vendor(after=3)
    with closing(DevicePool([runner], measured, ahead=True)) as crew:
        known = [crew.baseline is not None for _ in crew.trials(CANDIDATES, always)]
    assert known.index(True) in (2, 3, 4)
    assert (runner.timed, crew.baseline) == (1, Measurement(90.0))


def test_only_the_first_device_times_the_baseline() -> None:
    runners = [Vendor(after=0), Vendor(after=0)]
    worked(runners)
    assert [runner.timed for runner in runners] == [1, 0]


def test_a_baseline_that_is_never_ready_is_not_waited_for() -> None:
    with closing(DevicePool([Vendor(after=99)], measured, ahead=True)) as crew:
        assert len([*crew.trials(CANDIDATES, always)]) == len(CANDIDATES)
        assert crew.baseline is None


def test_the_time_of_all_devices_is_added_up() -> None:
    def slow(config: Config) -> Measurement:
        time.sleep(0.02)
        return by_width(config)

    runners = [FakeRunner(slow), FakeRunner(slow)]
    with closing(DevicePool(runners, measured, ahead=True)) as crew:
        began = time.monotonic()
        list(crew.trials(CANDIDATES, always))
        took = time.monotonic() - began
    assert 12 * 0.02 <= crew.busy_s <= 2 * took
