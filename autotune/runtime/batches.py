"""Batches of several axes, as launches with one batch axis each.

A (2, 8, 64, 32), B (8, 32, 16)   -> 2 launches of a batch of 8
A (2, 8, 64, 32) without gaps, B (32, 16)   -> 1 launch of a batch of 16
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from math import gcd
from operator import mul
from typing import NamedTuple

from autotune.errors import ArrayError
from autotune.problem.call import BY_NAME
from autotune.problem.fields import LARGEST_BATCH
from autotune.runtime.arrays import ArrayInfo, MatrixMemory


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
