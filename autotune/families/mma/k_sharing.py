"""Rules of `mma` on split-K, packing, the workspace, the order of tiles and the store."""

from __future__ import annotations

from math import gcd

from autotune.device import Device
from autotune.families.mma import columns
from autotune.families.mma.parameters import (
    SPLITS,
    CopyPath,
    MmaBuffer,
    Store,
)
from autotune.families.mma.tiles import MmaTile, MmaWarpTile, partial_bytes
from autotune.families.plan import VECTOR_BYTES, Alignment
from autotune.families.rules import Rule
from autotune.families.shared.k_sharing import (
    last_block_fault,
    longest_split,
    split_waves_fault,
)
from autotune.families.shared.packing import Pack, Packing, must_transpose, packed_bytes
from autotune.families.shared.tiles import order_fault
from autotune.families.shared.workspace import workspace_fault
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

SPLIT_BLOCKS_A_SM, WAVE_BLOCKS_A_SM = 2, 4
"""Blocks an SM that hide each other's latency whatever the waves they make, and the most blocks an
SM for which K is split only to fill the last wave."""
SPLIT_BYTES = 256
"""The least bytes of K of a split: its store and load cost as much."""
LONG_SPLIT = 2048
"""Steps of K from which two blocks are faster than one, if there are SMs for both."""
PACKED_ROWS = 512
"""The least rows that a packed operand serves, for its copy to be a tenth of the GEMM or less."""
GROUPS = 1, 4, 8
GROUPED_TILES = 2
"""Tiles an SM above which their order may decide what L2 still holds."""
WIDE_TILE = 64 * 64
SECTOR = 32


def _split_fault(buffer: MmaBuffer, split_k: int, problem: Problem) -> str | None:
    if split_k == 1 or _divides(buffer, split_k, problem):
        return None
    return f"{buffer.iterations(problem)} tiles of bk={buffer.bk} do not go into {split_k} splits"


def _split_gain_fault(tile: MmaTile, split_k: int, problem: Problem, device: Device) -> str | None:
    if split_k == 1:
        return None
    count, sms = tile.count(problem), device.sms
    if count * (split_k - 1) < SPLIT_BLOCKS_A_SM * sms:
        return None
    return split_waves_fault(count, split_k, sms, WAVE_BLOCKS_A_SM)


def _divides(buffer: MmaBuffer, splits: int, problem: Problem) -> bool:
    """Whether K has so many splits that are long enough, and none of them empty."""
    longest = longest_split(buffer.iterations(problem), splits)
    return longest * buffer.row_bytes >= SPLIT_BYTES


def _last_block_fault(tile: MmaTile, split_k: int) -> str | None:
    return None if split_k == 1 else last_block_fault(4 * split_k * tile.elements)


def _idle_fault(
    tile: MmaTile, buffer: MmaBuffer, split_k: int, problem: Problem, device: Device
) -> str | None:
    blocks = tile.count(problem) * split_k
    if 2 * blocks >= device.sms:
        return None
    if tile.elements > WIDE_TILE:
        return f"{blocks} blocks of {tile.bm}x{tile.bn} leave most of {device.sms} SMs idle"
    terms = problem.k // split_k
    more = (
        splits
        for splits in SPLITS
        if splits >= 2 * split_k
        and _divides(buffer, splits, problem)
        and last_block_fault(4 * splits * tile.elements) is None
    )
    if terms < LONG_SPLIT or not any(more):
        return None
    return f"{blocks} blocks with {terms} of K each leave most of {device.sms} SMs idle"


def _pack_fault(copy: CopyPath, pack: Pack, problem: Problem) -> str | None:
    """Operands are packed if they have to be transposed, or if that allows whole vectors and the
    copy takes little time."""
    if copy == "staged" and pack != "none":
        return "registers take vectors that end with their row, wherever it starts"
    dense, size = Alignment.dense(problem), problem.element_bytes
    needed = "".join(operand for operand in "ab" if must_transpose(problem, operand))
    gaining = "".join(
        operand
        for operand, width, served in (("a", dense.a, problem.n), ("b", dense.b, problem.m))
        if operand in needed or (served >= PACKED_ROWS and width * size < VECTOR_BYTES)
    )
    if pack in (needed or "none", gaining):
        return None
    if needed:
        return f"8-bit operands run along K, which takes a transposed copy of {needed}"
    return f"{gaining or 'no operand'} would gain from a copy"


def _workspace_fault(
    tile: MmaTile, split_k: int, packing: Packing, problem: Problem, device: Device
) -> str | None:
    needed = partial_bytes(tile, split_k, problem) + packed_bytes(packing, problem)
    return workspace_fault(needed, device)


def _group_fault(
    tile: MmaTile, copy: CopyPath, group: int, problem: Problem, device: Device
) -> str | None:
    form = tile.oriented(problem)
    if copy == "ahead":
        return columns.group_fault(tile, group, problem, device)
    if group not in GROUPS:
        return f"group={group}; {GROUPS} are tried for tiles of blocks of their own"
    down, across = ceil_div(form.m, tile.bm), ceil_div(form.n, tile.bn)
    return order_fault(down, across, group, GROUPED_TILES, device)


def _store_fault(
    swap: int, warp: MmaWarpTile, copy: CopyPath, split_k: int, store: Store, problem: Problem
) -> str | None:
    if store == "direct":
        return None
    if problem.output_element.integer:
        return "int32 sums are stored as they are"
    vector = gcd(Alignment.dense(problem).c, problem.width) * problem.output_bytes
    if copy == "ahead" and vector == VECTOR_BYTES:
        return "threads hold whole vectors of a row as it is"
    if swap:
        return "the rows of C are the columns of a tile"
    if split_k > 1:
        return "blocks that add up splits wait for their loads"
    width = warp.wn // 2 if problem.gated else warp.wn
    neighbours, row = warp.neighbours(problem), min(SECTOR, width * problem.output_bytes)
    if neighbours * problem.output_bytes >= row:
        return f"threads hold {neighbours} neighbours of a row as it is"
    return None


RULES = (
    Rule("split-K", _split_fault),
    Rule("split-K", _split_gain_fault, for_shape=True),
    Rule("split-K", _last_block_fault),
    Rule("idle SMs", _idle_fault, for_shape=True),
    Rule("pack", _pack_fault),
    Rule("workspace", _workspace_fault),
    Rule("group", _group_fault),
    Rule("store", _store_fault),
)
"""The rules on sharing, cheapest first."""
