"""Which tiles of `wgmma` are worth trying on a problem, and which way round it is computed."""

from __future__ import annotations

from functools import cache

from autotune.device import Device
from autotune.families.shared.k_sharing import LAST_BLOCK_BYTES
from autotune.families.shared.layout import along_k
from autotune.families.wgmma.terms import INSTRUCTION_ROWS, SPAN, rounded
from autotune.problem import Problem

BLOCK_ROWS = (64, 128, 192, 256)
"""Rows of x of a tile, BX."""
COARSE = (64, 96, 128, 160, 192, 224, 256)
FINE = (112, 144, 176, 208, 240)
"""Rows of y of a tile, BY: always tried where they fit, and where they waste less."""
SPAN_ROWS = 64
"""Rows that come together where 16-bit ones do not run along K."""
BETTER = 1.02
"""What a fine step has to gain for its tiles to be tried."""
LARGEST_HEIGHT = 256
HEIGHT_STEP = 8
"""An instruction takes 8 to 256 rows of y, in steps of 8."""
PARTS = (1, 2, 3, 4, 8)
"""Into how many tiles a short side may be cut."""
SHARE_STEPS, FEW_STEPS = 4, 16
"""Blocks of K that a share has at least: half as many if there are few."""
SHORT, FEW_ROWS = 64, 32
"""Sides up to which the other had better run along x, and up to which it has to."""


def swaps(problem: Problem) -> tuple[int, ...]:
    """Whether C, its transpose, or either may be what is computed.

    x comes in steps of 64 and y in steps of 8, so a short side is y. 32-bit operands have to run
    along K to be Q; where one does, the other is P, which may run either way.
    """
    short = _short(problem)
    a, b = along_k(problem, "a"), along_k(problem, "b")
    if problem.element_bytes == 2:
        return (0, 1) if _turned(problem) else short
    if a and b:
        return short
    if not a and not b:  # the copy of the smaller operand is the cheaper one
        return (1,) if problem.m < problem.n else (0,)
    ready = 1 if a else 0
    small = problem.m if ready == 0 else problem.n
    return (0, 1) if small <= SHORT else (ready,)


def _turned(problem: Problem) -> bool:
    """Whether 16-bit operands are exchanged for the sake of heights between whole spans: those need
    a Q whose rows run along K."""
    runs = along_k(problem, "a") and not along_k(problem, "b")
    narrow = min(problem.m, problem.n) <= SPAN_ROWS
    return problem.element_bytes == 2 and runs and not narrow and _short(problem) == (0,)


def _short(problem: Problem) -> tuple[int, ...]:
    m, n = problem.m, problem.n
    if m >= n:
        return (0,)
    if m <= FEW_ROWS:
        return (1,)
    uneven = m < LARGEST_HEIGHT and m % INSTRUCTION_ROWS
    return (0, 1) if m <= SHORT or uneven else (0,)


def heights(problem: Problem, device: Device, swap: int) -> tuple[int, ...]:
    """Values of BY, in order."""
    found = _heights(problem, device, swap)
    if swap and _turned(problem):
        return tuple(height for height in found if height % SPAN_ROWS)
    return found


def _heights(problem: Problem, device: Device, swap: int) -> tuple[int, ...]:
    extent, across = (problem.m, problem.n) if swap else (problem.n, problem.m)
    if extent <= LARGEST_HEIGHT:
        whole = -(-across // INSTRUCTION_ROWS) * problem.batch
        terms = problem.k * problem.element_bytes // (SHARE_STEPS * SPAN)
        alone = 8 * LAST_BLOCK_BYTES // (4 * INSTRUCTION_ROWS * extent)
        # Where shares of K can keep the SMs busy, small tiles only read more.
        busy = whole * max(1, min(terms, alone)) >= device.sms
        parts = PARTS[:2] if busy else PARTS
        return tuple(sorted({rounded(-(-extent // part), HEIGHT_STEP) for part in parts}))
    found = set(COARSE)
    if not along_k(problem, "a" if swap else "b") and problem.element_bytes == 2:
        return COARSE  # finer ones bring no fewer rows
    if fill(problem, device, swap, INSTRUCTION_ROWS, COARSE[0]) < 0.5:
        found.add(COARSE[0] // 2)
    for rows in BLOCK_ROWS:
        best = max(fill(problem, device, swap, rows, height) for height in COARSE)
        found |= {
            height for height in FINE if fill(problem, device, swap, rows, height) > BETTER * best
        }
    return tuple(sorted(found))


def fill(problem: Problem, device: Device, swap: int, rows: int, height: int) -> float:
    """The share of the SMs' time that goes into C, if each wave gives every SM one tile."""
    along_x, along_y = (problem.n, problem.m) if swap else (problem.m, problem.n)
    count = -(-along_x // rows) * -(-along_y // height) * problem.batch
    waves = -(-count // device.sms)
    return along_x * along_y * problem.batch / (waves * device.sms * rows * height)


@cache
def best_fill(problem: Problem, device: Device) -> float:
    """The best `fill` of all tiles that are tried."""
    return max(
        fill(problem, device, swap, rows, height)
        for swap in swaps(problem)
        for rows in BLOCK_ROWS
        for height in heights(problem, device, swap)
    )
