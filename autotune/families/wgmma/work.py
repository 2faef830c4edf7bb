"""What the blocks of a `wgmma` configuration do, for the cost model."""

from __future__ import annotations

from autotune.families.base import Work
from autotune.families.legacy import Params
from autotune.families.plan import Alignment
from autotune.families.wgmma.k_sharing import packed_bytes
from autotune.families.wgmma.terms import (
    INSTRUCTION_ROWS,
    WARPGROUP,
    cluster,
    inner_shares,
    operand_names,
    outer_shares,
    q_rows,
    runs_along_k,
    sides,
    steps,
    streamed,
    summers,
    thread_count,
    tiles,
    units,
)
from autotune.problem import Problem

LANES = 32
SHARED_BYTES_A_CYCLE = 128
STORED_BYTES_A_CYCLE = 64
LOOP_INSTRUCTIONS = 16
"""Of a warp in a turn: the barriers, and the descriptors of what is multiplied."""
SPLIT_INSTRUCTIONS = 4
"""To make two tf32 of an fp32."""
SUMS_AT_ONCE = 16
"""Partial sums that a thread loads together."""
HIDDEN_ENDS = 0.25
"""Of a tile's end, what is left where another consumer multiplies meanwhile."""


def work(p: Params, problem: Problem) -> Work:
    """What one block does, for the cost model. A turn is a buffer of bk steps.

    Tiles count as blocks also where workers take one after the other: they fall on the SMs in the
    same waves.
    """
    along_x, along_y = sides(p)
    blocks, turns, parts = _shares(p, problem)
    ended = HIDDEN_ENDS if p["schedule"] == "pingpong" else 1.0
    # What a cluster adds up goes through shared memory, at more than the pace of stores.
    stored = ended * _stored_bytes(p, problem) + (2 if inner_shares(p) > 1 else 0)
    sums = along_x * along_y / (WARPGROUP * p["consumers"])
    copied = packed_bytes(p, problem, Alignment.dense(problem))
    shares = _gathered(p, problem)
    return Work(
        blocks=blocks,
        rows=p["bm"],
        columns=p["bn"],
        warps=thread_count(p) // LANES,
        turns=turns,
        starts=parts,
        issue=_instructions(p, problem),
        shared=_shared_cycles(p, problem),
        waits=1 if p["source"] == "registers" else 0,
        bytes=_bytes(p, problem),
        ahead=p["stages"] - 1,
        end=parts * along_x * along_y * stored / STORED_BYTES_A_CYCLE,
        group=p["group"],
        gathers=shares * sums / SUMS_AT_ONCE,
        passes=1 if copied else 0,
        moved=2 * copied,
        tensor=along_x * along_y * p["bk"] * problem.products,
        traits=(
            "wgmma",
            f"wgmma {problem.compute} {p['schedule']}",
            f"wgmma {along_x}x{along_y}",
        ),
    )


def _stored_bytes(p: Params, problem: Problem) -> int:
    """Of an element of C, or of half a sector that registers of 16-bit elements go into."""
    halves = p["store"] == "direct" and problem.output_bytes == 2
    return problem.output_bytes * (2 if halves else 1)


def _instructions(p: Params, problem: Problem) -> float:
    """Instructions of the warps of a block in a turn, but for those on the tensor cores."""
    along_x, along_y = sides(p)
    issued = LOOP_INSTRUCTIONS * thread_count(p) / LANES
    split = SPLIT_INSTRUCTIONS * (problem.products > 1)
    if p["source"] == "registers":
        issued += along_x * p["bk"] / LANES * (1 + split)
    if p["low"] == "kernel":
        issued += along_y * p["bk"] / LANES * (1 + split)
    if p["promote"]:
        issued += along_x * along_y / LANES / p["promote"]
    return issued


def _shared_cycles(p: Params, problem: Problem) -> float:
    """Cycles of the path to shared memory in a turn: what comes in, and what is multiplied.

    Each instruction of 64 rows reads all of Q anew.
    """
    along_x, along_y = sides(p)
    row = int(p["bk"]) * problem.element_bytes
    instructions = along_x // INSTRUCTION_ROWS
    name, _ = operand_names(p)
    # Lanes of a fragment that does not run along K meet in half the banks.
    p_reads = 2 if p["source"] == "registers" and not runs_along_k(p, problem, name) else 1
    brought = along_x + q_rows(p, problem)
    touched = brought + along_x * p_reads + along_y * instructions * problem.products
    split = 2 * along_y if p["low"] == "kernel" else 0
    return (touched + split) * row / SHARED_BYTES_A_CYCLE


def _bytes(p: Params, problem: Problem) -> float:
    """Bytes that a block asks of L2 in a turn; blocks of a cluster bring parts for each other."""
    (along_x, _), (sharing_q, sharing_p) = sides(p), cluster(p)
    planes = 2 if p["low"] == "pass" else 1
    rows: float = along_x / sharing_p + planes * q_rows(p, problem) / sharing_q
    return rows * int(p["bk"]) * problem.element_bytes


def _shares(p: Params, problem: Problem) -> tuple[int, float, float]:
    """Blocks, the turns of each, and of how many tiles of C each has a part."""
    count, turns = tiles(p, problem), steps(p, problem)
    if p["reduction"] != "stream":
        return units(p, problem), -(-turns // p["split_k"]), 1
    workers = p["workers"]
    whole = (count - streamed(p, problem)) / workers
    return workers, turns * count / workers, whole + 1 + (count / workers - whole)


def _gathered(p: Params, problem: Problem) -> float:
    """Shares of a tile that one block adds up, one after the other."""
    match p["reduction"]:
        case "fused":
            return outer_shares(p) / summers(p)
        case "stream":
            return float(p["workers"] / streamed(p, problem) + 1)
    return 0
