"""Timing of runs: CUDA graphs of many runs between events on the session's stream."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from time import monotonic, perf_counter
from typing import Any

from autotune.measure.measurement import Estimate, without_drift
from autotune.measure.objective import HOT, BestTimes, Objective
from autotune.measure.session import Run, Session

GRAPH_US = 300.0  # makes the gap between two graphs, 1 to 2 us, negligible
GRAPH_RUNS = 100  # capturing a launch costs the host 8 us
PROBE_US, PROBE_RUNS = 250.0, (2, 20)
DELAY_US = 10_000.0  # the host may delay a run by less
ALLOCATING_US = 1_000.0  # host time of a library that allocates, at most

# A run slower than this factor times the best cannot win, and a few samples are enough for it. The
# second factor is for graphs shorter than `GRAPH_US`, which are less exact.
CLOSE, SLOWER = 1.1, 1.3
HOPELESS = 2.0  # beyond this factor a run need not even be repeated
QUICK_SAMPLES = 3
HOST_US = 30.0  # host time to launch a run on an idle device, at most
LIBRARY_US = DELAY_US  # host time to call a library, which loads a kernel when it is first called
# L2 is flushed for so many times as long as a launch takes the host, by at most so many flushes.
AHEAD, MOST_FLUSHES = 2.0, 10
LAUNCH_US = 200.0  # the host gets ahead of runs that take longer

# Fewest and most samples, and the device time that decides in between.
SAMPLES, SAMPLING_US = (3, 20), 6_000.0
COLD_SAMPLES, COLD_US = (1, 5), 6_000.0
# If the cold time decides.
DECIDING_SAMPLES, DECIDING_US = (3, 15), 12_000.0
# Half the interquartile range, as a share of the median, at which no more hot samples are taken:
# for normal noise the standard error of the median of eight is then 0.2 %.
STEADY, STEADY_SAMPLES = 0.003, 8
MORE_SAMPLES = 5  # at once, so that the one untimed replay costs little
ROUNDS, ROUNDS_US = (5, 25), 2_000_000.0
LEAST_ROUNDS = 2  # if a deadline is near
HOT_SHARE = 2 / 3  # of the time that is left
COLD_ROUNDS_US = 1_000_000.0


@dataclass(frozen=True)
class Samples:
    """Hot and cold times of a run in microseconds; `cold` is empty if not measured."""

    hot: tuple[float, ...]
    cold: tuple[float, ...] = ()


@dataclass(frozen=True)
class WarmRun:
    """A run that has run before, the time it took then, and the host's part in it at most."""

    run: Run
    first_us: float
    host_us: float = HOST_US


class Timer:
    """Times runs on a session's stream.

    Hot: a run of `GRAPH_US` or longer is timed alone, a shorter one as replays of a graph of
    several runs that take that long together; inputs may sit in L2. Cold: single runs launched from
    the host, each after writes of twice the size of L2 that keep the device busy while the host
    launches the run; the overhead of the events, about a microsecond, is included.

    Attributes:
        deadline: when interleaved runs have to end, by `time.monotonic`.
    """

    deadline = math.inf

    def __init__(self, session: Session) -> None:
        """Allocates the memory that is written to flush L2."""
        self._session = session
        self._flush_bytes = 2 * session.device.l2_bytes
        self._flush_memory = session.allocate(self._flush_bytes)
        self._flush_us = self._rounds([self._flush], 3)[0][-1]

    def time(self, warm: WarmRun, best: BestTimes | None, objective: Objective = HOT) -> Samples:
        """Samples of a run: only a few hot ones if it clearly can win neither hot nor cold.

        A run whose hot time already exceeds the best cold time cannot win cold. If the first time,
        less launch and L2 misses, is already too long, that time is the only sample.
        """
        run, first = warm.run, warm.first_us
        best = best or BestTimes()
        deciding_us = best.of(objective)
        if first - warm.host_us - self._flush_us > max(CLOSE * deciding_us, best.cold_us):
            return Samples((first,))
        hot = self.probed(warm)
        each = statistics.median(hot)
        # Only a time that may win has to be exact.
        if each <= SLOWER * deciding_us:
            hot = self._hot(run, graph_runs(each), CLOSE * deciding_us, objective)
            each = statistics.median(hot)
        if each > max(CLOSE * deciding_us, best.cold_us):
            return Samples(tuple(hot))
        flushes = self._flushes(run, each)
        if objective.flushed:
            return Samples(tuple(hot), tuple(self._deciding(run, flushes, CLOSE * deciding_us)))
        colds = _within(COLD_SAMPLES, COLD_US / (each + self._flush_us))
        return Samples(tuple(hot), tuple(self._cold(run, flushes, colds)))

    def interleave(self, warm_runs: Sequence[WarmRun]) -> list[Samples]:
        """Samples of several runs that take turns; the order reverses every round.

        They are freed of what the runs of a round share, such as the drift of the clock.
        """
        times = [statistics.median(self.probed(warm)) for warm in warm_runs]
        sizes = [graph_runs(each) for each in times]
        a_round = sum(each * runs for each, runs in zip(times, sizes, strict=True))
        a_cold_round = sum(each + self._flush_us for each in times)
        runs = [warm.run for warm in warm_runs]
        with ExitStack() as graphs:
            replays = [
                graphs.enter_context(self.replayable(run, size))
                for run, size in zip(runs, sizes, strict=True)
            ]
            for replay in replays:
                replay()
            rounds = self._fitting(ROUNDS_US, a_round, HOT_SHARE)
            hot = self._rounds(replays, rounds)
        flushes = [*map(self._flushes, runs, times)]
        cold = self._rounds(runs, self._fitting(COLD_ROUNDS_US, a_cold_round), flushes)
        return [
            Samples(tuple(time / size for time in warm), tuple(after_flush))
            for warm, after_flush, size in zip(
                without_drift(hot), without_drift(cold), sizes, strict=True
            )
        ]

    def _fitting(self, most_us: float, round_us: float, share: float = 1.0) -> int:
        """Number of rounds in `most_us`, and in a share of the time that is left."""
        left_us = 1e6 * share * (self.deadline - monotonic())
        rounds = _within(ROUNDS, most_us / (round_us + 1))
        return max(LEAST_ROUNDS, int(min(rounds, left_us / (round_us + 1))))

    def probed(self, warm: WarmRun) -> list[float]:
        """A first estimate of a run's time; by a small graph if launching it takes as long."""
        first = warm.first_us
        if GRAPH_US <= first < DELAY_US:
            # Timed alone, a short run counts the host's time: some 50 us of a library, and hundreds
            # where it allocates.
            first = min(self._replayed(warm.run, 1, 2 if first < ALLOCATING_US else 1))
        if first >= GRAPH_US:
            return [first]
        runs = _within(PROBE_RUNS, PROBE_US / first + 1)
        with self.replayable(warm.run, runs) as replay:
            return self._replayed(replay, runs, QUICK_SAMPLES)

    def _hot(self, run: Run, runs: int, limit_us: float, objective: Objective) -> list[float]:
        """A few hot samples; more until they are steady, if hot decides and the limit is met."""
        with self.replayable(run, runs) as replay:
            hot = self._replayed(replay, runs, QUICK_SAMPLES)
            each = statistics.median(hot)
            if each > limit_us or objective.flushed:
                return hot
            most = _within(SAMPLES, SAMPLING_US / (each * runs))
            while len(hot) < most and not _steady(hot):
                hot += self._replayed(replay, runs, min(MORE_SAMPLES, most - len(hot)))
            return hot

    def _deciding(self, run: Run, flushes: int, limit_us: float) -> list[float]:
        """Cold samples: the fewest if beyond the limit, else as many as there is time for."""
        least, _ = DECIDING_SAMPLES
        cold = self._cold(run, flushes, least)
        each = statistics.median(cold)
        if each > limit_us:
            return cold
        count = _within(DECIDING_SAMPLES, DECIDING_US / (each + self._flush_us))
        return cold + self._cold(run, flushes, count - least)

    def _cold(self, run: Run, flushes: int, count: int) -> list[float]:
        return self._rounds([run], count, [flushes])[0]

    def _flushes(self, run: Run, hot_us: float) -> int:
        """Flushes of L2 before a run that outlast its launch: calling a library may take the host
        longer than a flush takes the device, and the run would include that time."""
        if hot_us >= LAUNCH_US:
            return 1
        self._session.synchronize()
        began = perf_counter()
        run()
        launch_us = 1e6 * (perf_counter() - began)
        return min(MOST_FLUSHES, 1 + int(AHEAD * launch_us / self._flush_us))

    def _replayed(self, replay: Run, runs: int, count: int) -> list[float]:
        if runs > 1:
            replay()  # keeps the device busy while the host gets ahead of it
        marks = [self._session.mark()]
        for _ in range(count):
            replay()
            marks.append(self._session.mark())
        marks[-1].synchronize()
        return [1e3 * start.time_till(end) / runs for start, end in pairwise(marks)]

    def _rounds(
        self, runs: Sequence[Run], rounds: int, flushes: Sequence[int] = ()
    ) -> list[list[float]]:
        """Microseconds of each run in each round, without the flushes of L2 before it."""
        marks: list[list[tuple[Any, Any]]] = [[] for _ in runs]
        order = list(range(len(runs)))
        for _ in range(rounds):
            for i in order:
                for _ in range(flushes[i] if flushes else 0):
                    self._flush()
                start = self._session.mark()
                runs[i]()
                marks[i].append((start, self._session.mark()))
            order.reverse()
        self._session.synchronize()
        return [[1e3 * start.time_till(end) for start, end in pairs] for pairs in marks]

    def _flush(self) -> None:
        self._session.fill(int(self._flush_memory), 0, self._flush_bytes, 1)

    @contextmanager
    def replayable(self, run: Run, runs: int) -> Iterator[Run]:
        """Captures `runs` runs as a graph, if more than one; through `cuda.bindings`."""
        if runs == 1:
            yield run
            return
        from cuda.bindings import driver

        checked = self._session.checked
        stream = driver.CUstream(self._session.stream)
        # Relaxed: a captured library may allocate memory meanwhile.
        mode = driver.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
        checked(driver.cuStreamBeginCapture(stream, mode))
        try:
            for _ in range(runs):
                run()
        finally:
            graph = checked(driver.cuStreamEndCapture(stream))
        executable = checked(driver.cuGraphInstantiate(graph, 0))
        try:
            yield lambda: checked(driver.cuGraphLaunch(executable, stream))
        finally:
            self._session.synchronize()
            checked(driver.cuGraphExecDestroy(executable))
            checked(driver.cuGraphDestroy(graph))


def _steady(samples: Sequence[float]) -> bool:
    if len(samples) < STEADY_SAMPLES:
        return False
    estimate = Estimate.of(tuple(samples))
    return estimate.spread <= STEADY * estimate.median


def hopeless_us(best: BestTimes | None, objective: Objective) -> float:
    """Microseconds of a first run, which may be delayed, beyond which it need not be repeated."""
    best = best or BestTimes()
    return max(HOPELESS * best.of(objective), best.cold_us) + DELAY_US


def graph_runs(each: float) -> int:
    """Number of runs of `each` microseconds in a graph."""
    return 1 if each >= GRAPH_US else _within((2, GRAPH_RUNS), GRAPH_US / each + 1)


def _within(limits: tuple[int, int], count: float) -> int:
    low, high = limits
    return max(low, min(high, int(count)))
