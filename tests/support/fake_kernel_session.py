"""A fake GPU for user kernels: device memory is host memory, a kernel is a Python function."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.cuda.textures import Texture
from autotune.families.plan import Template
from autotune.measure import bench
from autotune.measure.objective import HOT, BestTimes, Objective
from autotune.measure.runner import Candidate
from autotune.measure.session import Run, TextureObject
from autotune.measure.timing import Samples, WarmRun
from autotune.measure.verify_kernels import MOST_BLOCKS, THREADS
from autotune.measure.worker import PendingBench
from autotune.user_kernels import guarded_arrays
from autotune.user_kernels.bench import KernelBench
from autotune.user_kernels.results import ExpectedArray, compare
from autotune.user_kernels.workload import Workload
from support.sample_records import H100
from support.sample_user_kernels import N

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
        textures: the textures that were made.
        constants, values: what the last candidate was bound to.
        traffic: copies from, to and on the device, with their bytes, in order.
    """

    device = H100
    driver = "13.0"
    stream = 0
    Error = Error

    def __init__(self, kernels: Mapping[str, Kernel], floats: int, free: int) -> None:
        self.kernels, self._floats, self._free = kernels, floats, free
        self.log: list[str] = []
        self.traffic: list[tuple[str, int]] = []
        self.lost = False
        self.textures: list[Texture] = []
        self.constants: Mapping[str, NDArray[Any]] = {}
        self.values: Mapping[str, int | float] = {}
        self._queue: list[Callable[[], object]] = []
        self._runs = 0

    def allocate(self, size: int) -> Any:
        return Memory(np.zeros(size, np.uint8))

    def free_bytes(self) -> int:
        return self._free

    def texture(self, texture: Texture) -> TextureObject:
        self.textures.append(texture)
        return TextureObject(1000 + len(self.textures), 0, texture.content())

    def bind(
        self, candidate: Candidate, constants: Mapping[str, NDArray[Any]]
    ) -> Callable[[Mapping[str, int | float]], Run]:
        self.constants = constants
        values = candidate.config.values
        act = str(values.get("act", values.get("THREADS")))
        if act == "refused":
            raise Error("invalid argument")

        def bound(values: Mapping[str, int | float]) -> Run:
            self.values = values
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

    def load(self, program: Template, types: object, shared: int) -> ComparisonKernel:
        del types, shared
        return ComparisonKernel(program, self._queue)

    def fill(self, address: int, value: int, count: int, width: int = 4) -> None:
        self._queue.append(lambda: ctypes.memset(address, value, count * width))

    def copy(self, target: int, source: int, size: int) -> None:
        self.traffic.append(("copy", size))
        self._queue.append(lambda: ctypes.memmove(target, source, size))

    def upload(self, address: int, array: NDArray[Any]) -> None:
        self.traffic.append(("upload", array.nbytes))
        self._queue.append(lambda: ctypes.memmove(address, array.ctypes.data, array.nbytes))

    def download(self, array: NDArray[Any], address: int) -> None:
        self.traffic.append(("download", array.nbytes))
        self.synchronize()
        ctypes.memmove(array.ctypes.data, address, array.nbytes)


def array_at(address: int, count: int, dtype: Any) -> NDArray[Any]:
    """The array at an address."""
    dtype = np.dtype(dtype)
    memory = (ctypes.c_char * (count * dtype.itemsize)).from_address(address)
    return np.frombuffer(memory, dtype)


NUMPY_TYPES = {name: dtype for dtype, name in guarded_arrays.TYPES.items()}


@dataclass
class ComparisonKernel:
    """A kernel of `compare_arrays.cu`, in NumPy; its first block finds everything."""

    template: Template
    queue: list[Callable[[], object]]

    def step(
        self, grid: tuple[int, int, int], block: tuple[int, int, int], arguments: Sequence[Any]
    ) -> Callable[[], None]:
        assert (0 < grid[0] <= MOST_BLOCKS, block) == (True, (THREADS, 1, 1))
        run = self._count_changed if self.template.kernel == "count_changed" else self._compare

        return lambda: self.queue.append(lambda: run(*arguments))

    def _count_changed(
        self, memory: int, copy: int, size: int, first: int, end: int, entries: int
    ) -> None:
        changed = array_at(memory, size, "u1") != array_at(copy, size, "u1")
        changed[first:end] = False
        array_at(entries, 1, guarded_arrays.FINDINGS)["wrong"] = changed.sum()

    def _compare(
        self, actual: int, expected: int, count: int, rtol: float, atol: float, entries: int
    ) -> None:
        types = self.template.expression.partition("<")[2][:-1].split(", ")
        arrays = (
            array_at(address, count, NUMPY_TYPES[name])
            for address, name in zip((actual, expected), types, strict=True)
        )
        got, wanted = arrays
        found = compare(got, ExpectedArray(wanted, rtol, atol))
        values = found.wrong, found.place[0], found.error, 0.0
        array_at(entries, 1, guarded_arrays.FINDINGS)[0] = values


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


def uncompiled(template: Template, arch: str, cache: object) -> Any:
    """In place of `program_of`: `FakeSession.load` takes templates."""
    del arch, cache
    return template


def opened_saxpy(work: Workload, index: int) -> PendingBench:
    """Opens a worker's bench, on which 64 threads are wrong and 128 end the process."""
    del index

    def exits(_: Pointers) -> None:
        os._exit(9)

    def finish() -> KernelBench:
        bench.Timer = FakeTimer  # type: ignore[assignment, attr-defined]
        guarded_arrays.program_of = uncompiled  # type: ignore[attr-defined]
        kernels: dict[str, Kernel] = {"32": right, "64": lambda _: None, "128": exits, "256": right}
        session: Any = FakeSession(kernels, N, 2**30)
        return KernelBench(session, work)

    return PendingBench(H100, "13.0", finish)
