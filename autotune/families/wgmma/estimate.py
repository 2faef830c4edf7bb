"""A rough estimate of a `wgmma` configuration's cycles, which leaves out the hopeless ones."""

from __future__ import annotations

import math
from functools import cache
from itertools import product

from autotune.device import Device
from autotune.families.wgmma import tile_choice
from autotune.families.wgmma.tiles import CLUSTERS, Cluster, SplitTile, cluster_grid, reducers
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

START_CYCLES, CLUSTER_CYCLES, LAST_BLOCK_CYCLES = 5000, 600, 2500
"""Cycles of a launch with its first loads and last stores; more of a cluster that adds up splits
of K; more of a last block that does (H200)."""
GATHERED_BYTES_A_CYCLE = 32
"""Bytes of partial sums that the last block of a tile reads in a cycle."""
LINE_STEPS = 64
"""Steps of K by which splits differ."""


def cycles(tile: SplitTile, problem: Problem, device: Device, *, streamed: bool = False) -> float:
    """Cycles of an SM from the launch to the end: waves of tiles, and the splits' sums.

    Infinite if no cluster of that size is resident. `streamed`: stream-K fills the last wave.
    """
    sides = tile.tile_m, tile.tile_n
    return _cycles(
        *(tile.units(problem), sides, tile.shape, tile.split_k, problem, device), streamed=streamed
    )


def _cycles(
    units: int,
    tile: tuple[int, int],
    shape: Cluster,
    split_k: int,
    problem: Problem,
    device: Device,
    *,
    streamed: bool = False,
) -> float:
    """`cycles` of so many units of work on tiles of tile_m x tile_n."""
    (tile_m, tile_n), reached = tile, device.cluster_sms(shape.blocks)
    if reached == 0:
        return math.inf
    waves = max(1.0, units / reached) if streamed else ceil_div(units, reached)
    elements, read = tile_m * tile_n, tile_m / shape.n + tile_n / shape.m
    step = tile_choice.step_cycles(problem, device, elements, read)
    steps = LINE_STEPS * ceil_div(ceil_div(problem.k, LINE_STEPS), split_k)
    total = START_CYCLES + waves * steps * step
    if shape.k > 1:
        total += CLUSTER_CYCLES
    grid_splits = split_k // shape.k
    if grid_splits > 1 or streamed:
        gathered = 4 * grid_splits * elements / reducers(tile_n, shape)
        total += LAST_BLOCK_CYCLES + gathered / GATHERED_BYTES_A_CYCLE
    return total


@cache
def least(problem: Problem, device: Device) -> float:
    """The least `cycles` of all tiles that are tried, alone or in pairs."""
    return min(
        _cycles(down * across * split_k * problem.batch, tile, shape, split_k, problem, device)
        for swap in tile_choice.swaps(problem)
        for extents in [(problem.n, problem.m) if swap else (problem.m, problem.n)]
        for tile in product(tile_choice.TILE_ROWS, tile_choice.tile_columns(problem, device, swap))
        for shape, split_k in PAIRS
        for down, across in [cluster_grid(extents, tile, shape)]
    )


PAIRS = (
    *((CLUSTERS[cluster], 1) for cluster in ("1x1", "2x1", "1x2")),
    *((CLUSTERS["1x1x2"], split_k) for split_k in (2, 4, 8, 16, 32)),
)
"""Clusters and splits of K among which the best is near the best of all."""
