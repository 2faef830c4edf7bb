"""A GPU session without a GPU: memory of the host, and launches that are only written down."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np

from autotune.compiler import Program
from autotune.families.plan import ArgumentType, Template
from support.sample_records import H100

TYPES = {"tensor_map": bytes, "f32": float}
"""What stands for an argument in Python, if not an int."""


class Memory:
    """An allocation; like PyCUDA's it is an address where an int is wanted."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.words = np.zeros(size // 4 + 1, np.float32)

    def __int__(self) -> int:
        return int(self.words.ctypes.data)


class Event:
    """All takes 7 microseconds."""

    def time_till(self, _: Event) -> float:
        return 0.007


@dataclass
class Launch:
    """One kernel launch with its arguments and the values of the kernel's template parameters."""

    kernel: str
    grid: tuple[int, int, int]
    arguments: tuple[int | float | bytes, ...]
    template: tuple[int, ...]


@dataclass
class Kernel:
    """Writes its launches down, once their arguments are found to fit its parameters."""

    of: Template
    types: Sequence[ArgumentType]
    log: list[Launch]

    def enqueue(
        self, grid: tuple[int, int, int], _: object, *arguments: int | float | bytes
    ) -> None:
        assert len(arguments) == len(self.types), (self.of, arguments)
        for argument, kind in zip(arguments, self.types, strict=True):
            assert isinstance(argument, TYPES.get(kind, int)), (kind, argument)
        values = tuple(value for _, value in self.of.arguments)
        self.log.append(Launch(self.of.kernel, grid, arguments, values))


@dataclass
class FakeSession:
    """What verification needs of a session.

    Attributes:
        free: bytes of memory that are free.
        answer: fills what is copied from the device.
        log: all launches.
    """

    free: int = 2**34
    answer: Callable[[Any], None] = lambda _: None
    log: list[Launch] = field(default_factory=list)
    device = H100
    index = 0
    stream = SimpleNamespace(handle=0)

    def __post_init__(self) -> None:
        self.cuda = SimpleNamespace(
            memset_d32_async=lambda *_: None,
            memcpy_dtoh=lambda array, _: self.answer(array),
            MemoryError=MemoryError,
        )

    def allocate(self, size: int) -> Memory:
        return Memory(size)

    def free_bytes(self) -> int:
        return self.free

    def load(self, program: Program, types: Sequence[ArgumentType], _: int) -> Kernel:
        return Kernel(program.template, types, self.log)

    def mark(self) -> Event:
        return Event()

    def synchronize(self) -> None:
        """Nothing is under way."""
