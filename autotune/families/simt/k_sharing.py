"""Rules of `simt` on split-K, stream-K, chunks, packing, the workspace and the order of tiles."""

from __future__ import annotations

from autotune.device import Device
from autotune.families.rules import Rule
from autotune.families.shared.cuda_enums import Reduction
from autotune.families.shared.k_sharing import (
    fill,
    last_block_fault,
    longest_split,
    split_waves_fault,
)
from autotune.families.shared.layout import along_k
from autotune.families.shared.packing import Pack
from autotune.families.shared.tiles import order_fault
from autotune.families.shared.workspace import workspace_fault
from autotune.families.simt.parameters import SimtKSharing, SimtTile, VectorPacking
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

SPLIT_BLOCKS_A_SM, WAVE_BLOCKS_A_SM = 2, 8
"""Blocks an SM that hide each other's latency whatever the waves they make, and the most blocks an
SM for which K is split only to fill the last wave."""
PACKED_USES = 512
"""How often a packed operand must be read for its copy to take a tenth of the GEMM or less."""
CHUNK_TERMS = 1024
"""Terms of a sum from which a vendor's kernel may be more accurate by half or more."""
GROUPED_WAVES = 4
"""Tiles an SM above which their order may decide what L2 still holds."""
FULL_WAVES = 0.98
"""Fill of the SMs above which stream-K gains nothing."""


def _split_fault(bk: int, split_k: int, problem: Problem) -> str | None:
    iterations = ceil_div(problem.k, bk)
    if split_k == 1 or longest_split(iterations, split_k) >= 2:
        return None
    return f"{iterations} k-iterations of {bk} do not go into {split_k} splits of 2 or more"


def _split_gain_fault(tile: SimtTile, split_k: int, problem: Problem, device: Device) -> str | None:
    if split_k == 1:
        return None
    count, sms = tile.count(problem), device.sms
    if count * (split_k - 1) < SPLIT_BLOCKS_A_SM * sms:
        return None
    return split_waves_fault(count, split_k, sms, WAVE_BLOCKS_A_SM)


def _reduction_fault(split_k: int, reduction: Reduction) -> str | None:
    if (split_k > 1) == (reduction in ("separate", "fused")):
        return None
    return f"split_k={split_k} with reduction={reduction}"


def _last_block_fault(tile: SimtTile, split_k: int, reduction: Reduction) -> str | None:
    return last_block_fault(4 * split_k * tile.elements) if reduction == "fused" else None


def _workers_fault(reduction: Reduction, workers: int, problem: Problem) -> str | None:
    if (reduction == "stream") != (workers > 0):
        return f"workers={workers} with reduction={reduction}"
    if workers and problem.batch > 1:
        return f"workers share one matrix; the batch has {problem.batch}"
    return None


def _stream_fault(
    tile: SimtTile, bk: int, workers: int, problem: Problem, device: Device
) -> str | None:
    if workers == 0:
        return None
    tiles, count = tile.tiles(problem), ceil_div(problem.k, bk)
    if fill(tiles, device.sms) > FULL_WAVES:
        return f"{tiles} tiles keep {device.sms} SMs busy as they are"
    if tiles * count < 4 * workers:
        return f"{tiles} tiles of {count} k-iterations leave {workers} workers less than 4 each"
    return None


def _chunks_fault(slices: int, split_k: int, chunks: int, problem: Problem) -> str | None:
    terms = problem.k // (split_k * slices)
    if chunks == 1 or terms // chunks >= CHUNK_TERMS:
        return None
    return f"{chunks} chunks of {terms} terms; {CHUNK_TERMS} each at least"


def _pack_fault(pack: Pack, problem: Problem) -> str | None:
    """Packing pays if it makes vectors possible and takes a small part of the time."""
    gains = "".join(
        operand
        for operand, extent, uses in (("a", problem.m, problem.n), ("b", problem.n, problem.m))
        if uses >= PACKED_USES and (extent % 4 or along_k(problem, operand))
    )
    return None if pack in ("none", gains) else f"{gains or 'no operand'} would gain from a copy"


def _workspace_fault(
    sharing: SimtKSharing, packing: VectorPacking, problem: Problem, device: Device
) -> str | None:
    floats = sharing.partial_floats(problem) + packing.packed_floats(problem)
    return workspace_fault(problem.element_bytes * floats, device)


def _group_fault(tile: SimtTile, group: int, problem: Problem, device: Device) -> str | None:
    rows, columns = ceil_div(problem.m, tile.bm), ceil_div(problem.n, tile.bn)
    return order_fault(rows, columns, group, GROUPED_WAVES, device)


RULES = (
    Rule("split-K", _split_fault),
    Rule("split-K", _split_gain_fault, for_shape=True),
    Rule("reduction", _reduction_fault),
    Rule("reduction", _last_block_fault),
    Rule("stream-K", _workers_fault),
    Rule("stream-K", _stream_fault),
    Rule("chunks", _chunks_fault),
    Rule("pack", _pack_fault),
    Rule("workspace", _workspace_fault),
    Rule("group", _group_fault),
)
"""Cheapest first."""
