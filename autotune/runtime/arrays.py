"""Checks operands: their shapes, types and strides against the rules of the kernels."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import gcd
from operator import mul
from typing import NamedTuple

from autotune.errors import ArrayError
from autotune.problem import ELEMENT_TYPES, PRECISIONS
from autotune.problem.call import BY_NAME
from autotune.problem.fields import LARGEST_BATCH

TYPES: Mapping[str, str] = {
    row.dtype: row.name for row in ELEMENT_TYPES.values() if row.compute is not None
}
"""The element types of A and B, by their names in the array libraries."""

OUTPUT_TYPES = tuple(
    dict.fromkeys(element.dtype for row in PRECISIONS.values() for element in row.outputs)
)
"""The names of the element types of C and the bias in the array libraries."""

_BYTES = {row.dtype: row.bytes for row in ELEMENT_TYPES.values()}


@dataclass(frozen=True)
class ArrayInfo:
    """An array as any framework can describe it, without its address.

    Attributes:
        name: its name in messages: `A`, `B`, `out`, `bias`, `scale_a`, `scale_b` or `residual`.
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

    @property
    def empty(self) -> bool:
        """Whether it has no element."""
        return 0 in self.shape


@dataclass(frozen=True)
class MatrixMemory:
    """The memory of an operand: `count` matrices, `stride` elements apart, of `rows` rows of
    `columns` elements, `leading` elements apart. `outer` has the sizes and strides of further batch
    axes."""

    rows: int
    columns: int
    leading: int
    count: int = 1
    stride: int = 0
    element_bytes: int = 4
    outer: tuple[tuple[int, int], ...] = ()

    @property
    def extent(self) -> int:
        """Bytes from the start of the first element to the end of the last."""
        return _reach(self._axes) * self.element_bytes if self.columns else 0

    @property
    def width(self) -> int:
        """Bytes in a row."""
        return self.columns * self.element_bytes

    @property
    def pitches(self) -> tuple[int, ...]:
        """Bytes from one row, and along each batch axis from one matrix, to the next."""
        steps = self.leading, self.stride, *(stride for _, stride in self.outer)
        return tuple(step * self.element_bytes for step in steps)

    @property
    def disjoint(self) -> bool:
        """Whether no two elements share memory: along each axis a step leads past all that the
        axes of shorter steps span, so that matrices follow each other or their rows interleave."""
        axes = sorted((axis for axis in self._axes if axis[0] > 1), key=lambda axis: axis[1])
        return all(step >= _reach(axes[:place]) for place, (_, step) in enumerate(axes))

    @property
    def _axes(self) -> tuple[tuple[int, int], ...]:
        matrix = (self.columns, 1), (self.rows, self.leading)
        return *matrix, (self.count, self.stride), *self.outer


EMPTY = MatrixMemory(1, 0, 0, element_bytes=1)
"""The memory of an operand without elements."""


def check(operand: ArrayInfo, *, vector: bool = False, types: Collection[str] = TYPES) -> int:
    """The device that holds an operand, checked in all but its strides.

    Raises:
        ArrayError: for an array on the CPU, of a type not in `types`, or that is not a matrix or
            a batch of them; no `vector` if it has to be one.
    """
    name = operand.name
    if operand.ordinal is None:
        raise ArrayError(f"{name} is on the CPU; move it to a CUDA device")
    if operand.dtype not in types:
        legal = listed(types, "and")
        raise ArrayError(f"{name} is {operand.dtype}; the kernels take {legal}: convert it")
    if len(operand.shape) != 1 if vector else len(operand.shape) < 2:
        wanted = "a vector" if vector else "a matrix or a batch of them"
        raise ArrayError(
            f"{name} has {len(operand.shape)} dimensions {operand.shape}; give {wanted}"
        )
    if operand.recorded:
        raise ArrayError(
            f"{name} requires a gradient, which autotune.matmul does not record; "
            "give .detach() or work under torch.no_grad()"
        )
    return operand.ordinal


def memory_of(operand: ArrayInfo, layout: str | None = None) -> tuple[str, MatrixMemory]:
    """The layout and memory of an operand with at most one batch axis: `n` is row by row, `t`
    column by column.

    The stride of an axis of size 1 does not matter, and a batch of stride 0 is one matrix. Where
    both ways fit, `layout` decides; without it the answer is `n`.

    Raises:
        ArrayError: if the strides fit neither way, or not the one that `layout` asks for.
    """
    if operand.empty:
        return layout or "n", EMPTY
    count, stride = (operand.shape[0], operand.strides[0]) if len(operand.shape) == 3 else (1, 0)
    batch = (count, stride) if count > 1 and stride else (1, 0)
    for letter in layout or "nt":
        axes = slice(-2, None) if letter == "n" else slice(-1, -3, -1)
        (rows, columns), (row_stride, column_stride) = operand.shape[axes], operand.strides[axes]
        leading = row_stride if rows > 1 else columns
        if (column_stride == 1 or columns == 1) and columns <= leading and batch[1] >= 0:
            element_bytes = _BYTES[operand.dtype]
            return letter, MatrixMemory(rows, columns, leading, *batch, element_bytes)
    wanted = {"n": "row-major", "t": "the transpose of a row-major matrix"}
    raise ArrayError(
        f"{operand.name} of shape {operand.shape} has strides {operand.strides}; it must be "
        f"{wanted[layout] if layout else 'row-major or transposed'}: copy it with .contiguous()"
    )


def check_out(out: ArrayInfo, shape: tuple[int, ...], ordinal: int) -> MatrixMemory:
    """The checked memory of an output of a shape on a device.

    Raises:
        ArrayError: if it is not writable, not row-major, of another shape or on another device.
    """
    check(out, types=OUTPUT_TYPES)
    check_beside(out, ordinal)
    if out.shape != shape:
        raise ArrayError(f"out is {out.shape}; the product is {shape}")
    if out.read_only:
        raise ArrayError("out is read-only; give a writable array")
    return memory_of(out, "n")[1]


def check_disjoint(out: ArrayInfo, memory: MatrixMemory, shape: tuple[int, ...]) -> None:
    """Refuses an output whose matrices overlap."""
    repeated = len(shape) == 3 and memory.count != shape[0]
    if not out.empty and (repeated or not memory.disjoint):
        raise ArrayError(
            f"out of shape {out.shape} has strides {out.strides}, so that its matrices overlap; "
            "give each its own memory"
        )


def check_vector(vector: ArrayInfo, n: int, ordinal: int, dtype: str) -> MatrixMemory:
    """The checked memory of a vector for `n` columns of type `dtype` on a device.

    Raises:
        ArrayError: if it is not a vector of n adjacent elements of that type on that device.
    """
    name = vector.name
    check(vector, vector=True, types=OUTPUT_TYPES)
    if vector.dtype != dtype:
        raise ArrayError(f"{name} is {vector.dtype}, out {dtype}; convert the {name}")
    check_beside(vector, ordinal)
    if vector.shape != (n,):
        raise ArrayError(f"{name} is {vector.shape}; the product has {n} columns: give {(n,)}")
    if n > 1 and vector.strides != (1,):
        raise ArrayError(f"{name} has stride {vector.strides[0]}; copy it with .contiguous()")
    return MatrixMemory(1, n, n, element_bytes=_BYTES[dtype])


def check_residual(
    residual: ArrayInfo, out: ArrayInfo, memory: MatrixMemory, ordinal: int
) -> MatrixMemory:
    """The checked memory of a residual on a device; the output lies in `memory`.

    Raises:
        ArrayError: if it is not row-major, or of another shape, type or device; or if it has
            several batch axes whose strides differ from those of the output.
    """
    check(residual, types=OUTPUT_TYPES)
    if residual.dtype != out.dtype:
        raise ArrayError(f"residual is {residual.dtype}, out {out.dtype}; convert the residual")
    check_beside(residual, ordinal)
    if residual.shape != out.shape:
        raise ArrayError(f"residual is {residual.shape}; the product is {out.shape}")
    if len(out.shape) < 4:
        return memory_of(residual, "n")[1]
    if residual.strides[:-2] != out.strides[:-2]:
        raise ArrayError(
            f"residual of shape {residual.shape} has strides {residual.strides}, out "
            f"{out.strides}; give the batch axes of both the same"
        )
    matrix = replace(residual, shape=residual.shape[-2:], strides=residual.strides[-2:])
    leading = memory_of(matrix, "n")[1].leading
    return replace(memory, leading=leading)


def check_beside(operand: ArrayInfo, ordinal: int, first: str = "A") -> None:
    """Refuses an operand on another device than the `first` one."""
    if operand.ordinal is None:
        raise ArrayError(f"{operand.name} is on the CPU; move it to a CUDA device")
    if operand.ordinal != ordinal:
        raise ArrayError(
            f"{first} is on CUDA device {ordinal}, {operand.name} on {operand.ordinal}; move one "
            "of them"
        )


def check_dense(operand: ArrayInfo) -> None:
    """Refuses an array with gaps or in another order than row-major."""
    if not is_dense(operand.shape, operand.strides):
        raise ArrayError(
            f"{operand.name} of shape {operand.shape} has strides {operand.strides}; copy it with "
            ".contiguous()"
        )


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Whether an array is row-major without gaps."""
    steps = zip(shape, strides, dense(shape), strict=True)
    return all(size == 1 or stride == step for size, stride, step in steps)


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


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides, in elements, of a row-major array without gaps."""
    strides, size = [], 1
    for extent in reversed(shape):
        strides.append(size)
        size *= extent
    return tuple(reversed(strides))


def listed(words: Iterable[str], conjunction: str) -> str:
    """Words in a sentence, such as `a, b and c`."""
    *rest, last = words
    return f"{', '.join(rest)} {conjunction} {last}" if rest else last


def _reach(axes: Sequence[tuple[int, int]]) -> int:
    """Elements from the first to the last that axes of these sizes and strides span."""
    return 1 + sum((size - 1) * stride for size, stride in axes)


class BatchAxis(NamedTuple):
    """A batch axis of a matmul: its size and the strides of A, B and C along it, in elements."""

    size: int
    a: int
    b: int
    c: int


class Launches(NamedTuple):
    """The launches of a matmul.

    Attributes:
        a: A of the first launch, with at most one batch axis.
        b: its B.
        out: its C; None if there is no output yet.
        outer: the batch axes along which the launches differ.
    """

    a: ArrayInfo
    b: ArrayInfo
    out: ArrayInfo | None
    outer: tuple[BatchAxis, ...] = ()

    def memory(self, matrices: Mapping[str, MatrixMemory]) -> dict[str, MatrixMemory]:
        """The memory of A, B and C of all launches, from that of the first."""
        sizes = [axis.size for axis in self.outer]
        return {
            name: replace(lies, outer=tuple(zip(sizes, self._steps(name), strict=True)))
            for name, lies in matrices.items()
        }

    def steps(self, strides: Mapping[str, int]) -> dict[str, int]:
        """The largest steps that lead to every matrix of each operand, from the strides of the
        batch of a launch."""
        return {name: gcd(stride, *self._steps(name)) for name, stride in strides.items()}

    def offsets(self, sizes: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Bytes from the matrices of the first launch to those of each; `sizes` are those of an
        element."""
        for places in product(*(range(axis.size) for axis in self.outer)):
            yield {
                name: size * sum(map(mul, places, self._steps(name)))
                for name, size in sizes.items()
            }

    def _steps(self, name: str) -> list[int]:
        """The strides of a matrix along the outer axes; a residual lies as C does."""
        return [axis[1 + BY_NAME[name].place] for axis in self.outer]


def batch_shape(a: ArrayInfo, b: ArrayInfo) -> tuple[int, ...]:
    """The batch axes of a matmul: those of A and B, where a size of 1 fits every other.

    Raises:
        ArrayError: if they do not fit each other.
    """
    batches = a.shape[:-2], b.shape[:-2]
    count = max(map(len, batches))
    padded = ((1,) * (count - len(batch)) + batch for batch in batches)
    shape = []
    for first, second in zip(*padded, strict=True):
        if first != second and 1 not in (first, second):
            counts = ("{} and {}" if count == 1 else "({}) and ({})").format(
                *(", ".join(map(str, batch)) for batch in batches)
            )
            raise ArrayError(f"A {a.shape} times B {b.shape}: the batches {counts} differ")
        shape.append(second if first == 1 else first)
    return tuple(shape)


def width_of(b: ArrayInfo, *, gated: bool) -> int:
    """The columns of the result of an operand B: half of its own if they are gated."""
    return b.shape[-1] // 2 if gated else b.shape[-1]


def launches_of(
    a: ArrayInfo, b: ArrayInfo, out: ArrayInfo | None = None, *, gated: bool = False
) -> Launches:
    """The fewest launches with one batch axis that compute a matmul.

    Axes without a gap between them become one. Of those that remain the longest is the batch of a
    launch, and there is a launch for each place along the others.

    Raises:
        ArrayError: if the batches of A and B do not fit each other or that of `out`, or if one of
            several axes runs backwards.
    """
    shape = batch_shape(a, b)
    if len(shape) < 2 or 0 in shape:
        return Launches(a, b, out)
    whole = *shape, a.shape[-2], width_of(b, gated=gated)
    if out is not None and out.shape != whole:
        raise ArrayError(f"out is {out.shape}; the product is {whole}")
    axes = _merged(shape, *(_steps(operand, shape) for operand in (a, b, out)))
    inside = [axis for axis in axes if axis.size <= LARGEST_BATCH] or axes
    batch = max(inside, key=lambda axis: axis.size, default=BatchAxis(1, 0, 0, 0))
    operands = (
        operand and _one_axis(operand, batch.size, stride)
        for operand, stride in zip((a, b, out), batch[1:], strict=True)
    )
    first, second, result = operands
    assert first is not None
    assert second is not None
    return Launches(first, second, result, tuple(axis for axis in axes if axis is not batch))


def _steps(operand: ArrayInfo | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The stride of each batch axis; 0 for those that repeat the operand."""
    if operand is None:
        return (0,) * len(shape)
    absent = len(shape) - (len(operand.shape) - 2)
    pairs = [*zip(operand.shape[:-2], operand.strides[:-2], strict=True)]
    if any(stride < 0 for _, stride in pairs):
        raise ArrayError(
            f"{operand.name} of shape {operand.shape} has strides {operand.strides}; copy it with "
            ".contiguous()"
        )
    return (0,) * absent + tuple(0 if size == 1 else stride for size, stride in pairs)


def _merged(shape: tuple[int, ...], *steps: tuple[int, ...]) -> list[BatchAxis]:
    """The axes longer than 1; neighbours that all operands cross without a gap are one."""
    axes: list[BatchAxis] = []
    for axis in map(BatchAxis, shape, *steps):
        if axis.size == 1:
            continue
        if axes and axes[-1][1:] == tuple(axis.size * stride for stride in axis[1:]):
            axis = axis._replace(size=axes[-1].size * axis.size)
            axes.pop()
        axes.append(axis)
    return axes


def _one_axis(operand: ArrayInfo, size: int, stride: int) -> ArrayInfo:
    """The operand with a batch of one axis."""
    shape, strides = (size, *operand.shape[-2:]), (stride, *operand.strides[-2:])
    return replace(operand, shape=shape, strides=strides)
