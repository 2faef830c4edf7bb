"""Checks operands: their shapes, types and strides against the rules of the kernels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd

from autotune.errors import ArrayError
from autotune.problem import ELEMENT_TYPES, Problem

TYPES: Mapping[str, str] = {
    row.dtype: row.name for row in ELEMENT_TYPES.values() if row.compute == row.name != "i8"
}
"""The element types of the kernels, by their names in the array libraries."""


@dataclass(frozen=True)
class Operand:
    """An array in terms that any framework can provide, without its address.

    Attributes:
        name: its name in messages: `A`, `B`, `out` or `bias`.
        shape: its size along each axis.
        strides: distance between neighbours along each axis, in elements.
        dtype: the element type's name, such as `float32`.
        ordinal: the CUDA device that holds it; None if it is not on one.
        read_only: whether it must not be written.
        recorded: whether its framework would have to differentiate through the matmul.
    """

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    ordinal: int | None
    read_only: bool = False
    recorded: bool = False


@dataclass(frozen=True)
class MatrixMemory:
    """Where the elements of an operand lie: `rows` rows of `columns` elements, `leading` elements
    apart, in `count` such matrices, `stride` elements apart."""

    rows: int
    columns: int
    leading: int
    count: int = 1
    stride: int = 0
    element_bytes: int = 4

    @property
    def extent(self) -> int:
        """Bytes from the start of the first element to the end of the last."""
        return ((self.count - 1) * self.stride + self._matrix) * self.element_bytes

    @property
    def width(self) -> int:
        """Bytes in a row."""
        return self.columns * self.element_bytes

    @property
    def pitches(self) -> tuple[int, int]:
        """Bytes from one row, and from one matrix, to the next."""
        return self.leading * self.element_bytes, self.stride * self.element_bytes

    @property
    def disjoint(self) -> bool:
        """Whether the matrices share no element: each ends before the next begins, or their rows
        interleave."""
        interleaved = (self.count - 1) * self.stride + self.columns <= self.leading
        return (
            self.count == 1
            or self._matrix <= self.stride
            or (self.columns <= self.stride and interleaved)
        )

    @property
    def _matrix(self) -> int:
        return (self.rows - 1) * self.leading + self.columns


def check(operand: Operand, dimensions: tuple[int, ...] = (2, 3)) -> int:
    """The device that holds an operand, checked in all but its strides.

    Raises:
        ArrayError: for an array that is empty, on the CPU, of a type not in `TYPES`, or whose
            number of dimensions is not in `dimensions`.
    """
    name = operand.name
    if 0 in operand.shape:
        raise ArrayError(f"{name} is empty {operand.shape}; every size must be at least 1")
    if operand.ordinal is None:
        raise ArrayError(f"{name} is on the CPU; move it to a CUDA device")
    if operand.dtype not in TYPES:
        *dtypes, last = TYPES
        types = f"{', '.join(dtypes)} and {last}"
        raise ArrayError(f"{name} is {operand.dtype}; the kernels take {types}: convert it")
    if len(operand.shape) not in dimensions:
        wanted = "a vector" if dimensions == (1,) else "a matrix or a batch of them"
        raise ArrayError(
            f"{name} has {len(operand.shape)} dimensions {operand.shape}; give {wanted}"
        )
    if operand.recorded:
        raise ArrayError(
            f"{name} requires a gradient, which autotune.matmul does not record; "
            "give .detach() or work under torch.no_grad()"
        )
    return operand.ordinal


def memory_of(operand: Operand, layout: str | None = None) -> tuple[str, MatrixMemory]:
    """How an operand is stored, `n` row by row or `t` column by column, and where it lies.

    The stride of an axis of size 1 does not matter, and a batch of stride 0 is one matrix. Where
    both ways fit, `layout` decides; without it the answer is `n`.

    Raises:
        ArrayError: if the strides fit neither way, or not the one that `layout` asks for.
    """
    (rows, columns), (row_stride, column_stride) = operand.shape[-2:], operand.strides[-2:]
    count, stride = (operand.shape[0], operand.strides[0]) if len(operand.shape) == 3 else (1, 0)
    batch = (count, stride) if count > 1 and stride else (1, 0)
    rest = *batch, _bytes(operand.dtype)
    stored = {
        "n": _memory_of(rows, columns, row_stride, column_stride, rest),
        "t": _memory_of(columns, rows, column_stride, row_stride, rest),
    }
    for letter in layout or "nt":
        memory = stored[letter]
        if memory is not None:
            return letter, memory
    wanted = {"n": "row-major", "t": "the transpose of a row-major matrix"}
    raise ArrayError(
        f"{operand.name} of shape {operand.shape} has strides {operand.strides}; it must be "
        f"{wanted[layout] if layout else 'row-major or transposed'}: copy it with .contiguous()"
    )


def problem_of(
    a: Operand,
    b: Operand,
    out: Operand | None = None,
    *,
    compute: str | None = None,
    layout: str | None = None,
    epilogue: str = "none",
) -> Problem:
    """The problem that operands pose. With a `layout` they have to be stored that way.

    A single matrix is multiplied with each of a batch. Without a `compute` their type decides it.
    `out` may be fp32 where A and B have 16 bits.

    Raises:
        ArrayError: if A and B do not fit each other, differ in type or device, or if their type or
            that of `out` is not supported.
        ProblemError: for an unknown compute or epilogue, or too large a batch.
    """
    batch = _common_batch(a, b)
    (m, k), n = a.shape[-2:], b.shape[-1]
    letters = layout or (None, None)
    stored = "".join(
        memory_of(matrix, letter)[0] for matrix, letter in zip((a, b), letters, strict=True)
    )
    type = TYPES[a.dtype]
    problem = Problem(m, n, k, compute or type, stored, batch, epilogue, _output(a, out))
    if problem.operand_types != (type, type):
        raise ArrayError(
            f"A and B are {a.dtype}; {compute} multiplies {problem.precision.operand.dtype}: "
            f"convert them or give compute={type!r}"
        )
    return problem


def sizes(problem: Problem) -> tuple[int, int, int]:
    """Bytes of an element of A, B and C."""
    return problem.element_bytes, problem.element_bytes, problem.output_bytes


def result_shape(a: Operand, b: Operand, problem: Problem) -> tuple[int, ...]:
    """The shape of the result of two operands: with a batch axis if one of them has one."""
    batch = (problem.batch,) if 3 in (len(a.shape), len(b.shape)) else ()
    return *batch, problem.m, problem.n


def check_out(out: Operand, shape: tuple[int, ...], ordinal: int) -> MatrixMemory:
    """Where an output of a shape lies on a device, checked.

    Raises:
        ArrayError: if it is not writable, not row-major, of another shape or on another device, or
            if the matrices of a batch overlap.
    """
    device = check(out)
    if device != ordinal:
        raise ArrayError(f"A is on CUDA device {ordinal}, out on {device}; move one of them")
    if out.shape != shape:
        raise ArrayError(f"out is {out.shape}; the product is {shape}")
    if out.read_only:
        raise ArrayError("out is read-only; give a writable array")
    memory = memory_of(out, "n")[1]
    if not memory.disjoint or (len(shape) == 3 and memory.count != shape[0]):
        raise ArrayError(
            f"out of shape {out.shape} has strides {out.strides}, so that its matrices overlap; "
            "give each its own memory"
        )
    return memory


def check_bias(bias: Operand, n: int, ordinal: int, dtype: str) -> MatrixMemory:
    """Where a bias for `n` columns of type `dtype` lies on a device, checked.

    Raises:
        ArrayError: if it is not a vector of n adjacent elements of that type on that device.
    """
    device = check(bias, (1,))
    if bias.dtype != dtype:
        raise ArrayError(f"bias is {bias.dtype}, out {dtype}; convert the bias")
    if device != ordinal:
        raise ArrayError(f"A is on CUDA device {ordinal}, bias on {device}; move one of them")
    if bias.shape != (n,):
        raise ArrayError(f"bias is {bias.shape}; the product has {n} columns: give {(n,)}")
    if n > 1 and bias.strides != (1,):
        raise ArrayError(f"bias has stride {bias.strides[0]}; copy it with .contiguous()")
    return MatrixMemory(1, n, n, element_bytes=_bytes(dtype))


def overlap(
    first: int, first_memory: MatrixMemory, second: int, second_memory: MatrixMemory
) -> bool:
    """Whether two operands share an element.

    Column ranges of one matrix interleave without sharing any. Where the rows of two operands have
    no common period, the operands count as overlapping as soon as their extents do.
    """
    if second < first:
        first, first_memory, second, second_memory = second, second_memory, first, first_memory
    if second >= first + first_memory.extent:
        return False
    # Modulo this period, all rows of an operand start at the same place.
    period = gcd(*first_memory.pitches, *second_memory.pitches)
    distance = (second - first) % period
    return distance < first_memory.width or distance + second_memory.width > period


def _bytes(dtype: str) -> int:
    """Bytes of an element of a dtype that the kernels take."""
    return ELEMENT_TYPES[TYPES[dtype]].bytes


def _common_batch(a: Operand, b: Operand) -> int:
    """The batch of two operands, which have to fit each other."""
    devices = check(a), check(b)
    if devices[0] != devices[1]:
        raise ArrayError(f"A is on CUDA device {devices[0]}, B on {devices[1]}; move one of them")
    if a.dtype != b.dtype:
        raise ArrayError(f"A is {a.dtype}, B {b.dtype}; convert one of them")
    k, inner = a.shape[-1], b.shape[-2]
    if k != inner:
        raise ArrayError(f"A {a.shape} times B {b.shape}: the inner sizes {k} and {inner} differ")
    counts = [matrix.shape[0] if len(matrix.shape) == 3 else 1 for matrix in (a, b)]
    if counts[0] != counts[1] and 1 not in counts:
        raise ArrayError(
            f"A {a.shape} times B {b.shape}: the batches {counts[0]} and {counts[1]} differ"
        )
    return max(counts)


def _output(a: Operand, out: Operand | None) -> str:
    """The `output` of a problem whose result goes to `out`."""
    if out is None:
        return "same"
    check(out)
    if out.dtype not in (a.dtype, "float32"):
        wider = "" if a.dtype == "float32" else " or float32"
        raise ArrayError(f"out is {out.dtype}; a product of {a.dtype} is {a.dtype}{wider}")
    return "same" if out.dtype == a.dtype else "f32"


def _memory_of(
    rows: int, columns: int, row_stride: int, column_stride: int, rest: tuple[int, int, int]
) -> MatrixMemory | None:
    """Rows of adjacent elements that do not overlap; None if the strides describe anything else.

    `rest` is the count and stride of a batch, and the bytes of an element.
    """
    leading = row_stride if rows > 1 else columns
    if (column_stride == 1 or columns == 1) and columns <= leading and rest[1] >= 0:
        return MatrixMemory(rows, columns, leading, *rest)
    return None
