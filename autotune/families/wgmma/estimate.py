"""A rough estimate of a `wgmma` configuration's cycles, which leaves out the hopeless ones."""

from __future__ import annotations

import math
from functools import cache

from autotune.device import Device
from autotune.families.wgmma import tile_choice
from autotune.families.wgmma.tiles import SplitTile
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
    shape = tile.shape
    reached, units = device.cluster_sms(shape.blocks), tile.units(problem)
    if reached == 0:
        return math.inf
    waves = max(1.0, units / reached) if streamed else ceil_div(units, reached)
    read = tile.tile_m / shape.n + tile.tile_n / shape.m
    step = tile_choice.step_cycles(problem, device, tile.elements, read)
    steps = LINE_STEPS * ceil_div(ceil_div(problem.k, LINE_STEPS), tile.split_k)
    total = START_CYCLES + waves * steps * step
    if shape.k > 1:
        total += CLUSTER_CYCLES
    if tile.grid_splits > 1 or streamed:
        gathered = 4 * tile.grid_splits * tile.elements / tile.reducers
        total += LAST_BLOCK_CYCLES + gathered / GATHERED_BYTES_A_CYCLE
    return total


@cache
def least(problem: Problem, device: Device) -> float:
    """The least `cycles` of all tiles that are tried, alone or in pairs."""
    return min(
        cycles(SplitTile(swap, *sides, cluster, split_k), problem, device)
        for swap in tile_choice.swaps(problem)
        for tile_m in tile_choice.TILE_ROWS
        for tile_n in tile_choice.tile_columns(problem, device, swap)
        for sides in [(tile_n, tile_m) if swap else (tile_m, tile_n)]
        for cluster, split_k in PAIRS
    )


PAIRS = (
    *((cluster, 1) for cluster in ("1x1", "2x1", "1x2")),
    *(("1x1x2", split_k) for split_k in (2, 4, 8, 16, 32)),
)
"""Clusters and splits of K among which the best is near the best of all."""
