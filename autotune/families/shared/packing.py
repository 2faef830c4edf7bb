"""Packing: copies of operands in the workspace whose rows vectors and bulk copies (TMA) can read.

A family packs operands that are misaligned for its loads, or stored transposed to what it reads.
One launch before the GEMM packs A, B or both, for every matrix of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from autotune.families.plan import VECTOR_BYTES, Argument, Launch, Template
from autotune.families.shared.arguments import along_k, read_as, words
from autotune.families.shared.limits import LARGEST_GRID_X
from autotune.problem import Problem
from autotune.problem.integers import ceil_div, round_up

Pack = Literal["none", "a", "b", "ab"]
PACKS: tuple[Pack, ...] = get_args(Pack)
"""Operands that a configuration packs."""

THREADS, STEPS, SIDE = 256, 2, 32  # as in pack.cu
FLOAT_BYTES = 4
LARGEST_GRID = LARGEST_GRID_X // 2
"""Blocks of one copy, so that two copies fit along x of a grid; each block loops over the rest."""


def packs(pack: Pack, operand: str) -> bool:
    """Whether `a` or `b` is copied before it is multiplied."""
    return pack != "none" and operand in pack


@dataclass(frozen=True)
class Copy:
    """The packed copy of an operand, for every matrix of the batch.

    The copy has `stored_rows` rows of `stored_columns` elements that start `pitch` elements apart,
    at multiples of `line` bytes; its matrices are `stride` elements apart. Elements between the
    last column and the pitch are undefined.

    Attributes:
        operand: `a` or `b`.
        rows: rows of a matrix as the caller stores it.
        columns: elements of such a row.
        batch: matrices.
        element_bytes: 1, 2 or 4.
        transposed: whether rows become columns; for elements of 1 or 4 bytes only.
        low: whether a second plane follows the first, with the remainder of each element after
            tf32, itself rounded to tf32; for elements of 4 bytes only.
        start: where the copy starts in the workspace, a multiple of 16 bytes.
        line: rows are padded to a multiple of this many bytes: 16 for vectors, 128 so that no two
            rows share a cache line.

    Raises:
        ValueError: if no kernel makes such a copy.
    """

    operand: str
    rows: int
    columns: int
    batch: int
    element_bytes: int
    transposed: bool = False
    low: bool = False
    start: int = 0
    line: int = VECTOR_BYTES

    def __post_init__(self) -> None:
        if self.element_bytes == 2 and self.transposed:
            raise ValueError("elements of 2 bytes are not transposed")
        if self.element_bytes != 4 and self.low:
            raise ValueError(f"only elements of 4 bytes are split, not of {self.element_bytes}")
        if self.start % VECTOR_BYTES:
            raise ValueError(f"a copy starts at a multiple of {VECTOR_BYTES}, not at {self.start}")

    @property
    def stored_rows(self) -> int:
        """Rows of the copy of one matrix."""
        return self.columns if self.transposed else self.rows

    @property
    def stored_columns(self) -> int:
        """Elements of a row of the copy, without its padding."""
        return self.rows if self.transposed else self.columns

    @property
    def pitch(self) -> int:
        """Elements from one row of the copy to the next."""
        return pitch(self.stored_columns, self.element_bytes, self.line)

    @property
    def stride(self) -> int:
        """Elements from one matrix of the copy to the next."""
        return self.pitch * self.stored_rows

    @property
    def low_start(self) -> int:
        """Start of the second plane in the workspace, in bytes: right after the first."""
        return self.start + self.batch * self.stride * self.element_bytes

    @property
    def bytes(self) -> int:
        """Bytes of workspace, a multiple of 16, so that another copy may follow."""
        return (self.low_start - self.start) * (2 if self.low else 1)


def copy(
    problem: Problem,
    operand: str,
    *,
    transposed: bool = False,
    low: bool = False,
    start: int = 0,
    line: int = VECTOR_BYTES,
) -> Copy:
    """The packed copy of operand `a` or `b` of a problem (see `Copy` for the arguments)."""
    extent = problem.m if operand == "a" else problem.n
    rows, columns = (extent, problem.k) if along_k(problem, operand) else (problem.k, extent)
    return Copy(
        operand,
        rows,
        columns,
        problem.batch,
        problem.element_bytes,
        transposed=transposed,
        low=low,
        start=start,
        line=line,
    )


@dataclass(frozen=True)
class VectorOperand:
    """An operand of the caller as a kernel reads it in vectors.

    Attributes:
        name: `a` or `b`.
        width: elements of its vectors.
        copy: its packed copy; None if it is read in place.
    """

    name: str
    width: int
    copy: Copy | None = None

    @property
    def start(self) -> Argument:
        """Elements from its pointer to its start."""
        return Argument("i64", self.copy.start // self.copy.element_bytes if self.copy else 0)

    def members(self, name: str) -> dict[str, Argument]:
        """The members of `Call` for the kernel's operand `name`: pointer, pitch and stride."""
        if self.copy is None:
            return read_as(name, self.name)
        return {
            name: Argument("pointer", "workspace"),
            f"ld{name}": Argument("i64", self.copy.pitch),
            f"stride_{name}": Argument("i64", self.copy.stride),
        }


OperandPair: TypeAlias = tuple[VectorOperand, VectorOperand]
"""A and B as a kernel reads them."""


def must_transpose(problem: Problem, operand: str) -> bool:
    """Whether `mma.sync` reads a transposed copy of an operand: 8-bit ones run along K."""
    return problem.element_bytes == 1 and not along_k(problem, operand)


def packed_bytes(pack: Pack, problem: Problem) -> int:
    """Bytes of workspace that the packed operands take, as vectors read them."""
    return sum(
        copy(problem, operand, transposed=must_transpose(problem, operand)).bytes
        for operand in "ab"
        if packs(pack, operand)
    )


def pitch(columns: int, element_bytes: int, line: int = VECTOR_BYTES) -> int:
    """Elements of a row of `columns`, padded to a multiple of `line` bytes."""
    return round_up(columns, line // element_bytes)


def launch(copies: Sequence[Copy], *, early: bool = True) -> Launch:
    """The launch that packs one or both operands of a problem.

    Args:
        copies: one or two copies.
        early: whether the GEMM may start during the copies. That hides its launch, but some SMs may
            get more of its blocks than others.

    Raises:
        ValueError: if there are none, or two of one operand.
    """
    names = [copy.operand for copy in copies]
    if not names or len(set(names)) != len(names):
        raise ValueError(f"give a copy of a, of b or of both, not of {names}")
    first = copies[0]
    a, b = (next((copy for copy in copies if copy.operand == name), None) for name in "ab")
    return Launch(
        template=Template(
            "pack.cu",
            "pack",
            (("BYTES", first.element_bytes), ("EARLY", early), *_flags("A", a), *_flags("B", b)),
            named=True,
        ),
        grid=(sum(_blocks(copy) for copy in copies), 1, first.batch),
        block=(THREADS, 1, 1),
        shared=max(
            _tile(copy) * (SIDE + 1) * FLOAT_BYTES if copy.transposed else 0 for copy in copies
        ),
        arguments=(*_source("a", a), *_source("b", b), *words("workspace")),
    )


def _flags(operand: str, copy: Copy | None) -> tuple[tuple[str, bool], ...]:
    """The template arguments of an operand, all false if it is not packed."""
    return (
        (f"COPY_{operand}", copy is not None),
        (f"TRANSPOSED_{operand}", copy is not None and copy.transposed),
        (f"LOW_{operand}", copy is not None and copy.low),
    )


def _source(name: str, copy: Copy | None) -> tuple[Argument, ...]:
    """The kernel's arguments of an operand, all zero if it is not packed."""
    return (
        *words(name, f"ld{name}", f"stride_{name}"),
        Argument("i32", copy.rows if copy else 0),
        Argument("i32", copy.columns if copy else 0),
        Argument("i64", copy.pitch if copy else 0),
        Argument("i64", copy.start if copy else 0),
        Argument("i64", copy.low_start if copy else 0),
        Argument("i32", _lane_bits(copy) if copy else 0),
        Argument("i32", _blocks(copy) if copy else 0),
    )


def _tile(copy: Copy) -> int:
    """Rows and columns of a tile that a block transposes: `SIDE` words along each."""
    return SIDE * FLOAT_BYTES // copy.element_bytes


def _lane_bits(copy: Copy) -> int:
    """Log2 of the threads along a row of the copy; the other threads take further rows."""
    return (min(_vectors(copy), SIDE) - 1).bit_length()


def _vectors(copy: Copy) -> int:
    """Vectors of a row of the copy."""
    return copy.pitch * copy.element_bytes // VECTOR_BYTES


def _blocks(copy: Copy) -> int:
    """Blocks that copy one matrix."""
    if copy.transposed:
        tiles = ceil_div(copy.rows, _tile(copy)) * ceil_div(copy.columns, _tile(copy))
    else:
        lanes = 1 << _lane_bits(copy)
        tiles = ceil_div(copy.rows, STEPS * THREADS // lanes) * ceil_div(_vectors(copy), lanes)
    return min(tiles, LARGEST_GRID)
