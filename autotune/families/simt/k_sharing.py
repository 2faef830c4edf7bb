"""How `simt` blocks may share K, the workspace and L2."""

from __future__ import annotations

from functools import partial

from autotune.device import Device
from autotune.families.legacy import Params, Rule
from autotune.families.shared.k_sharing import fill, fuller, last_block_fault
from autotune.families.shared.layout import along_k
from autotune.families.shared.tiles import order_fault
from autotune.families.shared.workspace import workspace_fault
from autotune.families.simt.terms import packed_floats, partial_floats, tiles
from autotune.problem import Problem

# Up to so many blocks an SM hide each other's latency, whatever the waves they make; beyond that
# K is split only for a fuller last wave.
SPLIT_BLOCKS_A_SM = 2
WAVE_BLOCKS_A_SM = 8
PACKED_ROWS = 512
"""Rows that a packed operand must serve, for its copy to be a tenth of the product or less."""
CHUNK_TERMS = 1024
"""Terms of a sum from which on a vendor's kernel may be the more accurate by half or more."""
GROUPED_WAVES = 4
"""Tiles an SM from which on the order of tiles may decide what L2 still holds."""
FULL_WAVES = 0.98
"""A share of the SMs' time above which stream-K has nothing to gain."""


def rules(problem: Problem, device: Device) -> tuple[Rule, ...]:
    """The reasons to reject a way of sharing, cheapest first."""
    tile, shares = ("bm", "bn"), ("bm", "bn", "bk", "split_k")
    return (
        Rule("split-K", shares, partial(_split_fault, problem, device)),
        Rule("reduction", ("split_k", "reduction"), _reduction_fault),
        Rule("reduction", (*tile, "split_k", "reduction"), _last_block_fault),
        Rule("stream-K", ("reduction", "workers"), partial(_workers_fault, problem)),
        Rule(
            "stream-K",
            (*tile, "bk", "reduction", "workers"),
            partial(_stream_fault, problem, device),
        ),
        Rule(
            "chunks", ("slices", "split_k", "reduction", "chunks"), partial(_chunks_fault, problem)
        ),
        Rule("pack", ("pack",), partial(_pack_fault, problem)),
        Rule(
            "workspace",
            (*shares, "reduction", "workers", "pack"),
            partial(_workspace_fault, problem, device),
        ),
        Rule("group", (*tile, "group"), partial(_group_fault, problem, device)),
    )


def _split_fault(problem: Problem, device: Device, p: Params) -> str | None:
    splits = p["split_k"]
    if splits == 1:
        return None
    steps = -(-problem.k // p["bk"])
    share = -(-steps // splits)
    if share < 2 or -(-steps // share) != splits:
        return f"{steps} tiles of bk={p['bk']} do not go into {splits} shares of 2 or more"
    blocks, sms = tiles(p, problem) * problem.batch, device.sms
    if blocks * (splits - 1) < SPLIT_BLOCKS_A_SM * sms:
        return None
    if fuller(blocks, splits, sms) and blocks * splits <= WAVE_BLOCKS_A_SM * sms:
        return None
    return f"{blocks} tiles fill {sms} SMs as well with less than {splits} shares"


def _reduction_fault(p: Params) -> str | None:
    shares, reduction = p["split_k"] > 1, p["reduction"]
    if shares == (reduction in ("separate", "fused")):
        return None
    return f"split_k={p['split_k']} with reduction={reduction}"


def _last_block_fault(p: Params) -> str | None:
    if p["reduction"] != "fused":
        return None
    return last_block_fault(4 * p["split_k"] * p["bm"] * p["bn"])


def _workers_fault(problem: Problem, p: Params) -> str | None:
    workers = p["workers"]
    if (p["reduction"] == "stream") != (workers > 0):
        return f"workers={workers} with reduction={p['reduction']}"
    if workers and problem.batch > 1:
        return f"workers share one matrix; the batch has {problem.batch}"
    return None


def _stream_fault(problem: Problem, device: Device, p: Params) -> str | None:
    workers = p["workers"]
    if workers == 0:
        return None
    count, steps = tiles(p, problem), -(-problem.k // p["bk"])
    if fill(count, device.sms) > FULL_WAVES:
        return f"{count} tiles keep {device.sms} SMs busy as they are"
    if count * steps < 4 * workers:
        return f"{count} tiles of {steps} steps leave {workers} workers less than 4 each"
    return None


def _chunks_fault(problem: Problem, p: Params) -> str | None:
    if p["chunks"] == 1:
        return None
    terms = problem.k // (p["split_k"] * p["slices"])
    if terms // p["chunks"] >= CHUNK_TERMS:
        return None
    return f"{p['chunks']} chunks of {terms} terms; {CHUNK_TERMS} each at least"


def _pack_fault(problem: Problem, p: Params) -> str | None:
    """Operands are copied if that lets vectors in, and if the copy is a small part of the work."""
    copied = "".join(
        name
        for name, extent, served in (("a", problem.m, problem.n), ("b", problem.n, problem.m))
        if served >= PACKED_ROWS and (extent % 4 or along_k(problem, name))
    )
    if p["pack"] in ("none", copied):
        return None
    return f"{copied or 'no operand'} would gain from a copy"


def _workspace_fault(problem: Problem, device: Device, p: Params) -> str | None:
    floats = partial_floats(p, problem) + packed_floats(p, problem)
    return workspace_fault(problem.element_bytes * floats, device)


def _group_fault(problem: Problem, device: Device, p: Params) -> str | None:
    rows, columns = -(-problem.m // p["bm"]), -(-problem.n // p["bn"])
    return order_fault(rows, columns, p["group"], GROUPED_WAVES, device)
