"""Energy of runs: launched back to back for a second, between movements of the board's counter.

NVML's counter (`nvmlDeviceGetTotalEnergyConsumption`) has a resolution of a millijoule, but moves
only every 20 to 100 ms (PETSc's manual, `PetscLogGpuEnergyMeter`). A window therefore begins and
ends where the counter moves, while the GPU is busy. Its error is then the delay until the host sees
the movement: a batch of runs, 2 ms of 500. In a virtual machine NVML may take 4 ms to answer; a
batch is long enough that the GPU has work meanwhile.

Kernel Tuner's `NVMLObserver` likewise repeats a kernel for a second, and integrates samples of the
power. Here the second is two windows of half a second: all runs take turns, and the second round
has the reverse order, so that a board that gets warmer favours none. Before each window the run
goes on for a quarter of a second, in which clock and power follow.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter

from autotune.errors import RunnerError
from autotune.gpu.nvml import EnergyCounter
from autotune.gpu.session import Mark, Run, Session
from autotune.gpu.timing import Timer, WarmRun, graph_runs
from autotune.runners.energy import Energy

ROUNDS, WINDOW_S, SETTLING_S = 2, 0.5, 0.25
BATCH_US = 2_000.0
LOOKS, LOOKS_PER_BATCH = 5, 2
"""Looks at the counter that are timed; looks that fit into the shortest batch."""
AHEAD = 2
"""Batches on the stream, so that the GPU is busy while the host looks at the counter."""
STILL_S = 5.0
"""Longest time without a movement of the counter."""


@dataclass(frozen=True)
class Reading:
    """A movement of the counter: when, to what, and the runs that had ended."""

    seconds: float
    millijoules: int
    runs: int


@dataclass(frozen=True)
class Window:
    """Measured over a window: joules a run, watts, and the clock in MHz."""

    joules: float
    power_w: float
    clock_mhz: float


class EnergyMeter:
    """Measures the energy of runs on a session's stream.

    Args:
        session: where the runs are.
        timer: captures them as graphs.
        counter: the GPU's counter.
        now: the time in seconds.
    """

    def __init__(
        self,
        session: Session,
        timer: Timer,
        counter: EnergyCounter,
        now: Callable[[], float] = perf_counter,
    ) -> None:
        self._session, self._timer, self._counter, self._now = session, timer, counter, now

    def measure(self, warm_runs: Sequence[WarmRun]) -> list[Energy]:
        """The energy of each run.

        Raises:
            RunnerError: if the counter fails or stands still.
        """
        batch_us = max(BATCH_US, LOOKS_PER_BATCH * self._look_us())
        windows: list[list[Window]] = [[] for _ in warm_runs]
        order = list(range(len(warm_runs)))
        for _ in range(ROUNDS):
            for place in order:
                windows[place].append(self._window(warm_runs[place], batch_us))
            order.reverse()
        return [_energy(shown) for shown in windows]

    def _window(self, warm: WarmRun, batch_us: float) -> Window:
        each = statistics.median(self._timer.probed(warm))
        size = graph_runs(each)
        repeats = max(1, round(batch_us / (each * size)))
        with self._timer.replayable(warm.run, size) as replay:
            load = _Load(self._session, replay, repeats, size)
            settled = self._now() + SETTLING_S
            while self._now() < settled:
                load.step()
            first = last = self._moved(load)
            clocks: list[float] = []
            while last.seconds - first.seconds < WINDOW_S:
                last = self._moved(load)
                clocks.append(self._counter.clock_mhz())
            self._session.synchronize()
        joules = (last.millijoules - first.millijoules) / 1e3
        return Window(
            joules / (last.runs - first.runs),
            joules / (last.seconds - first.seconds),
            statistics.fmean(clocks),
        )

    def _look_us(self) -> float:
        """Microseconds that a look at the counter takes."""
        looks = []
        for _ in range(LOOKS):
            began = self._now()
            self._counter.millijoules()
            looks.append(self._now() - began)
        return 1e6 * statistics.median(looks)

    def _moved(self, load: _Load) -> Reading:
        """The next movement of the counter, under load."""
        before, began = self._counter.millijoules(), self._now()
        while True:
            load.step()
            shown, now = self._counter.millijoules(), self._now()
            if shown > before:
                return Reading(now, shown, load.ended)
            if now - began > STILL_S:
                raise RunnerError(
                    f"NVML's counter of energy stands still at {shown / 1e3:,.0f} J for "
                    f"{now - began:.0f} s of work; minimise a time instead"
                )


class _Load:
    """Batches of runs, enqueued ahead of those that the GPU is at.

    Attributes:
        ended: the runs that have ended.
    """

    def __init__(self, session: Session, replay: Run, repeats: int, size: int) -> None:
        self._session, self._replay = session, replay
        self._repeats, self._runs = repeats, repeats * size
        self._marks: deque[Mark] = deque()
        self.ended = 0

    def step(self) -> None:
        """Enqueues a batch, and waits until no more than `AHEAD` are under way."""
        for _ in range(self._repeats):
            self._replay()
        self._marks.append(self._session.mark())
        while len(self._marks) > AHEAD:
            self._marks.popleft().synchronize()
            self.ended += self._runs


def _energy(windows: Sequence[Window]) -> Energy:
    joules = [window.joules for window in windows]
    return Energy(
        joules=statistics.fmean(joules),
        spread_j=(max(joules) - min(joules)) / 2,
        power_w=statistics.fmean(window.power_w for window in windows),
        clock_mhz=statistics.fmean(window.clock_mhz for window in windows),
    )
