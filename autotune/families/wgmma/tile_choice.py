"""The tiles of `wgmma` worth trying on a problem, and whether C is computed transposed."""

from __future__ import annotations

from functools import cache
from math import gcd

from autotune.device import Device
from autotune.families.shared.k_sharing import LAST_BLOCK_BYTES
from autotune.families.shared.layout import along_k
from autotune.families.wgmma.operands import LINE_BYTES, kernel_operands
from autotune.families.wgmma.resources import INSTRUCTION_ROWS
from autotune.problem import GATE_SPAN, SCALE_BLOCK, Problem
from autotune.problem.integers import ceil_div, round_up

TILE_ROWS = (64, 128, 192, 256)
"""Values of tile_m."""
COARSE = (64, 96, 128, 160, 192, 224, 256)
"""Values of tile_n beside those that cut N into equal parts."""
SPAN_ROWS = 64
"""Elements that one TMA box loads along N of a 16-bit operand that is not K-contiguous."""
LEAST_COLUMNS, BEST_COLUMNS = 32, 6
"""The least tile_n of a long side, and the number of values that are tried with each tile_m."""
L2_BYTES_A_CYCLE = 55
"""Bytes that L2 serves every SM in a cycle (H200)."""
LARGEST_COLUMNS, COLUMN_STEP = 256, 8
COLUMNS = range(COLUMN_STEP, LARGEST_COLUMNS + 1, COLUMN_STEP)
"""An instruction computes 8 to 256 columns, in steps of 8."""
INTEGER_COLUMNS = 32
"""Columns of an instruction of int8 up to which it has every multiple of 8."""
PARTS = (1, 2, 3, 4, 8)
"""Numbers of tiles that a short side is cut into."""
SPLIT_ITERATIONS, FEW_ITERATIONS = 4, 16
"""The least k-iterations of a split, halved if a tile has fewer than 16."""
SHORT, FEW_ROWS = 64, 32
"""M up to which C may better be computed transposed, and up to which it has to be."""


def swaps(problem: Problem) -> tuple[int, ...]:
    """Values of `swap`: whether to compute C, its transpose, or to try both.

    tile_m comes in steps of 64 and tile_n in steps of 8, so a short side becomes tile_n. The
    kernel's B must be K-contiguous if it has 32-bit elements; its A need not be.
    """
    short = _short(problem)
    a, b = along_k(problem, "a"), along_k(problem, "b")
    if problem.element_bytes < 4:
        return (0, 1) if min(problem.m, problem.n) > FEW_ROWS else short
    if a and b:
        return short
    if not a and not b:  # the copy of the smaller operand is the cheaper one
        return (1,) if problem.m < problem.n else (0,)
    ready = 1 if a else 0
    small = problem.m if ready == 0 else problem.n
    return (0, 1) if small <= SHORT else (ready,)


def _short(problem: Problem) -> tuple[int, ...]:
    """Values of `swap` that suit the shape."""
    m, n = problem.m, problem.n
    if m >= n:
        return (0,)
    if m <= FEW_ROWS:
        return (1,)
    uneven = m < LARGEST_COLUMNS and m % INSTRUCTION_ROWS
    return (0, 1) if m <= SHORT or uneven else (0,)


def sides(problem: Problem, device: Device, *, of_m: bool) -> tuple[int, ...]:
    """Values of bm, or of bn, in order: of tile_m, of tile_n or of both."""
    sizes = set[int]()
    for swap in swaps(problem):
        rows = of_m != bool(swap)
        sizes.update(TILE_ROWS if rows else tile_columns(problem, device, swap))
    return tuple(sorted(sizes))


@cache
def tile_columns(problem: Problem, device: Device, swap: int) -> tuple[int, ...]:
    """Values of tile_n, in order."""
    n = problem.m if swap else problem.n
    if n <= LARGEST_COLUMNS:
        return _parts(problem, device, swap)
    if problem.element_bytes == 2 and not along_k(problem, kernel_operands(swap)[1]):
        # Whole spans are loaded: the columns between them save no loads.
        return COARSE[::2]
    most_parts = n // LEAST_COLUMNS
    even = {legal_columns(problem, swap, ceil_div(n, parts)) for parts in range(1, most_parts + 1)}
    coarse = {legal_columns(problem, swap, size) for size in COARSE}
    sizes = {size for size in even if LEAST_COLUMNS <= size <= LARGEST_COLUMNS} | coarse
    return tuple(
        sorted(
            {
                size
                for tile_m in TILE_ROWS
                for size in sorted(
                    sizes, key=lambda size: wave_cycles(problem, device, swap, tile_m, size)
                )[:BEST_COLUMNS]
            }
        )
    )


def has_columns(problem: Problem, swap: int, tile_n: int) -> bool:
    """Whether there is a kernel for `tile_n`.

    An instruction of int8 has up to 32 columns or a multiple of 16. Where blocks of 128 columns of
    B have scales of their own, a tile has parts of one or two blocks. SwiGLU takes whole pairs of
    columns.
    """
    if tile_n not in COLUMNS:
        return False
    if problem.precision.operand.integer and tile_n > INTEGER_COLUMNS and tile_n % 16:
        return False
    if problem.gated and not swap and tile_n % (2 * GATE_SPAN):
        return False
    return (
        bool(swap) or problem.scale != "block" or tile_n - gcd(tile_n, SCALE_BLOCK) <= SCALE_BLOCK
    )


def legal_columns(problem: Problem, swap: int, least: int) -> int:
    """The smallest tile_n of at least so many columns; beyond the largest, rounded up alone."""
    size = round_up(least, COLUMN_STEP)
    while size < LARGEST_COLUMNS and not has_columns(problem, swap, size):
        size += COLUMN_STEP
    return size


def _parts(problem: Problem, device: Device, swap: int) -> tuple[int, ...]:
    """Values of tile_n that cut a side of at most 256 into equal parts."""
    m, n = (problem.n, problem.m) if swap else (problem.m, problem.n)
    rows = ceil_div(m, INSTRUCTION_ROWS) * problem.batch
    longest = problem.k * problem.element_bytes // (SPLIT_ITERATIONS * LINE_BYTES)
    alone = 8 * LAST_BLOCK_BYTES // (4 * INSTRUCTION_ROWS * n)
    # If split-K can keep the SMs busy, small tiles only read more.
    busy = rows * max(1, min(longest, alone)) >= device.sms
    parts = PARTS[:2] if busy else PARTS
    return tuple(sorted({legal_columns(problem, swap, ceil_div(n, part)) for part in parts}))


def wave_cycles(problem: Problem, device: Device, swap: int, tile_m: int, tile_n: int) -> float:
    """Cycles of an SM for each step of K if it computes one tile a wave, as `step_cycles`.

    A cluster of two saves a quarter of the loads.
    """
    m, n = (problem.n, problem.m) if swap else (problem.m, problem.n)
    count = ceil_div(m, tile_m) * ceil_div(n, tile_n) * problem.batch
    read = 0.75 * (tile_m + tile_n)
    return ceil_div(count, device.sms) * step_cycles(problem, device, tile_m * tile_n, read)


def step_cycles(problem: Problem, device: Device, elements: int, read: float) -> float:
    """Cycles of an SM for a step of K of a tile of which it reads so many elements of A and B.

    The tensor cores need their time for the multiply-adds, L2 its time for the bytes.
    """
    tensor = elements * problem.products / (device.tensor_rate(problem.compute) or 1.0)
    return max(tensor, read * problem.element_bytes / L2_BYTES_A_CYCLE)
