"""The operands of one problem in device memory, each between two guards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from autotune.errors import RunnerError
from autotune.gpu.session import Session, Values
from autotune.problem import Problem

GUARD = 1024
"""Words of 4 bytes before and after each buffer; a multiple of every alignment in use."""


@dataclass(frozen=True)
class Matrix:
    """A row-major matrix of 4-byte words amid its guards.

    Attributes:
        allocation: the device memory, which starts with a guard.
        words: from the first element to the last, gaps between rows included.
        columns: elements a row.
        leading_dimension: words from one row to the next.
    """

    allocation: Any
    words: int
    columns: int
    leading_dimension: int

    @property
    def address(self) -> int:
        """Where the first element is."""
        return int(self.allocation) + 4 * GUARD

    @property
    def region(self) -> tuple[int, int, int, int, int]:
        """What `fill` and `check` take: memory, guard, words, columns, leading dimension."""
        start = int(self.allocation)
        return start, GUARD, self.words, self.columns, self.leading_dimension


class Operands:
    """A, B, C, a workspace that grows, and the float64 product of A and B (no gaps).

    Attributes:
        problem: the problem.
        leading_dimensions: words from one row to the next of A, B and C as they are stored.
    """

    def __init__(
        self,
        session: Session,
        problem: Problem,
        leading_dimensions: tuple[int, int, int] | None = None,
    ) -> None:
        """Allocates all of it.

        Raises:
            RunnerError: if the device has too little free memory.
        """
        self._session = session
        self.problem = problem
        self.leading_dimensions = leading_dimensions or problem.leading_dimensions
        shapes = stored_shapes(problem)
        words = [
            (rows - 1) * ld + columns
            for (rows, columns), ld in zip(shapes, self.leading_dimensions, strict=True)
        ]
        product = 8 * problem.m * problem.n
        needed = 4 * sum(words) + product + 32 * GUARD
        if needed > (free := session.free_bytes()):
            raise RunnerError(
                f"{problem}: verification needs {needed / 2**30:.1f} GiB of device memory, "
                f"{session.device.name} has {free / 2**30:.1f} GiB free; choose a smaller shape"
            )
        self.a, self.b, self.c = (
            self._matrix(count, columns, ld)
            for count, (_, columns), ld in zip(words, shapes, self.leading_dimensions, strict=True)
        )
        self.product = session.allocate(product)
        self.workspace = self._matrix(0, 0, 0)
        self._capacity = 0

    def reserve(self, size: int) -> None:
        """Makes the workspace exactly `size` bytes, so that a write past its end is seen.

        The memory is only given back when more of it is needed.

        Raises:
            pycuda.driver.MemoryError: if there is too little.
        """
        words = -(-size // 4)
        if words > self._capacity:
            self._capacity = 0
            self.workspace = self._matrix(0, 0, 0)  # frees the old one before the new one is made
            if size > (free := self._session.free_bytes()):
                raise self._session.cuda.MemoryError(
                    f"workspace: needs {size / 2**30:.1f} GiB, {free / 2**30:.1f} GiB are free"
                )
            self.workspace = self._matrix(words, words, words)
            self._capacity = words
        self.workspace = Matrix(self.workspace.allocation, words, words, words)

    def values(self, alpha: float, beta: float) -> Values:
        """What the symbolic arguments of a launch stand for."""
        lda, ldb, ldc = self.leading_dimensions
        return {
            "a": self.a.address,
            "b": self.b.address,
            "c": self.c.address,
            "workspace": self.workspace.address,
            "lda": lda,
            "ldb": ldb,
            "ldc": ldc,
            "alpha": alpha,
            "beta": beta,
        }

    def _matrix(self, words: int, columns: int, leading_dimension: int) -> Matrix:
        allocation = self._session.allocate(4 * (words + 2 * GUARD))
        return Matrix(allocation, words, columns, leading_dimension)


def stored_shapes(problem: Problem) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]]:
    """(rows, columns) of A, B and C as they are stored."""
    m, n, k = problem.m, problem.n, problem.k
    return (
        (m, k) if problem.layout[0] == "n" else (k, m),
        (k, n) if problem.layout[1] == "n" else (n, k),
        (m, n),
    )
