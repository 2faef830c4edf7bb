"""The number of runs a measurement takes, on a device that only advances a clock."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from statistics import median
from typing import Any

import pytest
from support.clock_session import ClockSession

from autotune.measure import timing
from autotune.measure.objective import COLD, HOT, BestTimes, Objective
from autotune.measure.session import Run
from autotune.measure.timing import HOST_US, LIBRARY_US, Samples, Timer, WarmRun

FLUSH_US = 40.0
LAUNCH_US = 2.0


class Clock(ClockSession):
    """A session that notes whether L2 was flushed."""

    def __init__(self) -> None:
        super().__init__(l2_bytes=50 * 2**20)
        self.flushed = False

    def fill(self, *_: Any) -> None:
        self.now += FLUSH_US
        self.flushed = True


class Counting(Timer):
    """A timer whose graphs are consecutive runs after a gap."""

    @contextmanager
    def replayable(self, run: Run, runs: int) -> Iterator[Run]:
        def replay() -> None:
            self._session.now += LAUNCH_US  # type: ignore[attr-defined]
            for _ in range(runs):
                run()

        yield replay


class Kernel:
    """Takes `time_us`, with new noise every 0.3 ms, and counts its runs."""

    def __init__(self, clock: Clock, time_us: float, noise: float = 0.0) -> None:
        self._clock, self._time_us, self._noise = clock, time_us, noise
        self.runs = 0

    def __call__(self) -> None:
        slower = self._noise * Random(int(self._clock.now / 300)).random()
        self._clock.now += self._time_us * (1 + slower)
        self.runs += 1

    def warm(self) -> WarmRun:
        """A run as after verification: launched on an idle device, operands not in L2."""
        return WarmRun(self, self._time_us + 25.0)


def timed(
    time_us: float, best_us: float | None, objective: Objective = HOT, noise: float = 0.0
) -> tuple[Samples, int, float]:
    """The samples, the number of runs, and milliseconds of device time.

    `best_us` is the best time, hot and cold alike.
    """
    clock = Clock()
    best = None if best_us is None else BestTimes(best_us, best_us)
    timer = Counting(clock)  # type: ignore[arg-type]
    kernel, start = Kernel(clock, time_us, noise), clock.now
    samples = timer.time(kernel.warm(), best, objective)
    return samples, kernel.runs, (clock.now - start) / 1e3


@pytest.mark.parametrize(("time_us", "best_us"), [(21_000, 19_000), (2_600, 2_200), (400, 280)])
def test_long_slower_run_is_not_repeated(time_us: float, best_us: float) -> None:
    samples, runs, _ = timed(time_us, best_us)
    assert (len(samples.hot), samples.cold, runs) == (1, (), 0)


def test_long_close_run_takes_few_runs() -> None:
    samples, runs, _ = timed(21_000, 20_500)
    assert (len(samples.hot), len(samples.cold), runs) == (3, 1, 4)


@pytest.mark.parametrize("time_us", [1.5, 5.0, 50.0, 150.0])
def test_short_slower_run_takes_two_milliseconds(time_us: float) -> None:
    samples, _, milliseconds = timed(time_us, time_us / 1.5)
    assert (len(samples.hot), samples.cold, milliseconds < 2) == (3, (), True)


@pytest.mark.parametrize("time_us", [5.0, 50.0, 250.0])
def test_slightly_slower_run_is_not_timed_cold(time_us: float) -> None:
    samples, _, milliseconds = timed(time_us, time_us / 1.2)
    assert (len(samples.hot), samples.cold, milliseconds < 5) == (3, (), True)


@pytest.mark.parametrize("time_us", [1.5, 5.0, 50.0, 250.0, 2_600.0])
def test_close_run_is_timed_within_milliseconds(time_us: float) -> None:
    samples, _, milliseconds = timed(time_us, time_us)
    assert (len(samples.hot) >= 3, len(samples.cold) >= 1, milliseconds < 18) == (True, True, True)


@pytest.mark.parametrize("time_us", [5.0, 50.0, 150.0])
def test_steady_run_takes_fewer_samples(time_us: float) -> None:
    steady, noisy = (timed(time_us, time_us, noise=noise)[0] for noise in (0.0, 0.1))
    assert (len(steady.hot), len(noisy.hot) >= 16) == (8, True)


@pytest.mark.parametrize("time_us", [5.0, 50.0, 250.0])
def test_objective_cold_takes_more_cold_samples(time_us: float) -> None:
    samples, _, milliseconds = timed(time_us, time_us, COLD)
    assert (len(samples.hot), len(samples.cold), milliseconds < 10) == (3, 15, True)


def test_long_close_run_takes_few_cold_samples() -> None:
    samples, *_ = timed(21_000, 20_500, COLD)
    assert (len(samples.hot), len(samples.cold)) == (3, 3)


@pytest.mark.parametrize("time_us", [5.0, 50.0, 250.0])
def test_run_hot_slower_than_best_cold_is_not_timed_cold(time_us: float) -> None:
    samples, *_ = timed(time_us, time_us / 1.2, COLD)
    assert (len(samples.hot), samples.cold) == (3, ())


class CacheBound(Kernel):
    """Takes twice as long after a flush."""

    def __call__(self) -> None:
        if self._clock.flushed:
            self._clock.now += self._time_us
        self._clock.flushed = False
        super().__call__()


def test_run_slower_only_cold_takes_few_cold_samples() -> None:
    clock = Clock()
    timer = Counting(clock)  # type: ignore[arg-type]
    samples = timer.time(CacheBound(clock, 50.0).warm(), BestTimes(60.0, 60.0), COLD)
    assert samples.cold == (100.0,) * 3


@pytest.mark.parametrize("time_us", [5.0, 50.0, 250.0])
def test_run_that_could_win_cold_is_timed_cold(time_us: float) -> None:
    clock = Clock()
    timer = Counting(clock)  # type: ignore[arg-type]
    kernel, start = CacheBound(clock, time_us), clock.now
    samples = timer.time(kernel.warm(), BestTimes(time_us / 2, 1.1 * time_us))
    milliseconds = (clock.now - start) / 1e3
    assert samples.cold == pytest.approx([2 * time_us] * 5)
    assert (len(samples.hot), milliseconds < 5) == (3, True)


@pytest.mark.parametrize("time_us", [1.5, 50.0, 2_600.0])
def test_run_hot_slower_than_both_bests_is_not_timed_cold(time_us: float) -> None:
    clock = Clock()
    timer = Counting(clock)  # type: ignore[arg-type]
    best = BestTimes(time_us / 2, time_us / 1.01)
    assert timer.time(CacheBound(clock, time_us).warm(), best).cold == ()


@pytest.mark.parametrize("time_us", [5.0, 50.0, 250.0, 2_600.0])
def test_gap_between_graphs_is_negligible(time_us: float) -> None:
    samples, *_ = timed(time_us, None)
    assert sorted(samples.hot)[len(samples.hot) // 2] == pytest.approx(time_us, rel=0.01)


@pytest.mark.parametrize(("host_us", "samples"), [(HOST_US, (3000.0,)), (LIBRARY_US, (24.0,) * 3)])
def test_time_of_the_host_refuses_no_library(host_us: float, samples: tuple[float, ...]) -> None:
    timer = Counting(clock := Clock())  # type: ignore[arg-type]
    loading = WarmRun(Kernel(clock, 24.0), 3000.0, host_us)
    assert timer.time(loading, BestTimes(20.0, 20.0)).hot == pytest.approx(samples, rel=0.01)


def test_delayed_first_run_is_timed_again() -> None:
    clock = Clock()
    timer = Counting(clock)  # type: ignore[arg-type]
    kernel = Kernel(clock, 5.0)
    delayed = WarmRun(kernel, 500.0)
    for samples in (timer.time(delayed, None), *timer.interleave([delayed, kernel.warm()])):
        assert median(samples.hot) == pytest.approx(5.0, rel=0.01)
    assert kernel.runs > 100  # in graphs


def test_run_that_the_host_delays_again_is_timed_in_graphs() -> None:
    clock = Clock()
    timer = Counting(clock)  # type: ignore[arg-type]
    kernel, delays = Kernel(clock, 5.0), [400.0]

    def run() -> None:
        clock.now += delays.pop() if delays else 0.0
        kernel()

    (samples,) = timer.interleave([WarmRun(run, 500.0)])
    assert median(samples.hot) == pytest.approx(5.0, rel=0.01)
    assert kernel.runs > 100


def test_interleaved_runs_reverse_their_order_each_round() -> None:
    clock = Clock()
    timer = Counting(clock)  # type: ignore[arg-type]
    order: list[str] = []

    def named(name: str, time_us: float) -> WarmRun:
        def run() -> None:
            order.append(name)
            clock.now += time_us

        return WarmRun(run, time_us)

    timer.interleave([named("a", 1_000.0), named("b", 2_000.0)])
    assert "".join(order).startswith("ab" * 2 + "abbaabba")


def test_interleaved_times_belong_to_their_runs() -> None:
    clock = Clock()
    timer = Counting(clock)  # type: ignore[arg-type]
    kernels = [Kernel(clock, time_us) for time_us in (5.0, 60.0, 2_600.0)]
    samples = timer.interleave([kernel.warm() for kernel in kernels])
    for kernel, times in zip(kernels, samples, strict=True):
        assert min(len(times.hot), len(times.cold)) >= 5
        assert times.hot[0] == pytest.approx(kernel._time_us, rel=0.01)
        assert times.cold[0] == kernel._time_us


def test_interleaved_runs_take_fewer_rounds_near_a_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock()
    monkeypatch.setattr(timing, "monotonic", lambda: clock.now / 1e6)
    timer = Counting(clock)  # type: ignore[arg-type]
    kernels = [Kernel(clock, 20_000.0) for _ in range(5)]
    rounds = []
    for seconds in (math.inf, 1.0, 0.1):
        timer.deadline = clock.now / 1e6 + seconds
        samples = timer.interleave([kernel.warm() for kernel in kernels])
        rounds.append((len(samples[0].hot), len(samples[0].cold)))
    assert rounds == [(19, 9), (5, 3), (2, 2)]


def test_drift_of_the_clock_does_not_decide_the_final_round() -> None:
    clock = Clock()
    timer = Counting(clock)  # type: ignore[arg-type]
    begun = clock.now

    def slowing(time_us: float) -> WarmRun:
        def run() -> None:
            clock.now += time_us * (1 + (clock.now - begun) / 1e6)

        return WarmRun(run, time_us)

    first, second = timer.interleave([slowing(1_000.0), slowing(1_010.0)])
    assert median(second.hot) / median(first.hot) == pytest.approx(1.01, rel=1e-3)
    assert max(first.hot) / min(first.hot) < 1.01  # the clock falls by 5 %


class SlowHost(Clock):
    """A session whose host falls behind the device; `host` is its clock in microseconds."""

    host = 0.0

    def launch(self, host_us: float, device_us: float) -> None:
        self.host += host_us
        self.now = max(self.now, self.host) + device_us

    def fill(self, *_: Any) -> None:
        self.launch(3.0, FLUSH_US)

    def synchronize(self) -> None:
        self.host = max(self.host, self.now)


@pytest.mark.parametrize("host_us", [5.0, 60.0, 150.0])
def test_cold_time_leaves_out_the_launch(host_us: float, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SlowHost()
    monkeypatch.setattr(timing, "perf_counter", lambda: clock.host / 1e6)
    timer = Counting(clock)  # type: ignore[arg-type]
    warm = WarmRun(lambda: clock.launch(host_us, 8.0), 8.0 + host_us)
    for samples in (timer.time(warm, None, COLD), *timer.interleave([warm])):
        assert median(samples.cold) == 8.0
