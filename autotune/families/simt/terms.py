"""What the parameters of `simt` stand for, in threads, blocks and bytes."""

from __future__ import annotations

from math import prod

from autotune.families.legacy import Params
from autotune.problem import Problem

COPIES = ("staged", "async")
ORDERS = ("rows", "columns", "snake", "row-pairs", "column-pairs")
PACKS = ("none", "a", "b", "ab")
REDUCTIONS = ("none", "separate", "fused", "stream")

PADDING = 4
# Registers besides the sums and fragments: addresses, counters, predicates.
OTHER_REGISTERS = 26


def thread_count(p: Params) -> int:
    """Threads a block."""
    warps: int = (p["bm"] // p["wm"]) * (p["bn"] // p["wn"]) * p["slices"]
    return 32 * warps


def tiles(p: Params, problem: Problem) -> int:
    """Tiles of bm x bn that cover one C of the batch."""
    rows: int = -(-problem.m // p["bm"])
    columns: int = -(-problem.n // p["bn"])
    return rows * columns


def streamed(p: Params, problem: Problem) -> int:
    """Tiles that `workers` blocks share: those of the wave that is not full and of the one before,
    so that each worker has a tile or more and no tile more than two workers; or all of them. None
    without workers."""
    count, workers = tiles(p, problem), p["workers"]
    if workers == 0:
        return 0
    return count if count < 2 * workers else int(count % workers + workers)


def grid(p: Params, problem: Problem) -> tuple[int, int, int]:
    """Blocks that multiply: for the tiles of one C, for the shares of each, for the batch."""
    along_c = tiles(p, problem) - streamed(p, problem) + int(p["workers"])
    return along_c, int(p["split_k"]), problem.batch


def block_count(p: Params, problem: Problem) -> int:
    """Blocks that multiply, over the whole batch."""
    return prod(grid(p, problem))


def partial_floats(p: Params, problem: Problem) -> int:
    """Floats of workspace that shares of K take until they are added up."""
    tile: int = p["bm"] * p["bn"]
    match p["reduction"]:
        case "separate":
            return problem.batch * int(p["split_k"]) * problem.m * pitch(problem.n)
        case "fused":
            return block_count(p, problem) * tile
        case "stream":
            return 2 * int(p["workers"]) * tile
    return 0


def packed(p: Params, operand: str) -> bool:
    """Whether `a` or `b` is copied before it is multiplied."""
    return p["pack"] != "none" and operand in p["pack"]


def packed_floats(p: Params, problem: Problem) -> int:
    """Floats of workspace that packed operands take."""
    extents = (("a", problem.m), ("b", problem.n))
    rows = sum(pitch(extent) for operand, extent in extents if packed(p, operand))
    return problem.batch * problem.k * rows


def pitch(extent: int) -> int:
    """Floats of a row of `extent` that starts at a multiple of 4."""
    return -(-extent // 4) * 4


def register_estimate(p: Params) -> int:
    """Registers a thread: sums, fragments, what is staged in them, and some besides."""
    sums: int = p["tm"] * p["tn"]
    fragments: int = p["fragments"] * (p["tm"] + p["tn"])
    staged: int = p["bk"] * (p["bm"] + p["bn"]) // thread_count(p) if p["copy"] == "staged" else 0
    return sums + fragments + staged + OTHER_REGISTERS


def shared_bytes(p: Params, padded: int = 2) -> int:
    """Bytes of the buffers, of which `padded` operands run along K, or of what slices add up; and
    of the sums of finished chunks."""
    row: int = p["bm"] + p["bn"] + PADDING * padded
    buffers: int = p["stages"] * p["bk"] * row
    slices: int = (p["slices"] - 1) * p["bm"] * p["bn"]
    waiting: int = p["slices"] * p["bm"] * p["bn"] if p["chunks"] > 1 else 0
    return 4 * (waiting + max(buffers, slices))
