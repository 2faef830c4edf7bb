"""Matrices and scales in device memory, each between two guard regions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.cuda.launches import Values
from autotune.errors import RunnerError
from autotune.measure.measurement import Failure
from autotune.measure.runner import RowReference
from autotune.measure.session import Session
from autotune.problem import ELEMENT_TYPES, Problem
from autotune.problem.call import BY_NAME, Call
from autotune.problem.integers import ceil_div

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
        """A copy of the description with device memory of its own."""
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
        """A copy of the description with device memory of its own."""
        return replace(self, vector=self.vector.allocated(session))


GUARDS = 64 * GUARD
"""Bytes that the guards of all buffers take at most."""


class Workspace:
    """A growing vector of 4-byte words, always of the length last requested, so that a write past
    its end hits the guard."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._capacity = 0
        self.matrix = vector(0).allocated(session)

    def resize(self, words: int) -> None:
        """Makes the vector `words` long; its memory moves only if it has to grow.

        Raises:
            Exception: `session.MemoryError`, if too little memory is free.
        """
        if words > self._capacity:
            self._capacity = 0
            self.matrix = vector(0).allocated(self._session)  # frees the old one first
            size, free = vector(words).bytes + 2 * GUARD, self._session.free_bytes()
            if size > free:
                raise self._session.MemoryError(
                    f"workspace: needs {size / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"
                )
            self.matrix = vector(words).allocated(self._session)
            self._capacity = words
        self.matrix = replace(vector(words), allocation=self.matrix.allocation)

    def clear(self) -> None:
        """Zeroes the memory, including where shorter vectors had their guard."""
        if self._capacity:
            self._session.fill(self.matrix.address, 0, self._capacity)


class Operands:
    """The operands, workspace and counters, and the float64 reference A B (no gaps).

    Attributes:
        problem: the problem.
        leading_dimensions: elements from one row to the next of A, B and C as they are stored.
        strides: elements from one matrix of a batch to the next, of A, B and C.
        a, b, c, bias: the operands; a matrix that a batch shares exists once.
        residual: a matrix like C whose rows have twice as large gaps; empty where the problem has
            none.
        scale_a, scale_b: the scales of A and B; none where the problem has none.
        result: the scale of an fp8 C and `amax`, which its largest size raises; else empty.
        scale_of_c: the value of that scale.
        reference: the float64 product of A and B, m x n for each matrix of the batch.
    """

    def __init__(
        self,
        session: Session,
        problem: Problem,
        leading_dimensions: tuple[int, int, int] | None = None,
        strides: tuple[int, int, int] | None = None,
    ) -> None:
        """Allocates everything; leading dimensions and strides default to those without gaps.

        Raises:
            RunnerError: if the device has too little free memory, or matrices overlap.
        """
        self.problem = problem
        self.leading_dimensions = leading_dimensions or problem.leading_dimensions
        columns_abc, ld_abc = problem.leading_dimensions, self.leading_dimensions
        layouts = tuple(zip(problem.stored_rows, columns_abc, ld_abc, strict=True))
        stride_a, stride_b, stride_c = strides or (rows * ld for rows, _, ld in layouts)
        self.strides = stride_a, stride_b, stride_c
        if problem.batch > 1 and not stride_c:
            raise RunnerError(f"{problem}: all matrices of C in one place; give C a stride")
        types = (*problem.operand_types, problem.output_type)
        matrices = [
            GuardedMatrix(rows, columns, ld, problem.batch if stride else 1, stride, kind)
            for (rows, columns, ld), stride, kind in zip(layouts, self.strides, types, strict=True)
        ]
        matrices.append(vector(problem.n, problem.bias_element.name))
        residual = _residual(problem, self.leading_dimensions[2])
        scales = [OperandScales.of(problem, side) for side in (0, 1)]
        reference = _reference_bytes(problem)
        buffers = *matrices, residual, *(scale.vector for scale in scales)
        _check_memory(session, problem, sum(matrix.bytes for matrix in buffers) + reference)
        self.a, self.b, self.c, self.bias = (matrix.allocated(session) for matrix in matrices)
        self.residual = residual.allocated(session)
        self.result = vector(2 if problem.has_fp8_output else 0).allocated(session)
        self.scale_of_c = 1.0
        self.scale_a, self.scale_b = (scale.allocated(session) for scale in scales)
        self.reference = session.allocate(reference)
        self._workspace, self._counters = Workspace(session), Workspace(session)

    @property
    def workspace(self) -> GuardedMatrix:
        """Memory that kernels may use freely."""
        return self._workspace.matrix

    @property
    def counters(self) -> GuardedMatrix:
        """Counters, which are zero when a kernel starts and have to be zero when it ends."""
        return self._counters.matrix

    @cached_property
    def addresses(self) -> Mapping[str, int]:
        """The addresses of the operands by their names in launch plans; 0 for absent ones."""
        buffers = {
            **{"a": self.a, "b": self.b, "c": self.c, "bias": self.bias, "residual": self.residual},
            **{"scale_a": self.scale_a.vector, "scale_b": self.scale_b.vector},
            "scale_c": self.result,
        }
        addresses = {
            name: matrix.address if BY_NAME[name].present(self.problem) else 0
            for name, matrix in buffers.items()
        }
        return {**addresses, "amax": addresses["scale_c"] and addresses["scale_c"] + 4}

    def reserve(self, workspace: int, counters: int) -> None:
        """Sets the workspace to exactly `workspace` bytes and the counters to `counters` words.

        Raises:
            Exception: `session.MemoryError`, if too little memory is free.
        """
        self._workspace.resize(ceil_div(workspace, 4))
        self._counters.resize(counters)

    def clear_counters(self) -> None:
        """Zeroes the counters for kernels that were verified in turn, each with its own length."""
        self._counters.clear()

    def values(self, alpha: float, beta: float) -> Values:
        """Values of the symbolic arguments of a launch."""
        pitches = dict(zip("abc", self.leading_dimensions, strict=True))
        strides = dict(zip("abc", self.strides, strict=True))
        pitches["residual"] = self.residual.leading_dimension
        strides["residual"] = self.residual.stride
        scratch = {"workspace": self.workspace.address, "counters": self.counters.address}
        return {**Call(self.addresses, pitches, strides, alpha, beta).words(), **scratch}


def _residual(problem: Problem, leading_dimension: int) -> GuardedMatrix:
    """A residual whose rows lie further apart than those of C, if these have gaps; without device
    memory."""
    if not problem.has_residual:
        return vector(0, problem.output_type)
    leading = 2 * leading_dimension - problem.width
    sizes = problem.m, problem.width, leading, problem.batch
    return GuardedMatrix(*sizes, problem.m * leading, problem.output_type)


def operand_bytes(problem: Problem) -> int:
    """Bytes of device memory that operands without gaps take, guards included."""
    bias = problem.bias_element.bytes * problem.n
    return problem.bytes + bias + _reference_bytes(problem) + GUARDS


def _reference_bytes(problem: Problem) -> int:
    return 8 * problem.batch * problem.m * problem.n


def _check_memory(session: Session, problem: Problem, needed: int) -> None:
    """Raises a `RunnerError` unless `needed` bytes and the guards fit into free memory."""
    needed += GUARDS
    if needed > (free := session.free_bytes()):
        smaller = "shape or batch" if problem.batch > 1 else "shape"
        raise RunnerError(
            f"{problem}: verification needs {needed / 2**30:.1f} GiB of device memory, "
            f"{session.device.name} has {free / 2**30:.1f} GiB free; choose a smaller {smaller}"
        )


SCALE_BYTES = 4
"""Bytes of the scale of a row."""


def row_fault(session: Session, operands: Operands, reference: RowReference) -> Failure | None:
    """The failure if rows of the C that the last run left have other bits than the reference's.

    Both launches read the same operands, at alpha = 1 and beta = 0. C has the reference's rows
    afterwards.
    """
    first, rows, candidate = reference.first, reference.rows, reference.candidate
    before = _read_rows(session, operands, first, rows)
    operands.reserve(candidate.plan.workspace, candidate.plan.counters)
    operands.clear_counters()
    session.bind(candidate)(shifted(operands, first))()
    differing = np.flatnonzero((before != _read_rows(session, operands, first, rows)).any(1))
    if not len(differing):
        return None
    return Failure(
        "verify",
        f"{len(differing)} of the {rows} rows {first} to {first + rows - 1} have other bits than "
        f"with m={rows} by {candidate.config}",
    )


def _read_rows(session: Session, operands: Operands, first: int, rows: int) -> NDArray[Any]:
    """The bytes of rows of the first C, without the gaps behind them."""
    matrix, problem = operands.c, operands.problem
    pitch, width = (problem.output_bytes * n for n in (matrix.leading_dimension, problem.width))
    lines = np.empty((rows, pitch), np.uint8)
    size = (rows - 1) * pitch + width
    session.download(lines.reshape(-1)[:size], matrix.address + first * pitch)
    return lines[:, :width]


def shifted(operands: Operands, first: int) -> Values:
    """The values of a launch's arguments for the rows of C from `first` on."""
    problem, values = operands.problem, operands.values(1.0, 0.0)
    along_k = problem.layout[0] == "n"
    steps = {
        "a": problem.element_bytes * (values["lda"] if along_k else 1),
        "c": problem.output_bytes * values["ldc"],
        "residual": problem.output_bytes * values["ldr"],
        "scale_a": SCALE_BYTES if problem.scale == "row" else 0,
    }
    moved = {name: values[name] + first * step for name, step in steps.items() if values[name]}
    return {**values, **moved}
