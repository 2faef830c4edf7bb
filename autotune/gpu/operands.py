"""The operands of one problem in device memory, each between two guards."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from autotune.driver.arguments import Values
from autotune.errors import RunnerError
from autotune.gpu.session import Session
from autotune.problem import ELEMENT_TYPES, Problem

GUARD = 4096
"""Bytes before and after each buffer; a multiple of every alignment in use."""

GUARDS = 64 * GUARD
"""More than the guards of all buffers take."""


@dataclass(frozen=True)
class Matrix:
    """The row-major matrices of a batch amid their guards; lengths are in elements.

    Attributes:
        rows: of each matrix.
        columns: elements a row.
        leading_dimension: from one row to the next.
        batch: how many matrices there are; 1 where a whole batch shares one.
        stride: from one matrix to the next.
        type: of the elements, and of those of the guards.
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

    def placed(self, session: Session) -> Matrix:
        """The same in memory of its own."""
        return replace(self, allocation=session.allocate(self.bytes + 2 * GUARD))

    @property
    def address(self) -> int:
        """Where the first element is."""
        return int(self.allocation) + GUARD

    @property
    def length(self) -> int:
        """From the first element to the last, gaps included."""
        last_row = (self.batch - 1) * self.stride + (self.rows - 1) * self.leading_dimension
        return last_row + self.columns

    @property
    def bytes(self) -> int:
        """From the first element to the last, gaps included."""
        return ELEMENT_TYPES[self.type].bytes * self.length

    @property
    def region(self) -> tuple[int, int, int, int, int, int, int]:
        """What `fill` and `check` take: memory, guard, length, columns, and the groups of rows."""
        guard = GUARD // ELEMENT_TYPES[self.type].bytes
        return int(self.allocation), guard, self.length, self.columns, *self.groups

    @property
    def groups(self) -> tuple[int, int, int]:
        """The rows as `verify.cu` finds them: from one to the next, how many of them make a group,
        and from one group to the next. A group is a matrix, or the same row of all matrices."""
        matrix = (self.rows - 1) * self.leading_dimension + self.columns
        row_of_all = (self.batch - 1) * self.stride + self.columns
        if self.batch == 1:
            return max(1, self.leading_dimension), self.rows, max(1, matrix)
        if matrix <= self.stride:
            return self.leading_dimension, self.rows, self.stride
        if self.columns <= self.stride and row_of_all <= self.leading_dimension:
            return self.stride, self.batch, self.leading_dimension
        raise RunnerError(
            f"matrices of {self.rows} rows, {self.leading_dimension} elements apart, overlap with "
            f"a stride of {self.stride}; give at least {matrix}"
        )


class Scratch:
    """A vector of 4-byte words that grows, always of the length last asked for, so that a write
    past its end hits the guard."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._capacity = 0
        self.matrix = _vector(0).placed(session)

    def resize(self, words: int) -> None:
        """Makes the vector `words` long. Its memory only moves when it has to grow.

        Raises:
            pycuda.driver.MemoryError: if there is too little.
        """
        if words > self._capacity:
            self._capacity = 0
            self.matrix = _vector(0).placed(self._session)  # frees the old one first
            size, free = _vector(words).bytes + 2 * GUARD, self._session.free_bytes()
            if size > free:
                raise self._session.cuda.MemoryError(
                    f"workspace: needs {size / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"
                )
            self.matrix = _vector(words).placed(self._session)
            self._capacity = words
        self.matrix = replace(_vector(words), allocation=self.matrix.allocation)

    def clear(self) -> None:
        """Puts zeros, also where shorter vectors had their guard."""
        if self._capacity:
            stream = self._session.stream
            self._session.cuda.memset_d32_async(self.matrix.address, 0, self._capacity, stream)


class Operands:
    """A, B, C, the bias, what kernels use besides, and the float64 product of A and B (no gaps).

    Attributes:
        problem: the problem.
        leading_dimensions: elements from one row to the next of A, B and C as they are stored.
        strides: elements from one matrix of a batch to the next, of A, B and C.
        a, b, c, bias: the operands; a matrix that a batch shares is there once.
        product: float64, m x n for each matrix of the batch.
    """

    def __init__(
        self,
        session: Session,
        problem: Problem,
        leading_dimensions: tuple[int, int, int] | None = None,
        strides: tuple[int, int, int] | None = None,
    ) -> None:
        """Allocates all of it; what is not given is as without gaps.

        Raises:
            RunnerError: if the device has too little free memory, or matrices overlap.
        """
        self.problem = problem
        self.leading_dimensions = leading_dimensions or problem.leading_dimensions
        shapes = tuple(zip(problem.stored_rows, problem.leading_dimensions, strict=True))
        lines = tuple(zip(shapes, self.leading_dimensions, strict=True))
        stride_a, stride_b, stride_c = strides or (rows * ld for (rows, _), ld in lines)
        self.strides = stride_a, stride_b, stride_c
        if problem.batch > 1 and not stride_c:
            raise RunnerError(f"{problem}: all products at one place; give C a stride")
        types = (problem.operand_type, problem.operand_type, problem.output_type)
        matrices = [
            Matrix(rows, columns, ld, problem.batch if stride else 1, stride, kind)
            for ((rows, columns), ld), stride, kind in zip(lines, self.strides, types, strict=True)
        ]
        matrices.append(_vector(problem.n, problem.output_type))
        product = _product_bytes(problem)
        _check_memory(session, problem, sum(one.bytes for one in matrices) + product)
        self.a, self.b, self.c, self.bias = (one.placed(session) for one in matrices)
        self.product = session.allocate(product)
        self._workspace, self._counters = Scratch(session), Scratch(session)

    @property
    def workspace(self) -> Matrix:
        """What kernels may use freely."""
        return self._workspace.matrix

    @property
    def counters(self) -> Matrix:
        """What kernels find as zeros and leave as zeros."""
        return self._counters.matrix

    def reserve(self, workspace: int, counters: int) -> None:
        """Makes the workspace exactly so many bytes and the counters so many words.

        Raises:
            pycuda.driver.MemoryError: if there is too little.
        """
        self._workspace.resize(-(-workspace // 4))
        self._counters.resize(counters)

    def clear_counters(self) -> None:
        """Zeros for kernels that were verified one after the other, each with its own length."""
        self._counters.clear()

    def values(self, alpha: float, beta: float) -> Values:
        """What the symbolic arguments of a launch stand for."""
        lda, ldb, ldc = self.leading_dimensions
        stride_a, stride_b, stride_c = self.strides
        return {
            "a": self.a.address,
            "b": self.b.address,
            "c": self.c.address,
            "bias": self.bias.address if self.problem.has_bias else 0,
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


def needed(problem: Problem) -> int:
    """Bytes of device memory that operands without gaps take, the guards included."""
    bias = problem.output_bytes * problem.n
    return problem.bytes + bias + _product_bytes(problem) + GUARDS


def _product_bytes(problem: Problem) -> int:
    return 8 * problem.batch * problem.m * problem.n


def _vector(length: int, type: str = "f32") -> Matrix:
    return Matrix(1, length, length, type=type)


def _check_memory(session: Session, problem: Problem, needed: int) -> None:
    """Raises a `RunnerError` unless so much memory is free, with some to spare for the guards."""
    needed += GUARDS
    if needed > (free := session.free_bytes()):
        smaller = "shape or batch" if problem.batch > 1 else "shape"
        raise RunnerError(
            f"{problem}: verification needs {needed / 2**30:.1f} GiB of device memory, "
            f"{session.device.name} has {free / 2**30:.1f} GiB free; choose a smaller {smaller}"
        )
