"""The tile of a `wgmma` block, its cluster, its operands, and the tiles that are worth trying.

The kernel multiplies its operands A and B into tiles of tile_m x tile_n. With swap=0 they are tiles
of C. With swap=1 (swap-AB) they are tiles of the transpose of C: the kernel's A is the problem's B,
tile_m is bn and tile_n is bm.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import product
from math import prod
from typing import NamedTuple

from autotune.device import Device
from autotune.families.plan import VECTOR_BYTES, Alignment
from autotune.families.shared.arguments import along_k
from autotune.families.shared.tiling import LAST_BLOCK_BYTES
from autotune.problem import GATE_SPAN, SCALE_BLOCK, Problem
from autotune.problem.integers import ceil_div, round_up


class Cluster(NamedTuple):
    """Blocks of a cluster along M, N and K of the tiles that the kernel computes."""

    m: int
    n: int
    k: int

    @property
    def blocks(self) -> int:
        """Blocks of a cluster."""
        return prod(self)


def _clusters() -> dict[str, Cluster]:
    """The clusters of up to 8 blocks by their texts, which leave out one share of K."""
    sides = (1, 2, 4, 8)
    clusters = [Cluster(m, n, k) for k in sides for m in sides for n in sides]
    texts = (("x".join(map(str, c[: 2 if c.k == 1 else 3])), c) for c in clusters)
    return {
        text: c
        for text, c in texts
        if c.blocks <= LARGEST_CLUSTER and max(c.m, c.n) <= 4 and (c.k == 1 or c.m * c.n <= 2)
    }


LARGEST_CLUSTER = 8
"""Blocks of the largest cluster that every launch may ask for."""
CLUSTERS = _clusters()
INSTRUCTION_ROWS = 64
"""Rows of tile_m that one instruction of a warpgroup computes."""
INSTRUCTION_COLUMNS = 8
"""The columns of an instruction's tile are a multiple of this."""


@dataclass
class SplitTile:
    """The tile of a block, its cluster, and the splits of its K.

    A block computes bm x bn of C, transposed if `swap` is 1. The blocks of a cluster work together
    on neighbouring tiles or on one tile.
    """

    swap: int
    bm: int
    bn: int
    cluster: str
    split_k: int

    @property
    def tile_m(self) -> int:
        """Rows of the tile as the kernel computes it, which run over its operand A."""
        return self.bn if self.swap else self.bm

    @property
    def tile_n(self) -> int:
        """Columns of the tile as the kernel computes it, which run over its operand B."""
        return self.bm if self.swap else self.bn

    @property
    def elements(self) -> int:
        """Elements of the tile."""
        return self.bm * self.bn

    def extents(self, problem: Problem) -> tuple[int, int]:
        """M and N as the kernel computes them: the rows of its operands A and B."""
        return (problem.n, problem.m) if self.swap else (problem.m, problem.n)

    def grid(self, problem: Problem) -> tuple[int, int]:
        """Tiles along M and N as the kernel computes them."""
        m, n = self.extents(problem)
        return ceil_div(m, self.tile_m), ceil_div(n, self.tile_n)

    def count(self, problem: Problem) -> int:
        """Tiles that cover C for the whole batch."""
        rows, columns = self.grid(problem)
        return rows * columns * problem.batch

    @property
    def shape(self) -> Cluster:
        """Blocks of the cluster along M, N and K."""
        return CLUSTERS[self.cluster]

    @cached_property
    def reducers(self) -> int:
        """Blocks of a cluster that each add up and store a part of the columns of its one tile.

        A part has whole instructions of 8 columns.
        """
        reducers = self.shape.k
        while self.tile_n % (INSTRUCTION_COLUMNS * reducers):
            reducers //= 2
        return reducers

    def cluster_grid(self, problem: Problem) -> tuple[int, int]:
        """Tiles along M and N, rounded up to whole clusters."""
        (m, n), shape = self.extents(problem), self.shape
        along_m = ceil_div(m, self.tile_m * shape.m) * shape.m
        return along_m, ceil_div(n, self.tile_n * shape.n) * shape.n

    def l2_rate(self, problem: Problem, tensor_rate: float, m: int, n: int) -> float:
        """Bytes a cycle that a block of a cluster of m x n reads to keep its tensor cores busy.

        Of each operand it reads the part that it loads for its cluster. The tensor cores multiply
        and add `tensor_rate` numbers a cycle.
        """
        read = (self.tile_m / n + self.tile_n / m) * problem.element_bytes
        return read * tensor_rate / (self.elements * problem.products)

    @property
    def blocks_down(self) -> int:
        """Blocks of a cluster along the rows of C."""
        return self.shape.n if self.swap else self.shape.m

    def cluster_rows_and_columns(self, problem: Problem) -> tuple[int, int]:
        """Clusters that cover the rows and the columns of one C of the batch."""
        along_m, along_n = self.cluster_grid(problem)
        clusters = along_m // self.shape.m, along_n // self.shape.n
        return clusters[::-1] if self.swap else clusters

    def tiles(self, problem: Problem) -> int:
        """Tiles of one C of the batch, rounded up to whole clusters."""
        along_m, along_n = self.cluster_grid(problem)
        return along_m * along_n

    @property
    def grid_splits(self) -> int:
        """Splits of K that different blocks or clusters compute and add up in the workspace."""
        return self.split_k // self.shape.k

    def units(self, problem: Problem) -> int:
        """Work units of the whole batch: tiles, or splits of tiles."""
        return self.tiles(problem) * self.split_k * problem.batch


LINE_BYTES = 128
"""Bytes of a cache line, of a row that one TMA box loads, and of the swizzle."""


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


TILE_ROWS = (64, 128, 192, 256)
"""Values of tile_m."""
COARSE = (64, 96, 128, 160, 192, 224, 256)
"""Values of tile_n beside those that cut N into equal parts."""
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


def sides(problem: Problem, device: Device, upright: int) -> tuple[int, ...]:
    """Values, in order, of a side that is tile_m where `swap` is `upright`, else tile_n."""
    sizes = set[int]()
    for swap in swaps(problem):
        sizes.update(TILE_ROWS if swap == upright else tile_columns(problem, device, swap))
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
    """The smallest tile_n of at least `least` columns; beyond the largest, rounded up alone."""
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
