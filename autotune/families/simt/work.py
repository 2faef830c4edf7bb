"""The work of the blocks of a `simt` configuration, for the cost model."""

from __future__ import annotations

from math import ceil, gcd

from autotune.families.base import Work
from autotune.families.plan import Alignment
from autotune.families.shared import stream_k
from autotune.families.shared.layout import along_k
from autotune.families.simt.parameters import WARP, SimtParams
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

VECTOR = 4
LINE_FLOATS, SECTOR_FLOATS = 32, 8
"""Floats of a cache line, which L1 looks up at a time, and of the sector that it reads of a
K-contiguous row."""
LOAD_CYCLES = 2
"""Cycles of shared memory for a fragment's float4: many of the 32 lanes read the same."""
LOOP_INSTRUCTIONS = 12
"""Instructions of a warp in a k-iteration: the barrier, and the loop's counters and addresses."""
STORED_BYTES_A_CYCLE = 64
SPLITS_AT_ONCE, SUMS_AT_ONCE = 4, 16
"""Partial sums that a thread loads together (`k_sharing/last_block.cuh`, `simt.cu`)."""


def work(p: SimtParams, problem: Problem) -> Work:
    """The work of one block; a k-iteration multiplies one buffer of bk steps."""
    warps, steps = p.warps, p.bk // p.slices
    loads = warps * steps * (p.tm + p.tn) / VECTOR
    copies, lines = _copies(p, problem)
    blocks, iterations, parts = _shares(p, problem)
    added = 2 * (p.slices - 1) + 2 * p.slices * (p.chunks - 1)
    stored = problem.element_bytes / STORED_BYTES_A_CYCLE
    splits, passes, moved = _passes(p, problem)
    return Work(
        blocks=blocks,
        rows=p.bm,
        columns=p.bn,
        warps=warps,
        iterations=iterations,
        starts=parts * p.chunks,
        issue=warps * steps * p.sums + loads + LOOP_INSTRUCTIONS * warps,
        copies=copies,
        shared=LOAD_CYCLES * loads + lines,
        waits=steps if p.fragments == 1 else 1,
        bytes=problem.element_bytes * p.bk * (p.bm + p.bn),
        ahead=p.stages - 1,
        end=parts * p.elements * (added / WARP + stored),
        group=p.group,
        gathers=ceil(splits / SPLITS_AT_ONCE) * p.sums / SUMS_AT_ONCE,
        passes=passes,
        moved=moved,
        traits=_traits(p),
    )


def _traits(p: SimtParams) -> tuple[str, ...]:
    """Names of the inner loop, from general to specific, and of stream-K.

    The loop decides how ptxas orders it and how often its registers conflict.
    """
    loop, steps = f"{p.tm}x{p.tn}", p.bk // p.slices
    copied = f"{loop} {p.copy} of {steps}"
    ordered = f"{p.order} fence={p.fence}"
    specific = f"{copied} {p.order} {p.fragments} fence={p.fence}"
    traits = loop, copied, f"{loop} {ordered}", specific
    return (*traits, "stream") if p.reduction == "stream" else traits


def _copies(p: SimtParams, problem: Problem) -> tuple[float, float]:
    """Instructions that copy the operands of a k-iteration, and their cycles of shared memory."""
    dense = Alignment.dense(problem)
    whole = problem.m % p.bm == problem.n % p.bn == problem.k % p.bk == 0
    instructions = lines = 0.0
    for operand, extent, side, width in (
        ("a", problem.m, p.bm, dense.a),
        ("b", problem.n, p.bn, dense.b),
    ):
        floats, transposed = p.bk * side, along_k(problem, operand)
        if p.packs(operand):
            width, transposed = VECTOR, False
        # Rows that do not start at a vector touch one more sector or line.
        touched = 1 if width == VECTOR else 2
        # A K-contiguous operand is transposed on the way, which cp.async does float by float.
        single = transposed and p.copy == "async"
        width = 1 if single else gcd(width, problem.k if transposed else extent)
        instructions += floats / WARP / width * (1 if whole else 2)
        lines += touched * floats / (SECTOR_FLOATS if transposed else LINE_FLOATS)
        if p.copy == "staged":
            instructions += floats / WARP / (1 if transposed else width)
            lines += floats / LINE_FLOATS
    return instructions, lines


def _shares(p: SimtParams, problem: Problem) -> tuple[int, float, float]:
    """Blocks, the k-iterations of each, and the tiles of C that each computes a part of."""
    iterations = ceil_div(problem.k, p.bk)
    if p.reduction != "stream":
        return p.blocks(problem), ceil_div(iterations, p.split_k), 1
    # Workers and the blocks of whole tiles that follow them have the same work on average.
    share = stream_k.worker_share(p.tiles(problem), p.workers, iterations)
    return p.workers, share.iterations, share.parts


def _passes(p: SimtParams, problem: Problem) -> tuple[float, int, float]:
    """Partial sums of a tile that one block adds up; passes besides the GEMM; bytes they move."""
    packed = problem.element_bytes * p.packed_floats(problem)
    passes, moved = 0 if p.pack == "none" else len(p.pack), 2.0 * packed
    match p.reduction:
        case "separate":
            partial = problem.element_bytes * p.partial_floats(problem)
            return 0, passes + 1, moved + 2 * partial
        case "fused":
            return p.split_k, passes, moved
        case "stream":
            return stream_k.splits_of_a_tile(p.tiles(problem), p.workers), passes, moved
    return 0, passes, moved
