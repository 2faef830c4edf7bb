"""Copies of operands into the workspace, in rows that vectors and bulk copies (TMA) can read.

A family whose operands start or step at places that its loads cannot take, or run the other way,
launches this first: one launch copies A, B or both, with every matrix of the batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from autotune.families.plan import VECTOR_BYTES, Argument, Launch, Template
from autotune.families.shared.launch_limits import LARGEST_GRID_X
from autotune.families.shared.layout import along_k
from autotune.problem import Problem

Pack = Literal["none", "a", "b", "ab"]
PACKS: tuple[Pack, ...] = get_args(Pack)
"""Operands that a configuration packs."""

THREADS, STEPS, SIDE = 256, 2, 32  # as in pack.cu
LARGEST_GRID = LARGEST_GRID_X // 2
"""Blocks of one copy, so that two fit along x of a grid; the rest comes in further turns."""


@dataclass(frozen=True)
class Packing:
    """The operands that a configuration packs: a view of its parameters."""

    pack: Pack

    def packs(self, operand: str) -> bool:
        """Whether `a` or `b` is copied before it is multiplied."""
        return self.pack != "none" and operand in self.pack


@dataclass(frozen=True)
class Copy:
    """One operand, copied into the workspace for every matrix of the batch.

    The copy has `stored_rows` rows of `stored_columns` elements that start `pitch` elements apart,
    at multiples of `line` bytes, and its matrices `stride` elements apart. What lies between the
    last column and the pitch holds anything.

    Attributes:
        operand: `a` or `b`.
        rows: rows of a matrix as the caller stores it.
        columns: elements of such a row.
        batch: matrices.
        element_bytes: 2 or 4.
        transposed: whether rows become columns; for elements of 4 bytes only.
        low: whether a second plane like the first follows it, with what tf32 leaves of each
            element, rounded to tf32 itself; for elements of 4 bytes only.
        start: where the copy starts in the workspace, a multiple of 16 bytes.
        line: what the bytes of a row are filled up to a multiple of: 16 bytes for vectors, 128 so
            that no line of the cache is shared by rows.

    Raises:
        ValueError: for a copy that there is no kernel for.
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
        if self.element_bytes != 4 and (self.transposed or self.low):
            raise ValueError("only elements of 4 bytes are transposed or split")
        if self.start % VECTOR_BYTES:
            raise ValueError(f"a copy starts at a multiple of {VECTOR_BYTES}, not at {self.start}")

    @property
    def stored_rows(self) -> int:
        """Rows of the copy of one matrix."""
        return self.columns if self.transposed else self.rows

    @property
    def stored_columns(self) -> int:
        """Elements of a row of the copy, without what fills it up to the pitch."""
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
        """Where the second plane starts in the workspace, in bytes: right behind the first."""
        return self.start + self.batch * self.stride * self.element_bytes

    @property
    def bytes(self) -> int:
        """Bytes of workspace that it takes, a multiple of 16: the next may start behind them."""
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
    """The copy of operand `a` or `b` of a problem, from `start` bytes into the workspace, with rows
    that are filled up to multiples of `line` bytes."""
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


def packed_bytes(packing: Packing, problem: Problem) -> int:
    """Bytes of workspace that the packed operands take, as vectors read them."""
    return sum(copy(problem, operand).bytes for operand in "ab" if packing.packs(operand))


def pitch(columns: int, element_bytes: int, line: int = VECTOR_BYTES) -> int:
    """Elements of a row of `columns`, filled up to a multiple of `line` bytes."""
    step = line // element_bytes
    return -(-columns // step) * step


def launch(copies: Sequence[Copy]) -> Launch:
    """The one launch that makes one or two copies, of different operands of the same problem.

    Raises:
        ValueError: if there are none, or two of one operand.
    """
    names = [one.operand for one in copies]
    if not names or len(set(names)) != len(names):
        raise ValueError(f"give a copy of a, of b or of both, not of {names}")
    first = copies[0]
    both = [next((one for one in copies if one.operand == name), None) for name in ("a", "b")]
    flags = [
        argument
        for name, one in zip("AB", both, strict=True)
        for argument in (
            (f"COPY_{name}", int(one is not None)),
            (f"TRANSPOSED_{name}", int(one is not None and one.transposed)),
            (f"LOW_{name}", int(one is not None and one.low)),
        )
    ]
    return Launch(
        template=Template("pack.cu", "pack", (("BYTES", first.element_bytes), *flags)),
        grid=(sum(_blocks(one) for one in copies), 1, first.batch),
        block=(THREADS, 1, 1),
        shared=SIDE * (SIDE + 1) * 4 if any(one.transposed for one in copies) else 0,
        arguments=(
            *_source("a", both[0]),
            *_source("b", both[1]),
            Argument("pointer", "workspace"),
        ),
    )


def _source(name: str, one: Copy | None) -> tuple[Argument, ...]:
    """What the kernel takes for one operand; nothing but zeros if it is not copied."""
    return (
        Argument("pointer", name),
        Argument("i64", f"ld{name}"),
        Argument("i64", f"stride_{name}"),
        Argument("i32", one.rows if one else 0),
        Argument("i32", one.columns if one else 0),
        Argument("i64", one.pitch if one else 0),
        Argument("i64", one.start if one else 0),
        Argument("i64", one.low_start if one else 0),
        Argument("i32", _lane_bits(one) if one else 0),
        Argument("i32", _blocks(one) if one else 0),
    )


def _lane_bits(one: Copy) -> int:
    """Threads along a row of the copy, as a power of two; the others take further rows."""
    return (min(_vectors(one), SIDE) - 1).bit_length()


def _vectors(one: Copy) -> int:
    """Vectors of a row of the copy."""
    return one.pitch * one.element_bytes // VECTOR_BYTES


def _blocks(one: Copy) -> int:
    """Blocks that copy one matrix."""
    if one.transposed:
        tiles = -(-one.rows // SIDE) * -(-one.columns // SIDE)
    else:
        lanes = 1 << _lane_bits(one)
        tiles = -(-one.rows // (STEPS * THREADS // lanes)) * -(-_vectors(one) // lanes)
    return min(tiles, LARGEST_GRID)
