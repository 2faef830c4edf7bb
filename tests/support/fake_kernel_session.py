"""A GPU for kernels of the user's: device memory is host memory, a kernel a Python function."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.gpu.benches import base
from autotune.gpu.benches.user_kernel import KernelBench
from autotune.gpu.session import Run
from autotune.gpu.timing import Contestant, Samples
from autotune.gpu.worker import Opening
from autotune.runners.base import Candidate, Objective
from autotune.user_kernels import Workload
from support.sample_records import H100

Kernel = Callable[["Pointers"], None]
F4 = np.float32


class Error(Exception):
    """PyCUDA's."""


class Pointers:
    """The arrays that a kernel gets, as bytes at their addresses and around them."""

    def __init__(self, values: Mapping[str, int | float], floats: int) -> None:
        self._values, self._floats = values, floats

    def __call__(self, place: int, before: int = 0, behind: int = 0) -> NDArray[np.float32]:
        """The floats of an argument, with so many of those before and behind it."""
        address = int(self._values[f"argument {place}"]) - 4 * before
        count = before + self._floats + behind
        memory = (ctypes.c_float * count).from_address(address)
        return np.ctypeslib.as_array(memory)


class Event:
    """Taken at a time that is the number of runs until then, in milliseconds."""

    def __init__(self, runs: int) -> None:
        self.runs = runs

    def time_till(self, other: Event) -> float:
        return float(other.runs - self.runs) * 0.25


class FakeSession:
    """Runs the kernel that a configuration names when its stream is waited for.

    Attributes:
        kernels: what the configurations' `act`, or their THREADS, stand for.
        log: what was done, in order.
    """

    device = H100
    driver = "13.0"
    stream = None

    def __init__(self, kernels: Mapping[str, Kernel], floats: int, free: int) -> None:
        self.kernels, self._floats, self._free = kernels, floats, free
        self.log: list[str] = []
        self.lost = False
        self._queue: list[Callable[[], object]] = []
        self._runs = 0
        self.cuda = SimpleNamespace(
            Error=Error, memcpy_htod_async=self._upload, memcpy_dtoh=self._download
        )

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

    def _upload(self, address: int, array: NDArray[np.uint8], _: object) -> None:
        self._queue.append(lambda: ctypes.memmove(address, array.ctypes.data, array.nbytes))

    def _download(self, array: NDArray[np.uint8], address: int) -> None:
        assert not self._queue, "a download that does not wait for the stream"
        ctypes.memmove(array.ctypes.data, address, array.nbytes)


class Memory:
    """An allocation; like PyCUDA's it is an address where an int is wanted."""

    def __init__(self, memory: NDArray[np.uint8]) -> None:
        self._memory = memory

    def __int__(self) -> int:
        return int(self._memory.ctypes.data)


class FakeTimer:
    def __init__(self, session: FakeSession) -> None:
        self._log = session.log

    def time(
        self, contestant: Contestant, best_us: float | None, objective: Objective = "hot"
    ) -> Samples:
        del objective
        self._log.append(f"time {best_us}")
        return Samples((contestant.first_us,))

    def interleave(self, contestants: list[Contestant]) -> list[Samples]:
        self._log.append(f"race {len(contestants)}")
        return [Samples((one.first_us,), (9.0,)) for one in contestants]


def right(at: Pointers) -> None:
    y, x = at(0), at(1)
    y[:] = F4(2.5) * x + y


def opened_saxpy(work: Workload, index: int) -> Opening:
    """The bench of a worker process. 64 threads compute something else, and 128 end the process."""
    del index

    def exits(_: Pointers) -> None:
        os._exit(9)

    def bench() -> KernelBench:
        base.Timer = FakeTimer  # type: ignore[assignment, attr-defined]
        kernels: dict[str, Kernel] = {"32": right, "64": lambda _: None, "128": exits, "256": right}
        session: Any = FakeSession(kernels, work.buffers[0].before.size, 2**30)
        return KernelBench(session, work)

    return Opening(H100, "13.0", bench)
