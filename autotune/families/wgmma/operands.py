"""The operands of `wgmma`: which one the kernel reads as A and as B, and which are packed first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from autotune.families.plan import VECTOR_BYTES, Alignment
from autotune.families.shared import packing
from autotune.families.shared.layout import along_k
from autotune.problem import Problem
from autotune.problem.integers import round_up

Source = Literal["shared", "streamed", "registers"]
"""Where the tensor cores read the kernel's A: `streamed` is shared memory too, but L2 drops A
first."""
Low = Literal["none", "kernel", "pass"]
"""Where the low part of the kernel's B is made: nowhere, in the kernel, or in a packing pass before
it."""
PackPolicy = Literal["needed", "lines"]
"""Operands to pack: those TMA cannot read, or also those whose rows start within cache lines."""

LINE_BYTES = 128
"""Bytes of a cache line, of a row that one TMA box loads, and of the swizzle."""
PART_BYTES = 256
"""Each part of the workspace starts at a multiple of this."""


def kernel_operands(swap: int) -> tuple[str, str]:
    """The problem's operands that the kernel reads as its A and as its B."""
    return ("b", "a") if swap else ("a", "b")


def across_k(problem: Problem, operand: str) -> bool:
    """Whether an operand has elements of 8 or 32 bits and is not K-contiguous.

    The tensor cores read such elements from shared memory only if they are K-contiguous.
    """
    return problem.element_bytes != 2 and not along_k(problem, operand)


def unaligned_rows(problem: Problem, operand: str) -> bool:
    """Whether dense rows start within cache lines, so that each TMA box reads twice as many."""
    lda, ldb, _ = problem.leading_dimensions
    return (lda if operand == "a" else ldb) * problem.element_bytes % LINE_BYTES != 0


def readable(problem: Problem, alignment: Alignment, operand: str) -> bool:
    """Whether TMA can read an operand in place."""
    width = alignment.a if operand == "a" else alignment.b
    return width * problem.element_bytes == VECTOR_BYTES


def b_is_k_contiguous(problem: Problem, swap: int) -> bool:
    """Whether the kernel's B is K-contiguous as the kernel reads it: 16-bit operands may not be."""
    return problem.element_bytes != 2 or along_k(problem, kernel_operands(swap)[1])


@dataclass(frozen=True)
class OperandPath:
    """How the operands reach the tensor cores."""

    swap: int
    source: Source
    low: Low
    pack: PackPolicy

    def transposes(self, problem: Problem, operand: str) -> bool:
        """Whether the kernel reads a transposed copy of the operand."""
        if not across_k(problem, operand):
            return False
        return self.source != "registers" or operand == kernel_operands(self.swap)[1]

    def k_contiguous(self, problem: Problem, operand: str) -> bool:
        """Whether the rows that the kernel reads run along K."""
        return along_k(problem, operand) or self.transposes(problem, operand)

    def splits(self, operand: str) -> bool:
        """Whether packing also writes the operand's low part."""
        return self.low == "pass" and operand == kernel_operands(self.swap)[1]

    def must_pack(self, problem: Problem, alignment: Alignment, operand: str) -> bool:
        """Whether the kernel cannot read the operand where it is."""
        return (
            self.transposes(problem, operand)
            or self.splits(operand)
            or not readable(problem, alignment, operand)
        )

    def packs(self, problem: Problem, alignment: Alignment, operand: str) -> bool:
        """Whether the operand is packed, because it has to be or for the sake of whole lines."""
        lines = self.pack == "lines" and unaligned_rows(problem, operand)
        return lines or self.must_pack(problem, alignment, operand)

    def copies(self, problem: Problem, alignment: Alignment) -> tuple[packing.Copy, ...]:
        """The packed copies of the operands, one after the other in the workspace."""
        copies: list[packing.Copy] = []
        for operand in ("a", "b"):
            if self.packs(problem, alignment, operand):
                copies.append(
                    packing.copy(
                        problem,
                        operand,
                        transposed=self.transposes(problem, operand),
                        low=self.splits(operand),
                        start=copies_end(copies),
                        line=LINE_BYTES,
                    )
                )
        return tuple(copies)

    def packed_bytes(self, problem: Problem) -> int:
        """Bytes of the packed copies of dense operands, without the gaps between them."""
        return sum(copy.bytes for copy in self.copies(problem, Alignment.dense(problem)))


def copies_end(copies: Sequence[packing.Copy]) -> int:
    """Where the next part of the workspace starts, in bytes."""
    return round_up(copies[-1].start + copies[-1].bytes, PART_BYTES) if copies else 0
