"""Parameters of `gemv`, and what follows from them."""

from __future__ import annotations

from dataclasses import dataclass, field

from autotune.families.parameters import values
from autotune.families.shared.layout import transposed
from autotune.problem import Problem
from autotune.problem.integers import ceil_div, round_up

ROWS = (1, 2, 4, 8, 16)
VECTOR = 4
"""Floats of a vector."""
OTHER_REGISTERS = 32
"""Registers besides the sums and operands."""
PADDED_ROWS = 8
"""Rows of the smaller operand from which on its rows in shared memory are padded by a vector."""
SPLITS = (
    *(1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64),
    *(80, 96, 128, 160, 192, 256, 320, 384, 512),
)


def is_transposed(problem: Problem) -> bool:
    """Whether C^T is computed instead of C: C has fewer columns than rows."""
    return problem.m > problem.n


def oriented(problem: Problem) -> Problem:
    """The problem that the kernel computes, with no more rows than columns."""
    return transposed(problem) if is_transposed(problem) else problem


@dataclass(frozen=True)
class Strip:
    """Columns of C that a block computes."""

    columns: int
    across: int

    @property
    def width(self) -> int:
        """Columns of a strip."""
        return self.columns * self.across

    def strips(self, oriented: Problem) -> int:
        """Blocks side by side along N."""
        return ceil_div(oriented.n, self.width)


@dataclass(frozen=True)
class Block(Strip):
    """The threads of a block and the batch of operands that they load at a time."""

    depth: int
    ways: int

    @property
    def threads(self) -> int:
        """Threads a block."""
        return self.across * self.ways

    @property
    def batch_steps(self) -> int:
        """Steps of K of a batch, by all `ways`."""
        return self.ways * self.depth


@dataclass(frozen=True)
class SplitK:
    """Blocks that share K."""

    split_k: int

    def steps(self, oriented: Problem) -> int:
        """Steps of K of a block: whole vectors, except for the last block."""
        return min(oriented.k, round_up(ceil_div(oriented.k, self.split_k), VECTOR))


@dataclass(frozen=True)
class GemvBuffers(Block):
    """The sums that a thread keeps in registers, and a block's batches in shared memory."""

    rows: int
    stages: int

    @property
    def tile(self) -> int:
        """Elements of C that a block computes."""
        return self.rows * self.width

    @property
    def registers(self) -> int:
        """Estimated registers a thread: sums, the values of a step or of a batch, and others."""
        values_ahead = self.depth if self.stages == 1 else VECTOR
        return self.columns * (self.rows + values_ahead) + self.rows + OTHER_REGISTERS

    def shared_bytes(self, b_along_k: bool) -> int:
        """Shared memory of the batches, and later of the sums of all threads.

        Args:
            b_along_k: whether the rows of B run along K as it is stored.
        """
        rows, steps = self.rows, self.batch_steps
        padded = rows + VECTOR if rows >= PADDED_ROWS else rows
        small = rows * (steps + VECTOR) if b_along_k else steps * padded
        large = self.threads * self.columns * self.depth if self.stages > 1 else 0
        batches = max(2, self.stages) * (small + large)
        sums = self.threads * rows * self.columns
        return 4 * max(batches, sums)


@dataclass(frozen=True)
class GemvParams(GemvBuffers, SplitK):
    """Parameters of `gemv`, which computes C, or C^T if C has fewer columns than rows.

    Attributes:
        rows: rows of C; a thread has a sum for each of them in each of its columns.
        columns: columns of a thread.
        depth: steps of K that a thread loads at a time.
        across: threads of a block along N.
        ways: threads of a block along K.
        split_k: blocks that share K; the last to finish a strip adds up the sums.
        stages: 1 loads batches through registers; with more, cp.async loads `stages` - 1 of them
            ahead.
    """

    rows: int = field(metadata=values(*ROWS))
    columns: int = field(metadata=values(1, 2, 4, 8))
    depth: int = field(metadata=values(4, 8, 16, 32))
    across: int = field(metadata=values(1, 2, 4, 8, 16, 32, 64))
    ways: int = field(metadata=values(1, 2, 4, 8, 16, 32, 64, 128, 256, 512))
    split_k: int = field(metadata=values(*SPLITS))
    stages: int = field(metadata=values(1, 2, 3, 4))

    def blocks(self, oriented: Problem) -> int:
        """Blocks over the whole batch."""
        return self.strips(oriented) * self.split_k * oriented.batch
