"""The tiles of `wgmma` worth trying on a problem, whether C is computed transposed, and the rough
estimate of cycles that leaves out hopeless tiles, clusters and splits of K."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product

from autotune.device import Device
from autotune.families.shared.k_sharing import LAST_BLOCK_BYTES
from autotune.families.shared.layout import along_k
from autotune.families.wgmma.operands import LINE_BYTES, kernel_operands
from autotune.families.wgmma.resources import INSTRUCTION_ROWS
from autotune.families.wgmma.tiles import SplitTile
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
START_CYCLES, CLUSTER_CYCLES, LAST_BLOCK_CYCLES = 5000, 600, 2500
"""Cycles of a launch with its first loads and last stores; more of a cluster that adds up splits
of K; more of a last block that does (H200)."""
GATHERED_BYTES_A_CYCLE = 32
"""Bytes of partial sums that the last block of a tile reads in a cycle."""
LINE_STEPS = 64
"""Steps of K by which splits differ."""
PAIRS = (
    *(("1x1", 1), ("2x1", 1), ("1x2", 1)),
    *(("1x1x2", split_k) for split_k in (2, 4, 8, 16, 32)),
)
"""Clusters and splits of K among which the best is near the best of all."""
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
    rough, best = estimate(problem, device), set[int]()
    for tile_m in TILE_ROWS:
        # A cluster of two saves a quarter of the loads.
        alone = {n: rough.cycles(_tile(swap, tile_m, n), loaded=0.75) for n in sizes}
        best.update(sorted(sizes, key=alone.__getitem__)[:BEST_COLUMNS])
    return tuple(sorted(best))


def _tile(swap: int, tile_m: int, tile_n: int, cluster: str = "1x1", split_k: int = 1) -> SplitTile:
    bm, bn = (tile_n, tile_m) if swap else (tile_m, tile_n)
    return SplitTile(swap, bm, bn, cluster, split_k)


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
        bool(swap)
        or problem.scale != "block"
        or tile_n - math.gcd(tile_n, SCALE_BLOCK) <= SCALE_BLOCK
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


@dataclass(frozen=True)
class TileEstimate:
    """A rough estimate of an SM's cycles on a problem, by tile, cluster and splits of K alone.

    It leaves out hopeless ones before the rest of their configurations is chosen.
    """

    problem: Problem
    device: Device

    def cycles(self, tile: SplitTile, *, loaded: float = 1.0, streamed: bool = False) -> float:
        """Cycles from the launch to the end: waves of tiles, and the splits' sums.

        In a step of K the tensor cores need their time for the multiply-adds, L2 its time for the
        bytes: the `loaded` share of what the cluster leaves to a block. Infinite if no cluster of
        that size is resident. `streamed`: stream-K fills the last wave.
        """
        problem, shape, elements = self.problem, tile.shape, tile.elements
        if not (reached := self.device.cluster_sms(shape.blocks)):
            return math.inf
        units = tile.units(problem)
        waves = max(1.0, units / reached) if streamed else ceil_div(units, reached)
        rate, products, size = self._rates
        read = loaded * (tile.tile_m / shape.n + tile.tile_n / shape.m)
        step = max(elements * products / rate, read * size / L2_BYTES_A_CYCLE)
        steps = LINE_STEPS * ceil_div(ceil_div(problem.k, LINE_STEPS), tile.split_k)
        total = START_CYCLES + waves * steps * step
        if shape.k > 1:
            total += CLUSTER_CYCLES
        if tile.grid_splits > 1 or streamed:
            gathered = 4 * tile.grid_splits * elements / tile.reducers
            total += LAST_BLOCK_CYCLES + gathered / GATHERED_BYTES_A_CYCLE
        return total

    @cached_property
    def least(self) -> float:
        """The least `cycles` of all tiles that are tried, alone or in pairs."""
        return min(
            self.cycles(_tile(swap, *tile, *pair))
            for swap in swaps(self.problem)
            for tile in product(TILE_ROWS, tile_columns(self.problem, self.device, swap))
            for pair in PAIRS
        )

    @cached_property
    def _rates(self) -> tuple[float, int, int]:
        """Products of two elements a cycle of the tensor cores, such products for each
        multiply-add, and bytes of an element."""
        rate = self.device.tensor_rate(self.problem.compute)
        return rate or 1.0, self.problem.products, self.problem.element_bytes


@cache
def estimate(problem: Problem, device: Device) -> TileEstimate:
    """The estimate of a problem on a device, which keeps what it worked out."""
    return TileEstimate(problem, device)
