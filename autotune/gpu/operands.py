"""The operands of one problem in device memory, each between two guard regions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from autotune.driver.arguments import Values
from autotune.errors import RunnerError
from autotune.gpu.session import Session
from autotune.problem import ELEMENT_TYPES, Problem
from autotune.problem.integers import ceil_div

GUARD = 4096
"""Bytes of guard before and after each buffer; a multiple of every alignment in use."""

GUARDS = 64 * GUARD
"""Bytes that the guards of all buffers take at most."""


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


class Scratch:
    """A growing vector of 4-byte words, always of the length last requested, so that a write past
    its end hits the guard."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._capacity = 0
        self.matrix = _vector(0).allocated(session)

    def resize(self, words: int) -> None:
        """Makes the vector `words` long; its memory moves only if it has to grow.

        Raises:
            pycuda.driver.MemoryError: if too little memory is free.
        """
        if words > self._capacity:
            self._capacity = 0
            self.matrix = _vector(0).allocated(self._session)  # frees the old one first
            size, free = _vector(words).bytes + 2 * GUARD, self._session.free_bytes()
            if size > free:
                raise self._session.cuda.MemoryError(
                    f"workspace: needs {size / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"
                )
            self.matrix = _vector(words).allocated(self._session)
            self._capacity = words
        self.matrix = replace(_vector(words), allocation=self.matrix.allocation)

    def clear(self) -> None:
        """Zeroes the memory, including where shorter vectors had their guard."""
        if self._capacity:
            stream = self._session.stream
            self._session.cuda.memset_d32_async(self.matrix.address, 0, self._capacity, stream)


class Operands:
    """A, B, C, the bias, workspace and counters, and the float64 reference A B (no gaps).

    Attributes:
        problem: the problem.
        leading_dimensions: elements from one row to the next of A, B and C as they are stored.
        strides: elements from one matrix of a batch to the next, of A, B and C.
        a, b, c, bias: the operands; a matrix that a batch shares exists once.
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
        matrices.append(_vector(problem.n, problem.output_type))
        reference = _reference_bytes(problem)
        _check_memory(session, problem, sum(matrix.bytes for matrix in matrices) + reference)
        self.a, self.b, self.c, self.bias = (matrix.allocated(session) for matrix in matrices)
        self.reference = session.allocate(reference)
        self._workspace, self._counters = Scratch(session), Scratch(session)

    @property
    def workspace(self) -> GuardedMatrix:
        """Memory that kernels may use freely."""
        return self._workspace.matrix

    @property
    def counters(self) -> GuardedMatrix:
        """Counters, which are zero when a kernel starts and have to be zero when it ends."""
        return self._counters.matrix

    def reserve(self, workspace: int, counters: int) -> None:
        """Sets the workspace to exactly `workspace` bytes and the counters to `counters` words.

        Raises:
            pycuda.driver.MemoryError: if too little memory is free.
        """
        self._workspace.resize(ceil_div(workspace, 4))
        self._counters.resize(counters)

    def clear_counters(self) -> None:
        """Zeroes the counters for kernels that were verified in turn, each with its own length."""
        self._counters.clear()

    def values(self, alpha: float, beta: float) -> Values:
        """Values of the symbolic arguments of a launch."""
        lda, ldb, ldc = self.leading_dimensions
        stride_a, stride_b, stride_c = self.strides
        return {
            "a": self.a.address,
            "b": self.b.address,
            "c": self.c.address,
            "bias": self.bias.address if self.problem.has_bias else 0,
            "scale_a": 0,
            "scale_b": 0,
            "workspace": self.workspace.address,
            "counters": self.counters.address,
            "lda": lda,
            "ldb": ldb,
            "ldc": ldc,
            "stride_a": stride_a,
            "stride_b": stride_b,
            "stride_c": stride_c,
            "alpha": alpha,
            "beta": beta,
        }


def operand_bytes(problem: Problem) -> int:
    """Bytes of device memory that operands without gaps take, guards included."""
    bias = problem.output_bytes * problem.n
    return problem.bytes + bias + _reference_bytes(problem) + GUARDS


def _reference_bytes(problem: Problem) -> int:
    return 8 * problem.batch * problem.m * problem.n


def _vector(length: int, type: str = "f32") -> GuardedMatrix:
    return GuardedMatrix(1, length, length, type=type)


def _check_memory(session: Session, problem: Problem, needed: int) -> None:
    """Raises a `RunnerError` unless `needed` bytes and the guards fit into free memory."""
    needed += GUARDS
    if needed > (free := session.free_bytes()):
        smaller = "shape or batch" if problem.batch > 1 else "shape"
        raise RunnerError(
            f"{problem}: verification needs {needed / 2**30:.1f} GiB of device memory, "
            f"{session.device.name} has {free / 2**30:.1f} GiB free; choose a smaller {smaller}"
        )
