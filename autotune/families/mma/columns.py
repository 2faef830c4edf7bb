"""Rules of `mma` on columns of tiles, each of which one block computes (mma/column.cuh)."""

from __future__ import annotations

from autotune.device import Device
from autotune.families.mma.parameters import CopyPath, MmaBuffer, MmaCopies
from autotune.families.mma.tiles import MmaTile, column_count
from autotune.families.plan import Alignment
from autotune.families.shared.k_sharing import fill
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

DEPTHS = 16, 32, 64, 128
"""Steps of K of a buffer."""
STAGES = 2, 3, 4, 6
"""Buffers of A of a block that computes a column of tiles."""
ROWS, WIDTH = 128, 64
"""The most rows, and the least columns, of a tile in a column of them."""
EVEN = 0.75
"""The least fill of the SMs by columns of tiles, which all take as long."""
MANY_COLUMNS = 12
"""Columns of tiles an SM from which the last of them matter little."""


def column_fault(
    tile: MmaTile, wn: int, slices: int, copies: MmaCopies, problem: Problem
) -> str | None:
    """Why a block does not compute a column of such tiles; None if it may."""
    if copies.copy != "ahead":
        return None
    if tile.swap or slices > 1:
        return "a column of tiles is one of C, in one slice"
    if copies.pack != "none":
        return "a copy of an operand would take as long as the product"
    whole = 1 << (problem.n - 1).bit_length()
    if tile.bm > ROWS or tile.bn < min(WIDTH, whole) or wn < min(32, tile.bn):
        return f"{tile.bm}x{tile.bn} in parts of {wn} columns stores parts of short rows"
    return None


def stages_fault(copies: MmaCopies, stages: int, problem: Problem) -> str | None:
    """Why A does not come in so many buffers; None if it may."""
    if copies.copy != "ahead":
        return None
    width = copies.width(problem, "a", Alignment.dense(problem).a)
    through = copies.goes_through_registers(width, problem.element_bytes)
    tried = (2,) if through else STAGES
    return None if stages in tried else f"stages={stages} of a column; {tried} are tried"


def depth_fault(buffer: MmaBuffer, copy: CopyPath, problem: Problem) -> str | None:
    """Why a buffer of a column has another depth; None if K needs this one."""
    if copy != "ahead" or buffer.bk == next(bk for bk in DEPTHS if bk >= problem.k):
        return None
    return f"bk={buffer.bk} is not the least that holds K={problem.k}"


def group_fault(tile: MmaTile, group: int, problem: Problem, device: Device) -> str | None:
    """Why a block does not compute `group` tiles; None if it may."""
    if group == 1:
        return "a column of one tile has no next one"
    if group > ceil_div(problem.m, tile.bm):
        return f"group={group} of {ceil_div(problem.m, tile.bm)} rows of tiles"
    blocks = column_count(tile, group, problem) * problem.batch
    if blocks > MANY_COLUMNS * device.sms or fill(blocks, device.sms) >= EVEN:
        return None
    return f"{blocks} columns of {group} tiles fill {device.sms} SMs unevenly"
