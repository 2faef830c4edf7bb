"""How `mma` blocks may share K, the workspace and L2, and how they store C."""

from __future__ import annotations

from functools import partial

from autotune.device import Device
from autotune.families.legacy import Params, Rule
from autotune.families.mma.terms import (
    element_bytes,
    form_of,
    neighbours,
    packed,
    partial_bytes,
    tiles,
)
from autotune.families.plan import VECTOR_BYTES, Alignment
from autotune.families.shared.k_sharing import fuller, last_block_fault
from autotune.families.shared.packing import copy
from autotune.families.shared.tiles import order_fault
from autotune.families.shared.workspace import workspace_fault
from autotune.problem import Problem

SPLIT_BLOCKS_A_SM = 2
"""Up to so many blocks an SM hide each other's latency, whatever the waves they make; beyond that
K is split only for a fuller last wave."""
WAVE_BLOCKS_A_SM = 4
SHARE_BYTES = 256
"""Bytes of K that a share has at least; what it leaves for others costs as much."""
LONG_SHARE = 2048
"""Steps of K from which on two blocks are faster than one, if there are SMs for both."""
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
PACKED_ROWS = 512
"""Rows that a packed operand must serve, for its copy to be a tenth of the product or less."""
GROUPED_TILES = 2
"""Tiles an SM from which on the order of tiles may decide what L2 still holds."""
WIDE_TILE = 64 * 64
SECTOR = 32


def rules(problem: Problem, device: Device) -> tuple[Rule, ...]:
    """The reasons to reject a way of sharing, cheapest first."""
    tile, shares = ("swap", "bm", "bn"), ("swap", "bm", "bn", "bk", "split_k")
    return (
        Rule("split-K", (*shares, "compute"), partial(_split_fault, problem, device)),
        Rule("split-K", (*tile, "split_k"), _last_block_fault),
        Rule("idle SMs", (*shares, "compute"), partial(_idle_fault, problem, device)),
        Rule("pack", ("copy", "pack"), partial(_pack_fault, problem)),
        Rule("workspace", (*tile, "split_k", "pack"), partial(_workspace_fault, problem, device)),
        Rule("group", (*tile, "group"), partial(_group_fault, problem, device)),
        Rule("store", ("swap", "wn", "split_k", "store"), partial(_store_fault, problem)),
    )


def _split_fault(problem: Problem, device: Device, p: Params) -> str | None:
    splits = p["split_k"]
    if splits == 1:
        return None
    if not _goes_into(problem, p, splits):
        turns = -(-problem.k // p["bk"])
        return f"{turns} tiles of bk={p['bk']} do not go into {splits} shares"
    blocks, sms = tiles(p, problem) * problem.batch, device.sms
    if blocks * (splits - 1) < SPLIT_BLOCKS_A_SM * sms:
        return None
    if fuller(blocks, splits, sms) and blocks * splits <= WAVE_BLOCKS_A_SM * sms:
        return None
    return f"{blocks} tiles fill {sms} SMs as well with less than {splits} shares"


def _goes_into(problem: Problem, p: Params, splits: int) -> bool:
    """Whether K makes so many shares that are long enough, and none that is empty."""
    turns = -(-problem.k // p["bk"])
    share = -(-turns // splits)
    enough: bool = share * p["bk"] * element_bytes(p) >= SHARE_BYTES
    return enough and -(-turns // share) == splits


def _last_block_fault(p: Params) -> str | None:
    return None if p["split_k"] == 1 else last_block_fault(_last_read(p, p["split_k"]))


def _last_read(p: Params, splits: int) -> int:
    """Bytes that the last block of a tile with so many shares reads."""
    return int(4 * splits * p["bm"] * p["bn"])


def _idle_fault(problem: Problem, device: Device, p: Params) -> str | None:
    blocks = tiles(p, problem) * problem.batch * p["split_k"]
    if 2 * blocks >= device.sms:
        return None
    if p["bm"] * p["bn"] > WIDE_TILE:
        return f"{blocks} blocks of {p['bm']}x{p['bn']} leave most of {device.sms} SMs idle"
    terms = problem.k // p["split_k"]
    more = (
        splits
        for splits in SPLITS
        if splits >= 2 * p["split_k"]
        and _goes_into(problem, p, splits)
        and last_block_fault(_last_read(p, splits)) is None
    )
    if terms < LONG_SHARE or not any(more):
        return None
    return f"{blocks} blocks with {terms} of K each leave most of {device.sms} SMs idle"


def _pack_fault(problem: Problem, p: Params) -> str | None:
    """Operands are copied if that lets whole vectors in, and if the copy is a small part."""
    if p["copy"] == "staged" and p["pack"] != "none":
        return "registers take vectors that end with their row, wherever it starts"
    dense, size = Alignment.dense(problem), problem.element_bytes
    copied = "".join(
        name
        for name, width, served in (("a", dense.a, problem.n), ("b", dense.b, problem.m))
        if served >= PACKED_ROWS and width * size < VECTOR_BYTES
    )
    if p["pack"] in ("none", copied):
        return None
    return f"{copied or 'no operand'} would gain from a copy"


def _workspace_fault(problem: Problem, device: Device, p: Params) -> str | None:
    copies = sum(copy(problem, name).bytes for name in "ab" if packed(p, name))
    return workspace_fault(partial_bytes(p, problem) + copies, device)


def _group_fault(problem: Problem, device: Device, p: Params) -> str | None:
    form = form_of(p, problem)
    rows, columns = -(-form.m // p["bm"]), -(-form.n // p["bn"])
    return order_fault(rows, columns, p["group"], GROUPED_TILES, device)


def _store_fault(problem: Problem, p: Params) -> str | None:
    if p["store"] == "direct":
        return None
    if p["swap"]:
        return "the rows of C are the columns of a tile"
    if p["split_k"] > 1:
        return "blocks that add up shares wait for their loads"
    held, row = neighbours(p, problem), min(SECTOR, p["wn"] * problem.output_bytes)
    if held * problem.output_bytes >= row:
        return f"threads hold {held} neighbours of a row as it is"
    return None
