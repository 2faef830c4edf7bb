"""The device pool: devices that share the work of a tuning run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing

import pytest
from support.fake_runner import FakeRunner, by_width, tiled
from support.sample_records import SQUARE
from support.waiting import HANG_S

from autotune.errors import RunnerError
from autotune.families import registry
from autotune.families.config import Config
from autotune.runners.base import Candidate, Failure, Measurement, Runner
from autotune.tuning.evaluate import Trial
from autotune.tuning.pipeline import DevicePool, Ready

WIDTHS = range(8, 20)


def ready(config: Config) -> Ready:
    resources = registry.find(config.family).estimate(config, SQUARE)
    return config, Candidate(config, registry.plan(config, SQUARE), (), resources)


CANDIDATES = [ready(tiled(width)) for width in WIDTHS]
FAILED: Ready = tiled(4), Failure("compile", "no")


def measure(runner: Runner, candidate: Candidate) -> Trial:
    return Trial(candidate.config, runner.measure(candidate, None))


def always() -> bool:
    return True


def run_pool(
    runners: Sequence[FakeRunner],
    prepared: Iterable[Ready] = CANDIDATES,
    time_left: Callable[[], bool] = always,
    *,
    ahead: bool = True,
) -> list[Trial]:
    with closing(DevicePool(runners, measure, ahead=ahead)) as pool:
        return [*pool.trials(prepared, time_left)]


class VendorRunner(FakeRunner):
    """A runner whose baseline is ready after some trials and counts how often it is timed."""

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
    trials = run_pool(runners, ahead=ahead)
    configs = [config for config, _ in CANDIDATES]
    assert sorted(config for runner in runners for config in runner.measured) == configs
    assert sorted(trial.config for trial in trials) == configs


def test_all_devices_are_busy_at_once() -> None:
    # Each waits for the other: a device alone would fail.
    meeting = threading.Barrier(2)

    def meet(config: Config) -> Measurement:
        meeting.wait(HANG_S)
        return by_width(config)

    runners = [FakeRunner(meet), FakeRunner(meet)]
    run_pool(runners)
    assert [len(runner.measured) for runner in runners] == [6, 6]


def test_slow_device_gets_fewer_candidates() -> None:
    done = threading.Event()

    def slow(config: Config) -> Measurement:
        assert done.wait(HANG_S)
        return by_width(config)

    def prepared() -> Iterator[Ready]:
        yield from CANDIDATES
        done.set()

    runners = [FakeRunner(slow), FakeRunner()]
    run_pool(runners, prepared())
    assert [len(runner.measured) for runner in runners] == [1, len(CANDIDATES) - 1]


def test_next_candidate_is_prepared_during_a_measurement() -> None:
    prepared_more = threading.Event()

    def waits(config: Config) -> Measurement:
        assert prepared_more.wait(HANG_S)
        return by_width(config)

    def prepared() -> Iterator[Ready]:
        yield CANDIDATES[0]
        prepared_more.set()
        yield CANDIDATES[1]

    assert len(run_pool([FakeRunner(waits)], prepared())) == 2


def test_without_ahead_next_proposal_waits_for_the_trial() -> None:
    finished: set[Config] = set()
    seen: list[int] = []

    def prepared() -> Iterator[Ready]:
        for candidate in CANDIDATES:
            seen.append(len(finished))
            yield candidate

    with closing(DevicePool([FakeRunner()], measure, ahead=False)) as pool:
        for trial in pool.trials(prepared(), always):
            finished.add(trial.config)
    assert seen == [*range(len(CANDIDATES))]


def test_failed_candidate_needs_no_device() -> None:
    release = threading.Event()

    def waits(config: Config) -> Measurement:
        assert release.wait(HANG_S)
        return by_width(config)

    with closing(DevicePool([FakeRunner(waits)], measure, ahead=True)) as pool:
        trials = pool.trials([CANDIDATES[0], FAILED, CANDIDATES[1]], always)
        first = next(trials)  # while the device is busy
        release.set()
        assert (first.config, first.outcome) == FAILED
        assert [trial.config for trial in trials] == [tiled(8), tiled(9)]


def test_pool_ends_without_dropping_running_trials() -> None:
    runner = FakeRunner()
    trials = run_pool([runner], time_left=lambda: len(runner.measured) < 3)
    assert [trial.config for trial in trials] == runner.measured
    assert len(trials) == 3


def test_every_failure_on_the_device_is_a_trial() -> None:
    trials = run_pool([FakeRunner(lambda _: Failure("launch", "no"))])
    assert len(trials) == len(CANDIDATES)


def test_broken_runner_ends_the_run() -> None:
    def breaks(config: Config) -> Measurement:
        raise RunnerError(f"lost at {config}")

    with pytest.raises(RunnerError, match="lost at tiled"):
        run_pool([FakeRunner(breaks)])


def test_close_waits_for_running_trials() -> None:
    ended: list[Config] = []

    def slow(config: Config) -> Measurement:
        time.sleep(0.05)
        ended.append(config)
        return by_width(config)

    with closing(DevicePool([FakeRunner(slow)], measure, ahead=True)) as pool:
        trials = pool.trials([CANDIDATES[0], FAILED, *CANDIDATES[1:]], always)
        with closing(trials):  # type: ignore[type-var]
            next(trials)
    assert ended == [tiled(8)]


def test_baseline_is_timed_once_it_is_ready() -> None:
    runner = VendorRunner(after=3)
    with closing(DevicePool([runner], measure, ahead=True)) as pool:
        timed = [pool.baseline is not None for _ in pool.trials(CANDIDATES, always)]
    assert timed.index(True) in (2, 3, 4)
    assert (runner.timed, pool.baseline) == (1, Measurement(90.0))


def test_only_the_first_device_times_the_baseline() -> None:
    runners = [VendorRunner(after=0), VendorRunner(after=0)]
    run_pool(runners)
    assert [runner.timed for runner in runners] == [1, 0]


def test_baseline_that_is_never_ready_is_not_awaited() -> None:
    with closing(DevicePool([VendorRunner(after=99)], measure, ahead=True)) as pool:
        assert len([*pool.trials(CANDIDATES, always)]) == len(CANDIDATES)
        assert pool.baseline is None


def test_busy_time_is_the_sum_of_all_devices() -> None:
    def slow(config: Config) -> Measurement:
        time.sleep(0.02)
        return by_width(config)

    runners = [FakeRunner(slow), FakeRunner(slow)]
    with closing(DevicePool(runners, measure, ahead=True)) as pool:
        began = time.monotonic()
        list(pool.trials(CANDIDATES, always))
        took = time.monotonic() - began
    assert 12 * 0.02 <= pool.busy_s <= 2 * took
