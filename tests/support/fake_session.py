"""A fake GPU session: host memory for device memory, launches that are only logged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from autotune.cuda.cublaslt import Cublas
from autotune.cuda.program import Program
from autotune.families.plan import ArgumentType, Template
from support.sample_records import H100

TYPES = {"tensor_map": bytes, "f32": float}
"""Python types of arguments that are not an int."""


class Memory:
    """An allocation, convertible to its address like PyCUDA's."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.words = np.zeros(size // 4 + 1, np.float32)

    def __int__(self) -> int:
        return int(self.words.ctypes.data)


class Event:
    """An event; any two are 7 microseconds apart."""

    def time_till(self, _: Event) -> float:
        return 0.007


@dataclass
class Launch:
    """A kernel launch, with the values of the kernel's template parameters; or a memset."""

    kernel: str
    grid: tuple[int, int, int]
    arguments: tuple[int | float | bytes, ...]
    template: tuple[int, ...]


@dataclass
class Kernel:
    """Logs its launches after checking their arguments against its parameters."""

    of: Template
    types: Sequence[ArgumentType]
    log: list[Launch]

    def enqueue(
        self, grid: tuple[int, int, int], _: object, *arguments: int | float | bytes
    ) -> None:
        assert len(arguments) == len(self.types), (self.of, arguments)
        for argument, kind in zip(arguments, self.types, strict=True):
            assert isinstance(argument, TYPES.get(kind, int)), (kind, argument)
        values = tuple(self.of.numbers.values())
        self.log.append(Launch(self.of.kernel, grid, arguments, values))


@dataclass
class FakeSession:
    """The part of a session that verification uses.

    Attributes:
        free: bytes of free memory.
        answer: fills arrays that are copied from the device.
        log: all launches and memsets, in order.
        copies: copies from the device.
        synchronisations: calls of `synchronize`.
    """

    free: int = 2**34
    answer: Callable[[Any], None] = lambda _: None
    log: list[Launch] = field(default_factory=list)
    copies: int = 0
    synchronisations: int = 0
    device = H100
    index = 0
    stream = 0
    MemoryError = MemoryError

    @property
    def cublas(self) -> Cublas:
        return Cublas.load()

    def allocate(self, size: int) -> Memory:
        return Memory(size)

    def free_bytes(self) -> int:
        return self.free

    def load(self, program: Program, types: Sequence[ArgumentType], _: int) -> Kernel:
        return Kernel(program.template, types, self.log)

    def mark(self) -> Event:
        return Event()

    def synchronize(self) -> None:
        self.synchronisations += 1

    def fill(self, address: int, value: int, count: int, width: int = 4) -> None:
        self.log.append(Launch(f"memset {8 * width}", (1, 1, 1), (address, value, count), ()))

    def download(self, array: Any, address: int) -> None:
        assert address > 0
        self.synchronize()
        self.copies += 1
        self.answer(array)
