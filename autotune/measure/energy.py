"""The energy of runs, the seam of the objective `energy`: NVML's counter and its meter.

The meter launches runs back to back for a second, between movements of the board's counter.
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
from typing import Any

from autotune.errors import MissingError, RunnerError
from autotune.measure.measurement import Energy
from autotune.measure.session import Mark, Run, Session
from autotune.measure.timing import Timer, WarmRun, graph_runs

ROUNDS, WINDOW_S, SETTLING_S = 2, 0.5, 0.25
BATCH_US = 2_000.0
LOOKS, LOOKS_PER_BATCH = 5, 2
"""Looks at the counter that are timed; looks that fit into the shortest batch."""
AHEAD = 2
"""Batches on the stream, so that the GPU is busy while the host looks at the counter."""
STILL_S = 5.0
"""Longest time without a movement of the counter."""


class NvmlCounter:
    """The counter that NVML has of a GPU."""

    def __init__(self, nvml: Any, handle: Any) -> None:
        self._nvml, self._handle = nvml, handle

    def millijoules(self) -> int:
        """The energy of the board since its driver was loaded; it moves every 20 to 100 ms.

        Raises:
            RunnerError: if it cannot be read.
        """
        try:
            return int(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))
        except self._nvml.NVMLError as error:
            raise RunnerError(f"NVML no longer states the energy of the GPU: {error}") from error

    def clock_mhz(self) -> float:
        """The clock of the SMs now; raises as `millijoules`."""
        try:
            return float(self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM))
        except self._nvml.NVMLError as error:
            raise RunnerError(f"NVML does not state the clock of the GPU: {error}") from error


def open_counter(bus: str) -> NvmlCounter:
    """The counter of the GPU at a PCI address, such as `0000:3b:00.0`.

    Raises:
        MissingError: if NVML or its Python package is missing, the GPU has no such counter, or is
            partitioned, so that the counter is of several programs.
    """
    try:
        import pynvml
    except ModuleNotFoundError as error:
        raise MissingError(
            f'energies need the Python package of NVML ({error}); run `pip install "tile-autotune'
            '[energy]"`'
        ) from error
    try:
        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByPciBusId(bus)
    except pynvml.NVMLError as error:
        raise MissingError(
            f"NVML does not show the GPU at {bus}: {error}; libnvidia-ml.so.1 comes with NVIDIA's "
            "driver, and a container needs the driver capability `utility`"
        ) from error
    if _partitioned(pynvml, handle):
        raise MissingError(
            f"the GPU at {bus} is partitioned (MIG), and its counter of energy is of all parts; "
            "minimise a time, or measure on a whole GPU"
        )
    try:
        pynvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except pynvml.NVMLError as error:
        raise MissingError(
            f"NVML has no counter of energy for the GPU at {bus}: {error}; GPUs since compute "
            "capability 7.0 have it, virtual GPUs may not"
        ) from error
    return NvmlCounter(pynvml, handle)


def _partitioned(nvml: Any, handle: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except nvml.NVMLError:
        return False  # the GPU cannot be


@dataclass(frozen=True)
class Reading:
    """A movement of the counter: when, to what, and the runs that had ended."""

    seconds: float
    millijoules: int
    runs: int


class EnergyMeter:
    """Measures the energy of runs on a session's stream.

    Args:
        session: session of the runs.
        timer: captures them as graphs.
        counter: the GPU's counter.
        now: the time in seconds.
    """

    def __init__(
        self,
        session: Session,
        timer: Timer,
        counter: NvmlCounter,
        now: Callable[[], float] = perf_counter,
    ) -> None:
        self._session, self._timer, self._counter, self._now = session, timer, counter, now

    def measure(self, warm_runs: Sequence[WarmRun]) -> list[Energy]:
        """The energy of each run.

        Raises:
            RunnerError: if the counter fails or stands still.
        """
        batch_us = max(BATCH_US, LOOKS_PER_BATCH * self._look_us())
        windows: list[list[Energy]] = [[] for _ in warm_runs]
        order = list(range(len(warm_runs)))
        for _ in range(ROUNDS):
            for place in order:
                windows[place].append(self._window(warm_runs[place], batch_us))
            order.reverse()
        return [_mean(shown) for shown in windows]

    def _window(self, warm: WarmRun, batch_us: float) -> Energy:
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
        return Energy(
            joules=joules / (last.runs - first.runs),
            spread_j=0.0,
            power_w=joules / (last.seconds - first.seconds),
            clock_mhz=statistics.fmean(clocks),
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


def _mean(windows: Sequence[Energy]) -> Energy:
    joules = [window.joules for window in windows]
    return Energy(
        joules=statistics.fmean(joules),
        spread_j=(max(joules) - min(joules)) / 2,
        power_w=statistics.fmean(window.power_w for window in windows),
        clock_mhz=statistics.fmean(window.clock_mhz for window in windows),
    )
