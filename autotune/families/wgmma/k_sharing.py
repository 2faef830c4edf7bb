"""Rules of `wgmma` on clusters, split-K, stream-K, waves, the workspace and the order of tiles."""

from __future__ import annotations

from autotune.device import Device
from autotune.families.rules import Rule
from autotune.families.shared.cuda_enums import WgmmaReduction
from autotune.families.shared.k_sharing import (
    LAST_BLOCK_BYTES,
    fill,
    last_block_fault,
    longest_split,
    split_waves_fault,
)
from autotune.families.shared.tiles import order_fault
from autotune.families.shared.workspace import workspace_fault
from autotune.families.wgmma import tile_choice
from autotune.families.wgmma.operands import LINE_BYTES, OperandPath, b_is_k_contiguous
from autotune.families.wgmma.resources import Schedule
from autotune.families.wgmma.tile_choice import FEW_ITERATIONS, SPLIT_ITERATIONS
from autotune.families.wgmma.tiles import CLUSTERS, ClusterTile, SplitTile, WgmmaKSharing, WgmmaTile
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

BUSY, IDLE = 0.8, 0.4
"""The part of the best tile's fill that a tile must reach if there is a wave or more, and if there
is less."""
SMALL_TILE = 128 * 128 * 128
"""Multiply-adds of a tile that take less time than the launch, whatever else is idle."""
FULLER = 1.05
"""Factor by which split-K must fill the SMs better than fewer splits would."""
FULL_WAVES = 0.95
"""Fill of the SMs above which stream-K gains nothing."""
LONG_SPLITS = 2
"""A split of this many times the least k-iterations is better split once more."""
FEW_WAVES = 4
"""Waves of tiles up to which a partial wave is worth sharing."""
CLUSTERED_TILE = 64 * 128
"""Elements of a tile from which a cluster's savings outweigh its blocks' waiting for each other."""
GROUPED_ROWS = (768, 2048)
"""Rows of C of a group of tiles: about as much of A as L2 keeps beside B."""
GROUPED_WAVES = 3


def _block_fault(bk: int, problem: Problem) -> str | None:
    """Stages of two lines halve the waiting if there are enough of them."""
    if bk * problem.element_bytes > LINE_BYTES and problem.k < SPLIT_ITERATIONS * bk:
        return f"K={problem.k} has less than {SPLIT_ITERATIONS} k-iterations of {bk}"
    return None


def _cluster_fault(tile: ClusterTile, problem: Problem, device: Device) -> str | None:
    """Two blocks share the larger operand of their tiles: each loads half of it for both."""
    shape, tile_m, tile_n = tile.shape, tile.tile_m, tile.tile_n
    if shape.m == shape.n:
        return None
    count = tile.count(problem)
    if 2 * count < device.sms:
        return f"{count} tiles do not keep {device.sms} SMs busy"
    if tile.elements < CLUSTERED_TILE:
        return f"tiles of {tile_m}x{tile_n} are too small for the blocks of a cluster to wait"
    if (tile_m < tile_n and shape.n > 1) or (tile_n < tile_m and shape.m > 1):
        return f"blocks of {tile_m}x{tile_n} would share the smaller operand"
    rows, columns = tile.grid(problem)
    if tile.tiles(problem) > 1.06 * rows * columns:
        return f"{rows}x{columns} tiles leave clusters of {tile.cluster} partly empty"
    if shape.m > 1 and b_is_k_contiguous(problem, tile.swap) and tile_n % 16:
        return f"{tile_n} rows of B have no halves of whole swizzled spans"
    return None


def _split_cluster_fault(cluster: str, split_k: int, schedule: Schedule) -> str | None:
    shape = CLUSTERS[cluster]
    if split_k == 1:
        return None if shape.k == 1 else f"no splits of K for cluster={cluster}"
    if shape.m * shape.n > 1 or split_k % shape.k or schedule == "pingpong":
        return f"not with cluster={cluster}, schedule={schedule}"
    return None


def _split_length_fault(bk: int, split_k: int, problem: Problem) -> str | None:
    if split_k == 1:
        return None
    iterations = ceil_div(problem.k, bk)
    least = SPLIT_ITERATIONS if iterations >= FEW_ITERATIONS else SPLIT_ITERATIONS // 2
    if longest_split(iterations, split_k) >= least:
        return None
    return f"{iterations} k-iterations do not go into {split_k} splits of {least} or more"


def _split_gain_fault(
    tile: WgmmaTile, min_blocks: int, split_k: int, problem: Problem, device: Device
) -> str | None:
    if split_k == 1:
        return None
    count, sms = tile.count(problem), device.sms
    if count * (split_k - 1) < min_blocks * sms and count < sms:
        return None
    return split_waves_fault(count, split_k, sms, FEW_WAVES, FULLER)


def _reduction_fault(tile: SplitTile, reduction: WgmmaReduction) -> str | None:
    splits = tile.grid_splits
    if (splits > 1) != (reduction == "fused"):
        return f"split_k={tile.split_k}, cluster={tile.cluster} with reduction={reduction}"
    if splits == 1:
        return None
    return last_block_fault(4 * splits * tile.elements // tile.reducers)


def _resident_fault(min_blocks: int, workers: int, device: Device) -> str | None:
    resident = min_blocks * device.sms
    if workers in (0, resident):
        return None
    return f"{workers} workers; {resident} blocks are resident"


def _stream_workers_fault(reduction: WgmmaReduction, workers: int) -> str | None:
    return None if workers or reduction != "stream" else "stream-K needs workers"


def _units_fault(
    sharing: WgmmaKSharing, schedule: Schedule, min_blocks: int, problem: Problem, device: Device
) -> str | None:
    """Workers pay if there are more work units than workers, resident blocks if units fill them."""
    workers = sharing.workers
    if sharing.reduction == "stream":
        return None
    if workers and sharing.shape.k > 1:
        return "the blocks of a split-K cluster compute one tile and exit"
    units = sharing.units(problem)
    if units <= (min_blocks - 1) * device.sms:
        return f"{units} work units do not make {min_blocks} blocks an SM"
    if workers:
        return None if units > workers else f"{units} work units need no workers"
    if schedule == "pingpong":
        return "pingpong consumers alternate the tiles of resident workers"
    if min_blocks == 1 and units > 2 * device.sms:
        return f"{units} blocks one after the other, each filling its buffers anew"
    return None


def _stream_fault(
    sharing: WgmmaKSharing, bk: int, schedule: Schedule, problem: Problem, device: Device
) -> str | None:
    if sharing.reduction != "stream":
        return None
    if problem.batch > 1 or sharing.cluster != "1x1" or schedule == "pingpong":
        return f"not with batch={problem.batch}, cluster={sharing.cluster}, {schedule}"
    count = sharing.tiles(problem)
    if fill(count, device.sms) > FULL_WAVES or count > 2 * FEW_WAVES * device.sms:
        return f"{count} tiles keep {device.sms} SMs busy as they are"
    if count * ceil_div(problem.k, bk) < SPLIT_ITERATIONS * sharing.workers:
        least = SPLIT_ITERATIONS
        return f"{count} tiles leave {sharing.workers} workers less than {least} k-iterations"
    return None


def _waves_fault(
    tile: WgmmaTile, split_k: int, reduction: WgmmaReduction, problem: Problem, device: Device
) -> str | None:
    """Other tiles or split-K can use the SMs that a tile's waves leave idle."""
    if reduction != "none" or split_k > 1:
        return None
    reached = tile_choice.fill(problem, device, tile.swap, tile.tile_m, tile.tile_n)
    best = tile_choice.best_fill(problem, device)
    busy = tile.count(problem) > device.sms
    if reached >= (BUSY if busy else IDLE) * best:
        return None
    if not busy and tile.elements * problem.k * problem.products <= SMALL_TILE:
        return None
    return f"tiles use {reached:.0%} of the SMs' time, others {best:.0%}"


def _idle_fault(
    tile: SplitTile, bk: int, reduction: WgmmaReduction, problem: Problem, device: Device
) -> str | None:
    """If most SMs are idle, a long K could be split further."""
    splits, count = tile.split_k, tile.count(problem) * tile.split_k
    last_read = 8 * tile.grid_splits * tile.elements
    further = last_read <= LAST_BLOCK_BYTES * tile.reducers
    if reduction == "stream" or 3 * count > device.sms or not further:
        return None
    if ceil_div(problem.k, bk) < 2 * SPLIT_ITERATIONS * LONG_SPLITS * splits:
        return None
    return f"{count} work units for {device.sms} SMs; K={problem.k} is enough for more"


def _workspace_fault(
    sharing: WgmmaKSharing, path: OperandPath, problem: Problem, device: Device
) -> str | None:
    needed = 4 * sharing.partial_floats(problem) + path.packed_bytes(problem)
    return workspace_fault(needed, device)


def _group_fault(tile: WgmmaTile, group: int, problem: Problem, device: Device) -> str | None:
    rows, columns = ceil_div(problem.m, tile.bm), ceil_div(problem.n, tile.bn)
    (least, most), grouped = GROUPED_ROWS, group * tile.bm
    fault = order_fault(rows, columns, group, GROUPED_WAVES, device)
    if fault or group == 1 or least <= grouped <= most:
        return fault
    return f"groups of {grouped} rows of C; {least} to {most} suit L2"


RULES = (
    Rule("block of K", _block_fault),
    Rule("clusters", _cluster_fault),
    Rule("split-K", _split_cluster_fault),
    Rule("split-K", _split_length_fault),
    Rule("split-K", _split_gain_fault),
    Rule("reduction", _reduction_fault),
    Rule("workers", _resident_fault),
    Rule("workers", _stream_workers_fault),
    Rule("workers", _units_fault),
    Rule("stream-K", _stream_fault),
    Rule("waves", _waves_fault),
    Rule("waves", _idle_fault),
    Rule("workspace", _workspace_fault),
    Rule("group", _group_fault),
)
