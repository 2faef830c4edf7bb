"""What to launch: plain data that the Python run time and an exporter read alike."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Literal

from autotune.config import Config
from autotune.device import Device
from autotune.occupancy import Occupancy, occupancy
from autotune.problem import Problem

ArgumentType = Literal["pointer", "i32", "i64", "f32"]


@dataclass(frozen=True)
class Resources:
    """What one kernel takes of an SM.

    Attributes:
        threads: threads a block.
        registers: registers a thread.
        shared: shared memory a block in bytes, static and dynamic together.
        local: local memory a thread in bytes; more than 0 means spills or an indexed array.
        barriers: named barriers a block.
    """

    threads: int
    registers: int
    shared: int
    local: int = 0
    barriers: int = 1

    def occupancy(self, device: Device) -> Occupancy:
        """The resident blocks of such a kernel on one SM of `device`."""
        return occupancy(
            device,
            threads=self.threads,
            registers=self.registers,
            shared=self.shared,
            barriers=self.barriers,
        )


@dataclass(frozen=True)
class Template:
    """A kernel template of `cuda_src/` with a value for each template parameter.

    `arguments` pairs the parameter's name in the source with its value, in the source's order.
    """

    source: str
    kernel: str
    arguments: tuple[tuple[str, int], ...] = ()

    @property
    def expression(self) -> str:
        """The C++ name expression of the instance, such as `tiled<16>`."""
        values = ", ".join(str(value) for _, value in self.arguments)
        return f"{self.kernel}<{values}>" if values else self.kernel


@dataclass(frozen=True)
class Argument:
    """One kernel argument: its C type and what to put there.

    A `value` that is a word is supplied at the launch: `a`, `b`, `c`, `bias` (a null pointer where
    the epilogue has none), `workspace`, `counters` (pointers); `lda`, `ldb`, `ldc` and, from one
    matrix of a batch to the next, `stride_a`, `stride_b`, `stride_c` (elements); `alpha`, `beta`.
    A number is passed as it is.
    """

    type: ArgumentType
    value: str | int | float


@dataclass(frozen=True)
class Launch:
    """One kernel launch: grid and block as (x, y, z), dynamic shared memory in bytes."""

    template: Template
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: tuple[Argument, ...]

    @property
    def threads(self) -> int:
        """Threads a block."""
        return self.block[0] * self.block[1] * self.block[2]


@dataclass(frozen=True)
class Alignment:
    """The widest vectors, in elements (1, 2 or 4), that each operand's rows allow.

    An operand allows `v` if its address is a multiple of `v` elements and so are its leading
    dimension (the row stride) and, in a batch, the stride of its matrices.
    """

    a: int
    b: int
    c: int

    @classmethod
    def of(
        cls,
        leading_dimensions: tuple[int, int, int],
        addresses: tuple[int, int, int],
        element_bytes: int = 4,
        strides: tuple[int, int, int] = (0, 0, 0),
    ) -> Alignment:
        """The alignment of operands at `addresses` (bytes) with the given row strides and, in a
        batch, `strides` from one matrix to the next (elements)."""
        widths = (
            _width(gcd(ld, stride), address, element_bytes)
            for ld, address, stride in zip(leading_dimensions, addresses, strides, strict=True)
        )
        return cls(*widths)

    @classmethod
    def dense(cls, problem: Problem) -> Alignment:
        """The alignment of operands without gaps that start at aligned addresses."""
        strides = problem.strides if problem.batch > 1 else (0, 0, 0)
        return cls.of(problem.leading_dimensions, (0, 0, 0), problem.element_bytes, strides)


@dataclass(frozen=True)
class LaunchPlan:
    """The launches that compute a problem with a configuration, in order, on one stream.

    `workspace` is in bytes; the launches may read and write it freely, and it need not be
    initialised. `counters` is how many 32-bit words the launches need that are zero at entry and
    that they leave zero. `product` is the index of the launch that multiplies; others copy
    operands before it or add up its results.
    """

    problem: Problem
    config: Config
    alignment: Alignment
    launches: tuple[Launch, ...]
    workspace: int = 0
    counters: int = 0
    product: int = 0

    @property
    def main(self) -> Launch:
        """The launch that multiplies."""
        return self.launches[self.product]


def _width(stride: int, address: int, element_bytes: int) -> int:
    for width in (4, 2):
        if stride % width == 0 and address % (width * element_bytes) == 0:
            return width
    return 1
