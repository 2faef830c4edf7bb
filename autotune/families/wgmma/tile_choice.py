"""The tiles of `wgmma` worth trying on a problem, and whether C is computed transposed."""

from __future__ import annotations

from functools import cache

from autotune.device import Device
from autotune.families.shared.k_sharing import LAST_BLOCK_BYTES
from autotune.families.shared.layout import along_k
from autotune.families.wgmma.operands import LINE_BYTES, kernel_operands
from autotune.families.wgmma.resources import INSTRUCTION_ROWS
from autotune.problem import Problem
from autotune.problem.integers import ceil_div, round_up

TILE_ROWS = (64, 128, 192, 256)
"""Values of tile_m."""
COARSE = (64, 96, 128, 160, 192, 224, 256)
FINE = (112, 144, 176, 208, 240)
"""Values of tile_n: those tried wherever they fit, and those tried only if they waste less."""
SPAN_ROWS = 64
"""Elements that one TMA box loads along N of a 16-bit operand that is not K-contiguous."""
BETTER = 1.02
"""Factor by which a fine tile_n must fill the SMs better than the coarse ones."""
LARGEST_COLUMNS, COLUMN_STEP = 256, 8
"""An instruction computes 8 to 256 columns, in steps of 8."""
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
    if problem.element_bytes == 2:
        return (0, 1) if _gains_fine_columns(problem) else short
    if a and b:
        return short
    if not a and not b:  # the copy of the smaller operand is the cheaper one
        return (1,) if problem.m < problem.n else (0,)
    ready = 1 if a else 0
    small = problem.m if ready == 0 else problem.n
    return (0, 1) if small <= SHORT else (ready,)


def _gains_fine_columns(problem: Problem) -> bool:
    """Whether only the transpose has a K-contiguous 16-bit B, which a tile_n between whole spans
    needs."""
    only_a = along_k(problem, "a") and not along_k(problem, "b")
    narrow = min(problem.m, problem.n) <= SPAN_ROWS
    return problem.element_bytes == 2 and only_a and not narrow and _short(problem) == (0,)


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
    columns = _tile_columns(problem, device, swap)
    if swap and _gains_fine_columns(problem):
        return tuple(tile_n for tile_n in columns if tile_n % SPAN_ROWS)
    return columns


def _tile_columns(problem: Problem, device: Device, swap: int) -> tuple[int, ...]:
    n = problem.m if swap else problem.n
    if n <= LARGEST_COLUMNS:
        return _parts(problem, device, swap)
    if problem.element_bytes == 2 and not along_k(problem, kernel_operands(swap)[1]):
        return COARSE  # whole spans are loaded: a finer tile_n loads no fewer rows
    columns = set(COARSE)
    if fill(problem, device, swap, INSTRUCTION_ROWS, COARSE[0]) < 0.5:
        columns.add(COARSE[0] // 2)
    for tile_m in TILE_ROWS:
        least = BETTER * max(fill(problem, device, swap, tile_m, tile_n) for tile_n in COARSE)
        columns |= {
            tile_n for tile_n in FINE if fill(problem, device, swap, tile_m, tile_n) > least
        }
    return tuple(sorted(columns))


def _parts(problem: Problem, device: Device, swap: int) -> tuple[int, ...]:
    """Values of tile_n that cut a side of at most 256 into equal parts."""
    m, n = (problem.n, problem.m) if swap else (problem.m, problem.n)
    rows = ceil_div(m, INSTRUCTION_ROWS) * problem.batch
    longest = problem.k * problem.element_bytes // (SPLIT_ITERATIONS * LINE_BYTES)
    alone = 8 * LAST_BLOCK_BYTES // (4 * INSTRUCTION_ROWS * n)
    # If split-K can keep the SMs busy, small tiles only read more.
    busy = rows * max(1, min(longest, alone)) >= device.sms
    parts = PARTS[:2] if busy else PARTS
    return tuple(sorted({round_up(ceil_div(n, part), COLUMN_STEP) for part in parts}))


def fill(problem: Problem, device: Device, swap: int, tile_m: int, tile_n: int) -> float:
    """The share of the SMs' time that goes into C if each SM computes one tile a wave."""
    m, n = (problem.n, problem.m) if swap else (problem.m, problem.n)
    count = ceil_div(m, tile_m) * ceil_div(n, tile_n) * problem.batch
    waves = ceil_div(count, device.sms)
    return m * n * problem.batch / (waves * device.sms * tile_m * tile_n)


@cache
def best_fill(problem: Problem, device: Device) -> float:
    """The best `fill` of all tiles that are tried."""
    return max(
        fill(problem, device, swap, tile_m, tile_n)
        for swap in swaps(problem)
        for tile_m in TILE_ROWS
        for tile_n in tile_columns(problem, device, swap)
    )
