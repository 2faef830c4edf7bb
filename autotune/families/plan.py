"""Launch plans: plain data that the Python runtime and the exporters read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd
from typing import Annotated, Literal, NamedTuple, TypeAlias

from msgspec import Meta

from autotune.device import Device
from autotune.families.config import Config
from autotune.occupancy import Occupancy, occupancy
from autotune.problem import TENSOR_MAP_TYPES, Problem

Macros = Sequence[tuple[str, str]]
"""The name and the value of each macro that is defined before a source."""

# A source that redefines a macro, or undefines it, would compile to one kernel under all of its
# values. Warnings do not tell: they can be suppressed, and `#undef` causes none. So the compiler
# compares each macro after the source with the value that it was given.
_COMPARISON = """
#if __cplusplus < 201103L
#error tuned macros need --std=c++11 or newer
#endif
#define AUTOTUNE_TEXT_OF(...) #__VA_ARGS__
#define AUTOTUNE_TEXT(...) AUTOTUNE_TEXT_OF(__VA_ARGS__)
namespace autotune_macros {
__host__ __device__ constexpr bool same(const char* a, const char* b)
{
    return *a == *b && (*a == 0 || same(a + 1, b + 1));
}
}
"""
_OVERRIDE = re.compile(r"autotune: (\w+) is (.*), given (.*)\"")


def definitions(macros: Macros) -> str:
    """The lines that define macros."""
    return "".join(f"#define {name} {value}\n" for name, value in macros)


def checks(macros: Macros) -> str:
    """The lines behind a source that fail to compile if it has changed a macro.

    Both sides are expanded, since a value may be a macro of the source.
    """
    lines = (
        f"static_assert(autotune_macros::same(AUTOTUNE_TEXT({name}), AUTOTUNE_TEXT({value})), "
        f'"autotune: {name} is " AUTOTUNE_TEXT({name}) ", given " AUTOTUNE_TEXT({value}));\n'
        for name, value in macros
    )
    return f"{_COMPARISON}{''.join(lines)}" if macros else ""


def override(log: str) -> str | None:
    """The macro that a source changes, in a line with both values; None if the log names none."""
    match = _OVERRIDE.search(log)
    if match is None:
        return None
    name, actual, value = match.groups()
    change = f"undefines {name}" if actual == name else f"sets {name} to {actual}"
    return f"the source {change}, which is given as {value}"


PARAMS = "Params"
"""The class that holds the template arguments of a kernel."""


class Enumerator(NamedTuple):
    """A value of an `enum class` of the CUDA sources, such as `Store::TMA`, and its number."""

    type: str
    name: str
    number: int

    def __str__(self) -> str:
        return f"{self.type}::{self.name}"


Constant: TypeAlias = int | float | str | Enumerator
"""A template argument; a `bool` is an integer. Only user kernels have floats and words."""


@dataclass(frozen=True)
class Template:
    """A kernel template of a CUDA source with a value for each template parameter.

    Attributes:
        source: the file.
        kernel: the template's name there.
        arguments: each parameter's name in the source and its value, in the source's order.
        specific: whether it uses instructions that only one architecture has, so that it is
            compiled for `sm_90a` instead of `sm_90`.
        form: the C++ expression of the instance, with `{name}` for the values; None takes the
            kernel with all arguments in their order.
        named: whether the kernel takes all arguments as members of one class, `Params`, which
            `declaration` declares; else it takes integers in the order of the arguments.
        macros: macros that are defined before the source, with their values.
        options: further options of the compiler.
        compiler: the compiler of a user kernel, `nvrtc` or `nvcc`; None for the package's own
            kernels, which NVRTC compiles without the runtime's headers.
    """

    source: str
    kernel: str
    arguments: tuple[tuple[str, Constant], ...] = ()
    specific: bool = False
    form: str | None = None
    named: bool = False
    macros: tuple[tuple[str, str], ...] = ()
    options: tuple[str, ...] = ()
    compiler: str | None = None

    @property
    def expression(self) -> str:
        """The C++ name expression of the instance, such as `tiled<16>` or `simt<Params>`."""
        if self.form is not None:
            return self.form.format(**dict(self.arguments))
        if self.named:
            return f"{self.kernel}<{PARAMS}>"
        values = ", ".join(map(str, self.numbers.values()))
        return f"{self.kernel}<{values}>" if values else self.kernel

    @property
    def address(self) -> str:
        """The C++ expression of the instance's address; an overload is chosen by its signature, as
        in `scale(float*, int)`."""
        text = self.expression
        if not text.endswith(")"):
            return f"&{text}"
        start = text.rfind("(")
        while start > 0 and text.count("(", start) < text.count(")", start):
            start = text.rfind("(", 0, start)
        return f"(void (*){text[start:]})&{text[:start].rstrip()}"

    @property
    def declaration(self) -> str:
        """The text that follows the source: the checks of the macros, or the `struct Params` of
        `named` arguments."""
        if not self.named:
            return checks(self.macros)
        members = (
            f"    static constexpr {_type(value)} {name} = {_text(value)};\n"
            for name, value in self.arguments
        )
        return f"struct {PARAMS} {{\n{''.join(members)}}};\n"

    @property
    def preamble(self) -> str:
        """The definitions of the macros, which precede the source, and the name of its file; empty
        for the package's own kernels."""
        if not self.macros and self.compiler is None:
            return ""
        return f'{definitions(self.macros)}#line 1 "{self.source}"\n'

    @property
    def numbers(self) -> dict[str, int]:
        """The arguments as integers: an enumerator as its number."""
        return {
            name: value.number if isinstance(value, Enumerator) else int(value)
            for name, value in self.arguments
        }

    @property
    def values(self) -> dict[str, int | float | str]:
        """The arguments as JSON has them: an enumerator as its text, such as `Reduction::FUSED`."""
        return {
            name: str(value) if isinstance(value, Enumerator) else value
            for name, value in self.arguments
        }

    @property
    def label(self) -> str:
        """The instance in a message, such as `simt<BM=128, BN=64>`; no two have the same."""
        if self.macros:
            values = ", ".join(f"{name}={value}" for name, value in self.macros)
            return f"{self.expression} with {values}"
        if not self.named:
            return self.expression
        values = ", ".join(f"{name}={_text(value)}" for name, value in self.arguments)
        return f"{self.kernel}<{values}>"


def _type(value: Constant) -> str:
    if isinstance(value, Enumerator):
        return value.type
    return "bool" if isinstance(value, bool) else "int"


def _text(value: Constant) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


ArgumentType = Literal[
    "tensor_map", "pointer", "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64"
]
ParameterType: TypeAlias = "ArgumentType | int | tuple[ParameterType, ...]"
"""The type of a kernel's parameter. A number is the size in bytes of a value that is passed as it
lies in memory; a struct of the package's kernels is the tuple of its members' types."""

SCALARS: dict[str, ArgumentType | int] = {
    **{"bool": "u8", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16"},
    **{"int32": "i32", "uint32": "u32", "int64": "i64", "uint64": "u64"},
    **{"float16": "u16", "float32": "f32", "float64": "f64", "complex64": 8, "complex128": 16},
}
"""The types in which the numbers of user kernels are passed, by their NumPy types; float16 as its
bits, which the driver does not read."""

VECTOR_BYTES = 16
"""Bytes of a thread's widest vector; bulk copies (TMA) need rows of a multiple of it."""


@dataclass(frozen=True)
class Resources:
    """The resources of an SM that a kernel takes.

    The bounds are those of every compute capability from 5.0 on.

    Attributes:
        threads: threads a block; 0 if they are a library's own and nothing is known.
        registers: registers a thread.
        shared: shared memory a block in bytes, static and dynamic together.
        local: local memory a thread in bytes; more than 0 means spills or an indexed array.
        barriers: named barriers a block.

    Raises:
        ValueError: for 0 threads with anything else.
    """

    threads: Annotated[int, Meta(ge=0, le=1024)]
    registers: Annotated[int, Meta(ge=0, le=255)]
    shared: Annotated[int, Meta(ge=0, le=2**20)]
    local: Annotated[int, Meta(ge=0, le=2**20)] = 0
    barriers: Annotated[int, Meta(ge=0, le=16)] = 1

    def __post_init__(self) -> None:
        if not self.threads and (self.registers or self.shared or self.local or self.barriers):
            raise ValueError("0 threads have no registers, no memory and no barriers; give threads")

    def occupancy(self, device: Device, cluster: int = 1) -> Occupancy:
        """The occupancy of the kernel on `device`, in clusters of that many blocks."""
        return occupancy(
            device,
            threads=self.threads,
            registers=self.registers,
            shared=self.shared,
            barriers=self.barriers,
            cluster=cluster,
        )


OWN_RESOURCES = Resources(0, 0, 0, barriers=0)
"""The resources of a library's kernels, which are not known."""
OWN = "the library's own"
"""The text in place of their occupancy."""


@dataclass(frozen=True)
class TensorMap:
    """A tensor map: how bulk copies (TMA) read the matrices of a batch.

    It holds the arguments of `cuTensorMapEncodeTiled` except for the address, which the launch
    supplies.

    Attributes:
        base: pointer that `offset` counts from: `a`, `b`, `c` or `workspace`.
        offset: bytes from `base` to the first element, a multiple of 16.
        type: element type; `tf32` is stored as `f32` and rounded while it is copied, `u8` is any
            type of 8 bits.
        columns: elements of a row.
        rows: rows of a matrix.
        batch: matrices.
        pitch: elements from one row to the next: `lda`, `ldb`, `ldc` or a number. In bytes it has
            to be a multiple of 16.
        stride: elements from one matrix to the next: `stride_a`, `stride_b`, `stride_c` or a
            number; 0 if the whole batch uses one matrix.
        box: columns and rows of one matrix that a copy loads; zeros replace what lies outside.
        swizzle: span of the swizzle in bytes of shared memory: 0, 32, 64 or 128.
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
    """A kernel argument: its C type and its value.

    A `value` that is a word is supplied at the launch: the words of a GEMM are the `WORDS` of
    `problem.call`, where an absent operand is a null pointer.
    A number is passed as it is. A tensor map is encoded at the launch: 128 bytes by value at a
    multiple of 64, so that tensor maps come before all other arguments. A struct has arguments as
    its members. A `type` that is a number is that many bytes.
    """

    type: ArgumentType | int | Literal["struct"]
    value: str | int | float | bytes | TensorMap | Struct

    @property
    def parameter(self) -> ParameterType:
        """The type of the parameter that takes it."""
        if isinstance(self.value, Struct):
            return tuple(member.parameter for _, member in self.value.members)
        assert self.type != "struct", f"a struct with the value {self.value!r}"
        return self.type

    @property
    def cells(self) -> tuple[Argument, ...]:
        """The argument itself, or the members of a struct and of the structs in it."""
        if isinstance(self.value, Struct):
            return tuple(cell for _, member in self.value.members for cell in member.cells)
        return (self,)


@dataclass(frozen=True)
class Struct:
    """A struct that a kernel takes by value.

    Attributes:
        name: its name in the CUDA sources, such as `Call`.
        members: its members by name, in the order of its declaration.
    """

    name: str
    members: tuple[tuple[str, Argument], ...]

    def __getitem__(self, name: str) -> Argument:
        """The member of that name."""
        return dict(self.members)[name]


@dataclass(frozen=True)
class Launch:
    """One kernel launch: grid and block as (x, y, z), dynamic shared memory in bytes.

    `cluster` is the number of blocks of a cluster, as the kernel declares it. In a `cooperative`
    launch all blocks are resident at once, so that they can wait for each other.
    """

    template: Template
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared: int
    arguments: tuple[Argument, ...]
    cluster: int = 1
    cooperative: bool = False

    @property
    def threads(self) -> int:
        """Threads a block."""
        return self.block[0] * self.block[1] * self.block[2]

    @property
    def parameters(self) -> tuple[ParameterType, ...]:
        """The types of the kernel's parameters."""
        return tuple(argument.parameter for argument in self.arguments)

    @property
    def cells(self) -> tuple[Argument, ...]:
        """The arguments in order, with the members of structs instead of the structs."""
        return tuple(cell for argument in self.arguments for cell in argument.cells)

    def struct(self, name: str) -> Struct:
        """The struct of that name among the arguments."""
        structs = (a.value for a in self.arguments if isinstance(a.value, Struct))
        return next(struct for struct in structs if struct.name == name)


@dataclass(frozen=True)
class Alignment:
    """The widest vectors, in elements, that each operand's rows allow: 1, 2, 4, 8 or 16 elements
    of at most 16 bytes.

    An operand allows `v` if its address is a multiple of `v` elements and so are its leading
    dimension (the row stride) and, in a batch, the stride of its matrices; C with the residual.
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
        """The alignment of operands.

        Args:
            leading_dimensions: row strides in elements.
            addresses: addresses in bytes.
            sizes: element sizes in bytes.
            strides: elements from one matrix of a batch to the next; 0 without a batch.
        """
        rows = zip(leading_dimensions, addresses, sizes, strides, strict=True)
        return cls(*(_width(gcd(ld, step), address, size) for ld, address, size, step in rows))

    @classmethod
    @lru_cache(maxsize=256)
    def dense(cls, problem: Problem) -> Alignment:
        """The alignment of operands without gaps that start at aligned addresses."""
        sizes = problem.element_bytes, problem.element_bytes, problem.output_bytes
        strides = problem.strides if problem.batch > 1 else (0, 0, 0)
        return cls.of(problem.leading_dimensions, (0, 0, 0), sizes, strides)


class Piece(NamedTuple):
    """A part of the workspace, whose address a word of the launches stands for.

    Attributes:
        word: the word.
        offset: bytes from the start of the workspace.
        size: bytes.
    """

    word: str
    offset: int
    size: int


class Algorithm(NamedTuple):
    """An algorithm of cuBLASLt: its attributes, each at the place that is its number in
    `cublasLtMatmulAlgoConfigAttributes_t`."""

    id: int
    tile: int
    split_k: int
    reduction: int
    swizzle: int
    custom: int
    stages: int
    inner: int
    cluster: int


class LibraryCall(NamedTuple):
    """A call of cuBLASLt, which computes a problem by one of its algorithms."""

    problem: Problem
    algorithm: Algorithm


@dataclass(frozen=True)
class LaunchPlan:
    """The launches of a configuration, in their order on one stream, or a call of a library.

    Attributes:
        config: the configuration.
        launches: the launches.
        workspace: bytes that the launches may read and write freely, uninitialised.
        counters: 32-bit words that are zero at entry and that the launches leave zero.
        product: index of the main launch; others copy operands before it or add up its results.
        local_memory: whether the launches may use local memory; in built-in kernels it means that
            registers spill.
        dependent: whether a launch may start before the one before it ends (programmatic dependent
            launch), as its kernel waits by itself.
        pieces: parts of the workspace that have words of their own.
        library: the call of cuBLASLt that computes the problem, in place of launches.
    """

    config: Config
    launches: tuple[Launch, ...]
    workspace: int = 0
    counters: int = 0
    product: int = 0
    local_memory: bool = False
    dependent: bool = True
    pieces: tuple[Piece, ...] = ()
    library: LibraryCall | None = None

    @property
    def main(self) -> Launch:
        """The main launch."""
        return self.launches[self.product]


def _width(stride: int, address: int, element_bytes: int) -> int:
    width = VECTOR_BYTES // element_bytes
    while stride % width or address % (width * element_bytes):
        width //= 2
    return width
