"""How the blocks of `wgmma` may share tiles, K, the workspace and L2."""

from __future__ import annotations

from functools import partial

from autotune.device import Device
from autotune.families.legacy import Params, Rule
from autotune.families.plan import Alignment
from autotune.families.shared import packing
from autotune.families.shared.k_sharing import LAST_BLOCK_BYTES, fill, fuller, last_block_fault
from autotune.families.shared.tiles import order_fault
from autotune.families.shared.workspace import workspace_fault
from autotune.families.wgmma import tile_choice
from autotune.families.wgmma.terms import (
    SPAN,
    cluster,
    inner_shares,
    operand_names,
    outer_shares,
    packed,
    partial_floats,
    runs_along_k,
    sides,
    steps,
    summers,
    tile_grid,
    tiles,
    transposed,
    units,
)
from autotune.families.wgmma.tile_choice import FEW_STEPS, SHARE_STEPS
from autotune.problem import Problem

BUSY, IDLE = 0.8, 0.4
"""Of the best share of the SMs' time that goes into C, what a tile must reach if there is a wave or
more, and if there is less."""
SMALL_TILE = 128 * 128 * 128
"""Multiply-adds of a tile that take less than the launch, whatever else is idle."""
FULLER = 1.05
"""Times as much of the SMs' time must shares of K use as fewer of them would."""
FULL_WAVES = 0.95
"""A share of the SMs' time above which shares of K have nothing to gain."""
LONG_SHARES = 2
"""Times as many blocks of K as a share has at least, from which on two are better than one."""
FEW_WAVES = 4
"""Waves of tiles, up to which a part of one is worth sharing."""
CLUSTERED_TILE = 64 * 128
"""Elements of a tile from which on what clusters save is worth their waiting for each other."""
GROUPED_ROWS = (768, 2048)
"""Rows of C of a group of tiles: about as much of A as L2 keeps beside B."""
GROUPED_WAVES = 3
TILE = ("swap", "bm", "bn")


def rules(problem: Problem, device: Device) -> tuple[Rule, ...]:
    """The reasons to reject a way of sharing, cheapest first."""
    blocks = (*TILE, "schedule", "min_blocks")
    shares = (*TILE, "bk", "cluster", "split_k")
    return (
        Rule("block of K", ("bk",), partial(_block_fault, problem)),
        Rule("clusters", (*TILE, "cluster"), partial(_cluster_fault, problem, device)),
        Rule(
            "split-K", (*shares, "min_blocks", "schedule"), partial(_split_fault, problem, device)
        ),
        Rule("reduction", (*TILE, "cluster", "split_k", "reduction"), _reduction_fault),
        Rule(
            "workers",
            (*blocks, "consumers", "cluster", "split_k", "reduction", "workers"),
            partial(_workers_fault, problem, device),
        ),
        Rule(
            "stream-K",
            (*shares, "schedule", "reduction", "workers"),
            partial(_stream_fault, problem, device),
        ),
        Rule("waves", (*TILE, "split_k", "reduction"), partial(_waves_fault, problem, device)),
        Rule("waves", (*shares, "reduction"), partial(_idle_fault, problem, device)),
        Rule(
            "workspace",
            (*shares, "source", "low", "pack", "reduction", "workers"),
            partial(_workspace_fault, problem, device),
        ),
        Rule(
            "group", (*TILE, "split_k", "cluster", "group"), partial(_group_fault, problem, device)
        ),
    )


def _block_fault(problem: Problem, p: Params) -> str | None:
    """Blocks of two spans halve the waiting where there are enough of them."""
    row = p["bk"] * problem.element_bytes
    if row > 128 and problem.k < SHARE_STEPS * p["bk"]:
        return f"K={problem.k} has less than {SHARE_STEPS} blocks of {p['bk']}"
    return None


def _cluster_fault(problem: Problem, device: Device, p: Params) -> str | None:
    """Two blocks share the larger operand of their tiles: one reads it for both."""
    along_x, along_y = cluster(p)
    if along_x == along_y:
        return None
    side_x, side_y = sides(p)
    plain = {**p, "cluster": "1x1"}
    count = tiles(plain, problem) * problem.batch
    if 2 * count < device.sms:
        return f"{count} tiles do not keep {device.sms} SMs busy"
    if side_x * side_y < CLUSTERED_TILE:
        return f"{side_x}x{side_y} are computed before the other block knows"
    if (side_x < side_y and along_y > 1) or (side_y < side_x and along_x > 1):
        return f"blocks of {side_x}x{side_y} share the longer side"
    x, y = tile_grid(plain, problem)
    if tiles(p, problem) > 1.06 * x * y:
        return f"{x}x{y} tiles are no clusters of {p['cluster']}"
    _, q = operand_names(p)
    if along_x > 1 and runs_along_k(p, problem, q) and side_y % 16:
        return f"{side_y} rows of y have no halves of whole swizzled spans"
    return None


def _split_fault(problem: Problem, device: Device, p: Params) -> str | None:
    splits = p["split_k"]
    if splits == 1:
        return None if inner_shares(p) == 1 else f"no shares of K for cluster={p['cluster']}"
    if cluster(p) != (1, 1) or splits % inner_shares(p) or p["schedule"] == "pingpong":
        return f"shares of K with cluster={p['cluster']}, schedule={p['schedule']}"
    count = steps(p, problem)
    share = -(-count // splits)
    least = SHARE_STEPS if count >= FEW_STEPS else SHARE_STEPS // 2
    if share < least or -(-count // share) != splits:
        return f"{count} blocks of K do not go into {splits} shares of {least} or more"
    blocks, sms = tiles(p, problem) * problem.batch, device.sms
    if blocks * (splits - 1) < p["min_blocks"] * sms and blocks < sms:
        return None
    if fuller(blocks, splits, sms, FULLER) and blocks * splits <= FEW_WAVES * sms:
        return None
    return f"{blocks} tiles fill {sms} SMs as well with less than {splits} shares"


def _reduction_fault(p: Params) -> str | None:
    (along_x, along_y), outer, reduction = sides(p), outer_shares(p), p["reduction"]
    if (outer > 1) != (reduction == "fused"):
        return f"split_k={p['split_k']}, cluster={p['cluster']} with reduction={reduction}"
    read = 4 * outer * along_x * along_y // summers(p)
    return None if outer == 1 else last_block_fault(read)


def _workers_fault(problem: Problem, device: Device, p: Params) -> str | None:
    workers, all_at_once = p["workers"], p["min_blocks"] * device.sms
    if workers not in (0, all_at_once):
        return f"{workers} workers; {all_at_once} blocks are resident"
    if p["reduction"] == "stream":
        return None if workers else "no workers to stream"
    if workers and inner_shares(p) > 1:
        return "a cluster adds up one tile"
    count = units(p, problem)
    if count <= (p["min_blocks"] - 1) * device.sms:
        return f"{count} pieces of work leave {p['min_blocks']} blocks an SM no second one"
    if workers:
        return None if count > workers else f"{count} pieces of work need no workers"
    if p["schedule"] == "pingpong":
        return "consumers take turns with the tiles of one block"
    if p["min_blocks"] == 1 and count > 2 * device.sms:
        return f"{count} blocks after each other, each filling its buffers anew"
    return None


def _stream_fault(problem: Problem, device: Device, p: Params) -> str | None:
    if p["reduction"] != "stream":
        return None
    if problem.batch > 1 or p["cluster"] != "1x1" or p["schedule"] == "pingpong":
        return f"a line of batch={problem.batch}, cluster={p['cluster']}, {p['schedule']}"
    count = tiles(p, problem)
    if fill(count, device.sms) > FULL_WAVES or count > 2 * FEW_WAVES * device.sms:
        return f"{count} tiles keep {device.sms} SMs busy as they are"
    if count * steps(p, problem) < SHARE_STEPS * p["workers"]:
        return f"{count} tiles leave {p['workers']} workers less than {SHARE_STEPS} blocks of K"
    return None


def _waves_fault(problem: Problem, device: Device, p: Params) -> str | None:
    """What whole tiles leave idle, others or shares of K can use."""
    if p["reduction"] != "none" or p["split_k"] > 1:
        return None
    along_x, along_y = sides(p)
    reached = tile_choice.fill(problem, device, p["swap"], along_x, along_y)
    best = tile_choice.best_fill(problem, device)
    busy = tiles({**p, "cluster": "1x1"}, problem) * problem.batch > device.sms
    if reached >= (BUSY if busy else IDLE) * best:
        return None
    if not busy and along_x * along_y * problem.k * problem.products <= SMALL_TILE:
        return None
    return f"tiles use {reached:.0%} of the SMs' time, others {best:.0%}"


def _idle_fault(problem: Problem, device: Device, p: Params) -> str | None:
    """Of many idle SMs some could have a share of a long K."""
    splits, (along_x, along_y) = p["split_k"], sides(p)
    count = tiles({**p, "cluster": "1x1"}, problem) * problem.batch * splits
    more = 8 * outer_shares(p) * along_x * along_y <= LAST_BLOCK_BYTES * summers(p)
    if p["reduction"] == "stream" or 3 * count > device.sms or not more:
        return None
    if steps(p, problem) < 2 * SHARE_STEPS * LONG_SHARES * splits:
        return None
    return f"{count} pieces of work for {device.sms} SMs; K={problem.k} is enough for more"


def _workspace_fault(problem: Problem, device: Device, p: Params) -> str | None:
    dense = Alignment.dense(problem)
    needed = 4 * partial_floats(p, problem) + packed_bytes(p, problem, dense)
    return workspace_fault(needed, device)


def packed_bytes(p: Params, problem: Problem, alignment: Alignment) -> int:
    """Bytes of the copies of operands of that alignment."""
    _, q = operand_names(p)
    return sum(
        packing.copy(
            problem,
            name,
            transposed=transposed(p, problem, name),
            low=name == q and p["low"] == "pass",
            line=SPAN,
        ).bytes
        for name in ("a", "b")
        if packed(p, problem, alignment, name)
    )


def _group_fault(problem: Problem, device: Device, p: Params) -> str | None:
    group, (least, most) = p["group"], GROUPED_ROWS
    rows, columns = -(-problem.m // p["bm"]), -(-problem.n // p["bn"])
    fault = order_fault(rows, columns, group, GROUPED_WAVES, device)
    if fault or group == 1 or least <= group * p["bm"] <= most:
        return fault
    return f"groups of {group * p['bm']} rows of C; {least} to {most} suit L2"
