"""What the blocks of a `simt` configuration do, for the cost model."""

from __future__ import annotations

from math import gcd

from autotune.families.base import Work
from autotune.families.legacy import Params
from autotune.families.plan import Alignment
from autotune.families.shared.layout import along_k
from autotune.families.simt.terms import (
    block_count,
    packed,
    packed_floats,
    partial_floats,
    streamed,
    thread_count,
    tiles,
)
from autotune.problem import Problem

LANES, VECTOR = 32, 4
LINE_FLOATS, SECTOR_FLOATS = 32, 8
"""What L1 looks up at a time, and what a row of an operand along K has of it."""
LOAD_CYCLES = 2
"""Of the path to shared memory for a fragment's float4: 32 lanes, of which many read the same."""
LOOP_INSTRUCTIONS = 12
"""Of a warp in a turn: the barrier, the counters and addresses of the loop."""
STORED_BYTES_A_CYCLE = 64
SHARES_AT_ONCE, SUMS_AT_ONCE = 4, 16
"""Partial sums that a thread loads together (`shares.cuh`, `simt.cu`)."""


def work(p: Params, problem: Problem) -> Work:
    """What one block does, for the cost model. A turn is a buffer of bk steps."""
    warps, steps = thread_count(p) // LANES, p["bk"] // p["slices"]
    tm, tn, tile = p["tm"], p["tn"], p["bm"] * p["bn"]
    loads = warps * steps * (tm + tn) / VECTOR
    copies, lines = _copies(p, problem)
    blocks, turns, parts = _shares(p, problem)
    added = 2 * (p["slices"] - 1) + 2 * p["slices"] * (p["chunks"] - 1)
    stored = problem.element_bytes / STORED_BYTES_A_CYCLE
    shares, passes, moved = _passes(p, problem)
    return Work(
        blocks=blocks,
        rows=p["bm"],
        columns=p["bn"],
        warps=warps,
        turns=turns,
        starts=parts * p["chunks"],
        issue=warps * steps * tm * tn + loads + LOOP_INSTRUCTIONS * warps,
        copies=copies,
        shared=LOAD_CYCLES * loads + lines,
        waits=steps if p["fragments"] == 1 else 1,
        bytes=problem.element_bytes * p["bk"] * (p["bm"] + p["bn"]),
        ahead=p["stages"] - 1,
        end=parts * tile * (added / LANES + stored),
        group=p["group"],
        gathers=-(-shares // SHARES_AT_ONCE) * tm * tn / SUMS_AT_ONCE,
        passes=passes,
        moved=moved,
        traits=_traits(p),
    )


def _traits(p: Params) -> tuple[str, ...]:
    """The inner loop, which decides how ptxas orders it and how often its registers collide.

    The last is all of it; those before are what it shares with others.
    """
    loop, steps = f"{p['tm']}x{p['tn']}", p["bk"] // p["slices"]
    copied = f"{loop} {p['copy']} of {steps}"
    whole = f"{copied} {p['order']} {p['fragments']} fence={p['fence']}"
    kinds = loop, copied, f"{loop} {p['order']} fence={p['fence']}", whole
    return (*kinds, "stream") if p["reduction"] == "stream" else kinds


def _copies(p: Params, problem: Problem) -> tuple[float, float]:
    """Instructions that bring the operands of a turn, and cycles that they take of shared memory.

    An operand whose rows run along K is transposed on the way, a float at a time.
    """
    instructions = lines = 0.0
    alignment = Alignment.dense(problem)
    whole = problem.m % p["bm"] == problem.n % p["bn"] == problem.k % p["bk"] == 0
    for name, extent, width in (
        ("a", "bm", alignment.a),
        ("b", "bn", alignment.b),
    ):
        floats, runs = p["bk"] * p[extent], along_k(problem, name)
        if packed(p, name):
            width, runs = VECTOR, False
        # Rows that begin anywhere touch one sector, or line, more.
        touched = 1 if width == VECTOR else 2
        size = problem.k if runs else getattr(problem, "m" if name == "a" else "n")
        width = 1 if runs and p["copy"] == "async" else gcd(width, size)
        a_copy = 1 if whole else 2
        instructions += floats / LANES / width * a_copy
        lines += touched * floats / (SECTOR_FLOATS if runs else LINE_FLOATS)
        if p["copy"] == "staged":
            instructions += floats / LANES / (1 if runs else width)
            lines += floats / LINE_FLOATS
    return instructions, lines


def _shares(p: Params, problem: Problem) -> tuple[int, float, float]:
    """Blocks, the turns of each, and of how many tiles of C each has a part."""
    steps = -(-problem.k // p["bk"])
    if p["reduction"] != "stream":
        return block_count(p, problem), -(-steps // p["split_k"]), 1
    count, workers = tiles(p, problem), p["workers"]
    # Workers and the whole tiles that follow them come out even.
    whole = (count - streamed(p, problem)) / workers
    return workers, steps * count / workers, whole + 1 + (count / workers - whole)


def _passes(p: Params, problem: Problem) -> tuple[float, int, float]:
    """Shares of a tile that one block adds up; launches that pack or add up; bytes of those."""
    each = problem.element_bytes
    copied = each * packed_floats(p, problem)
    passes, moved = 0 if p["pack"] == "none" else len(p["pack"]), 2.0 * copied
    match p["reduction"]:
        case "separate":
            return 0, passes + 1, moved + 2 * each * partial_floats(p, problem)
        case "fused":
            return p["split_k"], passes, moved
        case "stream":
            return p["workers"] / streamed(p, problem) + 1, passes, moved
    return 0, passes, moved
