"""The 8-bit problems that the vendor's library accepts, and the sizes to pad others to."""

from __future__ import annotations

from autotune.problem.fields import SCALE_BLOCK
from autotune.problem.integers import round_up
from autotune.problem.problem import Problem

LAYOUT = "nt"
"""The layout in which PyTorch's 8-bit functions read A and B."""
ALIGNED = 16
"""N and K that are no multiple of it are refused in fp8, and padded to it."""
INTEGER_ALIGNED, FEWEST_ROWS, PADDED_ROWS = 8, 17, 32
"""`torch._int_mm` refuses N and K that are no multiple of 8, and less than 17 rows."""
BLOCKS_ALIGNED, ROWS_ALIGNED = 4, 4
"""Scales along K, and rows, of 1 x 128 blocks come in multiples of these."""


def library_sizes(problem: Problem) -> tuple[int, int, int]:
    """M, N and K of the smallest 8-bit problem that contains this one and is not refused."""
    m, n, k = problem.m, problem.n, problem.k
    if problem.operand_elements[0].integer:
        accepted = n % INTEGER_ALIGNED == k % INTEGER_ALIGNED == 0
        rows = m if m >= FEWEST_ROWS else PADDED_ROWS
        return (rows, n, k) if accepted else (rows, round_up(n, ALIGNED), round_up(k, ALIGNED))
    if problem.scale == "block":
        whole = BLOCKS_ALIGNED * SCALE_BLOCK
        return round_up(m, ROWS_ALIGNED), round_up(n, SCALE_BLOCK), round_up(k, whole)
    return m, round_up(n, ALIGNED), round_up(k, ALIGNED)


def is_padded(problem: Problem) -> bool:
    """Whether the vendor baseline reads padded or transposed copies of the operands."""
    if not problem.precision.eight_bit:
        return False
    sizes = problem.m, problem.n, problem.k
    return problem.layout != LAYOUT or library_sizes(problem) != sizes
