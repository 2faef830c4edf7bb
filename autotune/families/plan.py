"""What to launch: plain data that the Python run time and an exporter read alike."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Literal

from autotune.device import Device
from autotune.families.config import Config
from autotune.occupancy import Occupancy, occupancy
from autotune.problem import TENSOR_MAP_TYPES, Problem

ArgumentType = Literal[
    "tensor_map", "pointer", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64"
]

VECTOR_BYTES = 16
"""The widest vector of one thread, and what bulk copies want rows to be multiples of."""


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
    """A kernel template of a CUDA source with a value for each template parameter.

    Attributes:
        source: the file.
        kernel: the template's name there.
        arguments: the parameter's name in the source with its value, in the source's order.
        specific: whether it uses instructions of one architecture that no later one has, so that
            it is compiled for `sm_90a` instead of `sm_90`.
        form: the instance as C++ has it, with `{name}` for the values; None is the kernel with all
            arguments in their order.
    """

    source: str
    kernel: str
    arguments: tuple[tuple[str, int], ...] = ()
    specific: bool = False
    form: str | None = None

    @property
    def expression(self) -> str:
        """The C++ name expression of the instance, such as `tiled<16>`."""
        if self.form is not None:
            return self.form.format(**dict(self.arguments))
        values = ", ".join(str(value) for _, value in self.arguments)
        return f"{self.kernel}<{values}>" if values else self.kernel


@dataclass(frozen=True)
class TensorMap:
    """How bulk copies (TMA) walk through the matrices of a batch: what `cuTensorMapEncodeTiled`
    takes, except for the address, which is known at the launch.

    Attributes:
        base: the pointer it starts from: `a`, `b`, `c` or `workspace`.
        offset: bytes from there to the first element, a multiple of 16.
        type: of an element; `tf32` is stored as `f32` and rounded while it is copied.
        columns: elements of a row.
        rows: rows of a matrix.
        batch: matrices.
        pitch: elements from one row to the next: `lda`, `ldb`, `ldc` or a number. In bytes it has
            to be a multiple of 16.
        stride: elements from one matrix to the next: `stride_a`, `stride_b`, `stride_c` or a
            number; 0 if all of the batch use one matrix.
        box: columns and rows that one copy brings, of one matrix; what lies outside is zeros.
        swizzle: bytes of shared memory in which 16-byte pieces change places: 0, 32, 64 or 128.
    """

    base: str
    offset: int
    type: str
    columns: int
    rows: int
    batch: int
    pitch: str | int
    stride: str | int
    box: tuple[int, int]
    swizzle: int

    @property
    def element_bytes(self) -> int:
        """Bytes of one element in memory."""
        return TENSOR_MAP_TYPES[self.type].bytes


@dataclass(frozen=True)
class Argument:
    """One kernel argument: its C type and what to put there.

    A `value` that is a word is supplied at the launch. In a matrix product that is: `a`, `b`, `c`,
    `bias` (a null pointer where the epilogue has none), `workspace`, `counters` (pointers); `lda`,
    `ldb`, `ldc` and, from one matrix of a batch to the next, `stride_a`, `stride_b`, `stride_c`
    (elements); `alpha`, `beta`.
    A number is passed as it is. A tensor map is encoded at the launch: 128 bytes by value at a
    multiple of 64, so that tensor maps come before all other arguments.
    """

    type: ArgumentType
    value: str | int | float | TensorMap


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
    """The widest vectors of at most 16 bytes, in elements (1, 2, 4 or 8), that each operand's rows
    allow.

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
        sizes: tuple[int, int, int] = (4, 4, 4),
        strides: tuple[int, int, int] = (0, 0, 0),
    ) -> Alignment:
        """The alignment of operands at `addresses` (bytes) with elements of `sizes` (bytes), the
        given row strides and, in a batch, `strides` from one matrix to the next (elements)."""
        widths = (
            _width(gcd(ld, stride), address, size)
            for ld, address, size, stride in zip(
                leading_dimensions, addresses, sizes, strides, strict=True
            )
        )
        return cls(*widths)

    @classmethod
    def dense(cls, problem: Problem) -> Alignment:
        """The alignment of operands without gaps that start at aligned addresses."""
        sizes = problem.element_bytes, problem.element_bytes, problem.output_bytes
        strides = problem.strides if problem.batch > 1 else (0, 0, 0)
        return cls.of(problem.leading_dimensions, (0, 0, 0), sizes, strides)


@dataclass(frozen=True)
class LaunchPlan:
    """The launches that compute something with a configuration, in order, on one stream.

    `workspace` is in bytes; the launches may read and write it freely, and it need not be
    initialised. `counters` is how many 32-bit words the launches need that are zero at entry and
    that they leave zero. `product` is the index of the launch that dominates, which in a matrix
    product is the one that multiplies: others copy operands before it or add up its results.
    `local_memory` is whether they may use local memory: in kernels of ours it is a sign of spills.
    """

    config: Config
    launches: tuple[Launch, ...]
    workspace: int = 0
    counters: int = 0
    product: int = 0
    local_memory: bool = False

    @property
    def main(self) -> Launch:
        """The launch that dominates."""
        return self.launches[self.product]


def _width(stride: int, address: int, element_bytes: int) -> int:
    width = VECTOR_BYTES // element_bytes
    while stride % width or address % (width * element_bytes):
        width //= 2
    return width
