"""How long a run takes: CUDA graphs of many runs, timed by events on the session's stream."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from autotune.gpu.session import Run, Session, checked

GRAPH_US = 300.0  # so long that the gap between two graphs, 1 to 2 us, is lost in it
GRAPH_RUNS = 100  # capturing a launch costs the host 8 us
PROBE_RUNS = 10

QUICK_SAMPLES = 3
SLOWER = 1.3  # times the best: no more than the quick samples
HOPELESS, HOPELESS_US = 2.0, 1000.0  # times the best, and so long: one run says enough

# Least and most samples, and the device time that they may take in between.
SAMPLES, SAMPLING_US = (5, 40), 20_000.0
ROUNDS, ROUNDS_US = (5, 25), 2_000_000.0
COLD_SAMPLES = 5


@dataclass(frozen=True)
class Samples:
    """Times of one run in microseconds; `cold` is empty where it was not measured."""

    hot: tuple[float, ...]
    cold: tuple[float, ...] = ()


class Timer:
    """Times runs on a session's stream; each has run before, so that nothing is left to load.

    Hot: graph replays of several runs that take `GRAPH_US` together; inputs may sit in L2.
    Cold: single runs, each after a write of twice the size of L2, as launched from the host; what
    the events themselves take, about a microsecond, is part of it.
    """

    def __init__(self, session: Session) -> None:
        """Allocates the memory whose writing flushes L2."""
        self._session = session
        self._flush_bytes = 2 * session.device.l2_bytes
        self._flush_memory = session.allocate(self._flush_bytes)

    def time(self, run: Run, best_us: float | None) -> Samples:
        """Samples of a run: few of them once it is clearly slower than `best_us`."""
        first = self._timed([run])[0]
        if best_us and first > max(HOPELESS * best_us, HOPELESS_US):
            return Samples((first,))
        runs = self._graph_runs(run, first)
        with self._replayable(run, runs) as replay:
            quick = self._replayed(replay, runs, QUICK_SAMPLES)
            middle = statistics.median(quick)
            if best_us and middle > SLOWER * best_us:
                return Samples(tuple(quick))
            count = _within(SAMPLES, SAMPLING_US / (middle * runs))
            hot = quick + self._replayed(replay, runs, count - len(quick))
        return Samples(tuple(hot), tuple(self._rounds([run], COLD_SAMPLES, self._flush)[0]))

    def interleave(self, contestants: Sequence[Run]) -> list[Samples]:
        """Samples of several runs that take turns, in an order that alternates by round."""
        with ExitStack() as graphs:
            replays, sizes, per_round = [], [], 0.0
            for run in contestants:
                once = self._timed([run])[0]
                runs = self._graph_runs(run, once)
                sizes.append(runs)
                replays.append(graphs.enter_context(self._replayable(run, runs)))
                per_round += once * runs
            rounds = _within(ROUNDS, ROUNDS_US / max(per_round, 1.0))
            hot = self._rounds(replays, rounds, lambda: None)
        cold = self._rounds(contestants, COLD_SAMPLES, self._flush)
        return [
            Samples(tuple(time / runs for time in times), tuple(after_flush))
            for times, runs, after_flush in zip(hot, sizes, cold, strict=True)
        ]

    def _graph_runs(self, run: Run, first: float) -> int:
        """How many runs make a graph; `first`, a run from the host, is too long for short ones."""
        if first >= GRAPH_US:
            return 1
        with self._replayable(run, PROBE_RUNS) as replay:
            each = statistics.median(self._replayed(replay, PROBE_RUNS, QUICK_SAMPLES))
        return _within((1, GRAPH_RUNS), GRAPH_US / each + 1)

    def _replayed(self, replay: Run, runs: int, count: int) -> list[float]:
        replay()  # keeps the device busy while the host gets ahead of it
        return [time / runs for time in self._timed([replay] * count)]

    def _timed(self, steps: Sequence[Run]) -> list[float]:
        """Microseconds from the end of each step to the end of the next."""
        marks = [self._mark()]
        for step in steps:
            step()
            marks.append(self._mark())
        marks[-1].synchronize()
        return [1e3 * start.time_till(end) for start, end in pairwise(marks)]

    def _rounds(
        self, contestants: Sequence[Run], rounds: int, before: Callable[[], None]
    ) -> list[list[float]]:
        """Microseconds of each contestant in each round, `before` left out."""
        marks: list[list[tuple[Any, Any]]] = [[] for _ in contestants]
        order = list(range(len(contestants)))
        for contestant in contestants:
            contestant()
        for _ in range(rounds):
            for i in order:
                before()
                start = self._mark()
                contestants[i]()
                marks[i].append((start, self._mark()))
            order.reverse()
        self._session.synchronize()
        return [[1e3 * start.time_till(end) for start, end in pairs] for pairs in marks]

    def _mark(self) -> Any:
        return self._session.cuda.Event().record(self._session.stream)

    def _flush(self) -> None:
        self._session.cuda.memset_d8_async(
            int(self._flush_memory), 0, self._flush_bytes, self._session.stream
        )

    @contextmanager
    def _replayable(self, run: Run, runs: int) -> Iterator[Run]:
        """Captures `runs` runs as a graph; PyCUDA has no calls for that."""
        from cuda.bindings import driver

        stream = driver.CUstream(self._session.stream.handle)
        # Relaxed: a library that is captured may allocate memory meanwhile.
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


def _within(limits: tuple[int, int], count: float) -> int:
    low, high = limits
    return max(low, min(high, int(count)))
