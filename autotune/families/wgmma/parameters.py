"""The parameters of `wgmma` with the values that are tried, in the order of a configuration."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import get_args

from autotune.device import Device
from autotune.families.parameters import values, values_from
from autotune.families.shared.cuda_enums import WGMMA_REDUCTION, WgmmaReduction
from autotune.families.wgmma import tile_choice
from autotune.families.wgmma.operands import LINE_BYTES, Low, OperandPath, PackPolicy, Source
from autotune.families.wgmma.resources import (
    MOST_STAGES,
    Accumulation,
    ClusterWarpgroups,
    Ring,
    Schedule,
    Staging,
)
from autotune.families.wgmma.tiles import CLUSTERS, WgmmaKSharing
from autotune.problem import Problem


def _swaps(problem: Problem, device: Device) -> tuple[int, ...]:
    del device
    return tile_choice.swaps(problem)


def _bm(problem: Problem, device: Device) -> tuple[int, ...]:
    return tile_choice.sides(problem, device, of_m=True)


def _bn(problem: Problem, device: Device) -> tuple[int, ...]:
    return tile_choice.sides(problem, device, of_m=False)


def _sources(problem: Problem, device: Device) -> tuple[Source, ...]:
    del device
    if problem.element_bytes == 4:
        return "shared", "streamed", "registers"
    return "shared", "streamed"


def _lows(problem: Problem, device: Device) -> tuple[Low, ...]:
    del device
    return ("none", "kernel", "pass") if problem.products > 1 else ("none",)


def _bk(problem: Problem, device: Device) -> tuple[int, ...]:
    """One or two lines of K."""
    del device
    line = LINE_BYTES // problem.element_bytes
    return line, 2 * line


def _promote(problem: Problem, device: Device) -> tuple[int, ...]:
    del device
    promoted = problem.products > 1 or problem.element_bytes == 1
    return (0, 1, 2, 4) if promoted else (0,)


def _workers(problem: Problem, device: Device) -> tuple[int, ...]:
    del problem
    sizes = {cluster.blocks for cluster in CLUSTERS.values()}
    resident = {device.cluster_sms(size) for size in sizes} if device.has_clusters else set()
    return tuple(sorted({0} | resident | {blocks * device.sms for blocks in (1, 2, 3)}))


@dataclass(frozen=True)
class WgmmaParams(Accumulation, Ring, ClusterWarpgroups, WgmmaKSharing, OperandPath):
    """Parameters of the warp-specialised Hopper kernel.

    Attributes:
        swap: 1 computes the transpose of C (swap-AB), for short or awkwardly stored operands.
        bm, bn: rows and columns of C that a block computes at a time.
        consumers: consumer warpgroups, fed by one producer warpgroup.
        schedule: consumers share each tile (`cooperative`) or alternate tiles (`pingpong`).
        min_blocks: resident blocks an SM.
        source: where the tensor cores read the kernel's A: `shared` memory, `streamed` through it
            so that L2 drops it first, or `registers`, which 32-bit operands that are not
            K-contiguous go through.
        low: what makes B's low part of `tf32x3`: the `kernel` or a packing `pass` before it.
        pack: which operands are packed first: those TMA cannot read (`needed`), or also those whose
            rows start within cache lines (`lines`).
        bk: K elements of a stage.
        promote: stages after which accumulators are added up in fp32 registers; 0 is never. Of fp8
            they are after each 128 of K, in so many parts of a tile's columns.
        cluster: blocks of a cluster along M x N, or along M x N x K.
        split_k: splits of the K of a tile.
        reduction: how partial sums of different blocks become C: `none` has no such sums, `fused`
            adds them up in the last block, `stream` is stream-K over `workers` blocks.
        workers: blocks that stay resident and take one work unit after the other; 0 launches a
            block for each unit.
        store: accumulators are stored `direct`, or `staged` through shared memory in whole lines.
        stages: stages of the ring in shared memory.
        group: rows of tiles whose tiles are computed together, for reuse in L2.
    """

    swap: int = field(metadata=values_from(_swaps))
    bm: int = field(metadata=values_from(_bm, for_speed=True))
    bn: int = field(metadata=values_from(_bn, for_speed=True))
    consumers: int = field(metadata=values(1, 2, 3))
    schedule: Schedule = field(metadata=values(*get_args(Schedule)))
    min_blocks: int = field(metadata=values(1, 2, 3))
    source: Source = field(metadata=values_from(_sources))
    low: Low = field(metadata=values_from(_lows))
    pack: PackPolicy = field(metadata=values(*get_args(PackPolicy)))
    bk: int = field(metadata=values_from(_bk))
    promote: int = field(metadata=values_from(_promote))
    cluster: str = field(metadata=values(*CLUSTERS))
    split_k: int = field(metadata=values(1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 128))
    reduction: WgmmaReduction = field(metadata=values(*WGMMA_REDUCTION))
    workers: int = field(metadata=values_from(_workers, for_speed=True))
    store: Staging = field(metadata=values(*get_args(Staging)))
    stages: int = field(metadata=values(*range(3, MOST_STAGES + 1)))
    group: int = field(metadata=values(1, 2, 4, 8, 16))
