"""A fake GPU for user kernels: device memory is host memory, a kernel is a Python function."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.measure import bench
from autotune.measure.objective import HOT, BestTimes, Objective
from autotune.measure.runner import Candidate
from autotune.measure.session import Run
from autotune.measure.timing import Samples, WarmRun
from autotune.measure.worker import PendingBench
from autotune.user_kernels.bench import KernelBench
from autotune.user_kernels.workload import Workload
from support.sample_records import H100

Kernel = Callable[["Pointers"], None]


F4 = np.float32


class Error(Exception):
    """The error class of the fake session."""


class Pointers:
    """The array arguments of a kernel, with the memory around them."""

    def __init__(self, values: Mapping[str, int | float], floats: int) -> None:
        self._values, self._floats = values, floats

    def __call__(self, place: int, before: int = 0, behind: int = 0) -> NDArray[np.float32]:
        """The floats of an argument, with `before` and `behind` further ones around it."""
        return self.at(f"argument {place}", self._floats, before, behind)

    def at(self, word: str, floats: int, before: int = 0, behind: int = 0) -> NDArray[np.float32]:
        """The floats at the address that a word stands for, and further ones around them."""
        address = int(self._values[word]) - 4 * before
        memory = (ctypes.c_float * (before + floats + behind)).from_address(address)
        return np.ctypeslib.as_array(memory)


class Event:
    """An event; every run between two events counts as 250 microseconds."""

    def __init__(self, runs: int) -> None:
        self.runs = runs

    def time_till(self, end: Event) -> float:
        return float(end.runs - self.runs) * 0.25


class FakeSession:
    """A session that runs the kernel a configuration names once its stream is synchronised.

    Attributes:
        kernels: the kernels by a configuration's `act`, or its THREADS.
        log: runs and timings, in order.
    """

    device = H100
    driver = "13.0"
    stream = 0
    Error = Error

    def __init__(self, kernels: Mapping[str, Kernel], floats: int, free: int) -> None:
        self.kernels, self._floats, self._free = kernels, floats, free
        self.log: list[str] = []
        self.lost = False
        self._queue: list[Callable[[], object]] = []
        self._runs = 0

    def allocate(self, size: int) -> Any:
        return Memory(np.zeros(size, np.uint8))

    def free_bytes(self) -> int:
        return self._free

    def bind(self, candidate: Candidate) -> Callable[[Mapping[str, int | float]], Run]:
        values = candidate.config.values
        act = str(values.get("act", values.get("THREADS")))
        if act == "refused":
            raise Error("invalid argument")

        def bound(values: Mapping[str, int | float]) -> Run:
            pointers = Pointers(values, self._floats)

            def run() -> None:
                self.log.append(f"run {act}")
                self._runs += 1
                self._queue.append(lambda: self.kernels[act](pointers))

            return run

        return bound

    def mark(self) -> Event:
        return Event(self._runs)

    def synchronize(self) -> None:
        while self._queue:
            self._queue.pop(0)()

    def broken(self) -> bool:
        return self.lost

    def fill(self, address: int, value: int, count: int, width: int = 4) -> None:
        self._queue.append(lambda: ctypes.memset(address, value, width * count))

    def upload(self, address: int, array: NDArray[np.uint8]) -> None:
        self._queue.append(lambda: ctypes.memmove(address, array.ctypes.data, array.nbytes))

    def download(self, array: NDArray[np.uint8], address: int) -> None:
        self.synchronize()
        ctypes.memmove(array.ctypes.data, address, array.nbytes)


class Memory:
    """An allocation, convertible to its address like PyCUDA's."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self._memory = memory

    def __int__(self) -> int:
        return int(self._memory.ctypes.data)


class FakeTimer:
    def __init__(self, session: FakeSession) -> None:
        self._log = session.log

    def time(self, warm: WarmRun, best: BestTimes | None, objective: Objective = HOT) -> Samples:
        del objective
        self._log.append(f"time {best and best.hot_us}")
        return Samples((warm.first_us,))

    def interleave(self, warm_runs: list[WarmRun]) -> list[Samples]:
        self._log.append(f"interleave {len(warm_runs)}")
        return [Samples((warm.first_us,), (9.0,)) for warm in warm_runs]


def right(at: Pointers) -> None:
    y, x = at(0), at(1)
    y[:] = F4(2.5) * x + y


def opened_saxpy(work: Workload, index: int) -> PendingBench:
    """Opens a worker's bench, on which 64 threads are wrong and 128 end the process."""
    del index

    def exits(_: Pointers) -> None:
        os._exit(9)

    def finish() -> KernelBench:
        bench.Timer = FakeTimer  # type: ignore[assignment, attr-defined]
        kernels: dict[str, Kernel] = {"32": right, "64": lambda _: None, "128": exits, "256": right}
        session: Any = FakeSession(kernels, work.buffers[0].before.size, 2**30)
        return KernelBench(session, work)

    return PendingBench(H100, "13.0", finish)
