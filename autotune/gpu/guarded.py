"""Matrices and scales in device memory, each between two guard regions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from autotune.errors import RunnerError
from autotune.gpu.session import Session
from autotune.problem import ELEMENT_TYPES, Problem

GUARD = 4096
"""Bytes of guard before and after each buffer; a multiple of every alignment in use."""


@dataclass(frozen=True)
class GuardedMatrix:
    """The row-major matrices of a batch between their guards; lengths are in elements.

    Attributes:
        rows: rows of each matrix.
        columns: elements of a row.
        leading_dimension: elements from one row to the next.
        batch: number of matrices; 1 where a whole batch shares one.
        stride: elements from one matrix to the next.
        type: type of the elements, and of the guards.
        allocation: the device memory, which starts with a guard.

    Raises:
        RunnerError: if matrices overlap.
    """

    rows: int
    columns: int
    leading_dimension: int
    batch: int = 1
    stride: int = 0
    type: str = "f32"
    allocation: Any = None

    def __post_init__(self) -> None:
        _ = self.groups

    def allocated(self, session: Session) -> GuardedMatrix:
        """The same matrices with device memory of their own."""
        return replace(self, allocation=session.allocate(self.bytes + 2 * GUARD))

    @cached_property
    def address(self) -> int:
        """Address of the first element."""
        return int(self.allocation) + GUARD

    @property
    def length(self) -> int:
        """Elements from the first to the last, gaps included."""
        last_row = (self.batch - 1) * self.stride + (self.rows - 1) * self.leading_dimension
        return last_row + self.columns

    @property
    def bytes(self) -> int:
        """Bytes from the first element to the last, gaps included."""
        return ELEMENT_TYPES[self.type].bytes * self.length

    @property
    def guarded_length(self) -> int:
        """Elements of the whole allocation, both guards included."""
        return self.length + 2 * GUARD // ELEMENT_TYPES[self.type].bytes

    @cached_property
    def region(self) -> tuple[int, int, int, int, int, int, int]:
        """Arguments of `fill` and `check`: memory, guard, length, columns, and the row groups.

        Kept, because every verification passes it several times.
        """
        guard = GUARD // ELEMENT_TYPES[self.type].bytes
        return int(self.allocation), guard, self.length, self.columns, *self.groups

    @property
    def side_by_side(self) -> bool:
        """Whether a group is the same row of all matrices."""
        matrix = (self.rows - 1) * self.leading_dimension + self.columns
        return self.batch > 1 and matrix > self.stride

    @property
    def groups(self) -> tuple[int, int, int]:
        """Row groups as `verify.cu` takes them: row pitch, rows of a group, group pitch.

        A group is a matrix, or the same row of all matrices.
        """
        matrix = (self.rows - 1) * self.leading_dimension + self.columns
        interleaved_row = (self.batch - 1) * self.stride + self.columns
        if self.batch == 1:
            return max(1, self.leading_dimension), self.rows, max(1, matrix)
        if not self.side_by_side:
            return self.leading_dimension, self.rows, self.stride
        if self.columns <= self.stride and interleaved_row <= self.leading_dimension:
            return self.stride, self.batch, self.leading_dimension
        raise RunnerError(
            f"matrices of {self.rows} rows, {self.leading_dimension} elements apart, overlap with "
            f"a stride of {self.stride}; give at least {matrix}"
        )


def vector(length: int, type: str = "f32") -> GuardedMatrix:
    """Adjacent elements, without device memory."""
    return GuardedMatrix(1, length, length, type=type)


@dataclass(frozen=True)
class OperandScales:
    """The scales of an operand, without gaps.

    Attributes:
        vector: the scales between their guards.
        batch: matrices with scales of their own.
        count: scales of a matrix at one place of K.
        blocks: scales along K.
    """

    vector: GuardedMatrix
    batch: int
    count: int
    blocks: int

    @classmethod
    def of(cls, problem: Problem, side: int) -> OperandScales:
        """The scales of A (side 0) or B, without device memory."""
        shape = problem.scale_shapes[side] if problem.scale_shapes else (0,)
        elements = vector(problem.scale_counts[side])
        if problem.scale == "block":
            batch, *sizes = shape
            return cls(elements, batch, sizes[side == 0], sizes[side == 1])
        return cls(elements, math.prod(shape[:-1]), shape[-1], 1)

    def allocated(self, session: Session) -> OperandScales:
        """The same scales with device memory of their own."""
        return replace(self, vector=self.vector.allocated(session))
