"""What the blocks of an `mma` configuration do, for the cost model."""

from __future__ import annotations

from autotune.families.base import Work
from autotune.families.legacy import Params
from autotune.families.mma.terms import (
    block_count,
    element_bytes,
    form_of,
    neighbours,
    packed,
    split,
    steps,
    thread_count,
    vector,
)
from autotune.families.plan import VECTOR_BYTES, Alignment
from autotune.families.shared.layout import along_k
from autotune.families.shared.packing import copy
from autotune.problem import Problem

LANES = 32
LINE_BYTES = 128
"""What shared memory serves in a cycle."""
LOOP_INSTRUCTIONS = 16
"""Of a warp in a turn: the barrier, the counters and addresses of the loop."""
STORED_BYTES_A_CYCLE, SECTOR_BYTES, FLOAT_BYTES = 64, 32, 4
SHARES_AT_ONCE, SUMS_AT_ONCE = 4, 16
"""Partial sums that a thread loads together (`shares.cuh`, `mma.cu`)."""
ROUNDING, SPLITTING = 3, 7
"""Instructions that make a tf32 of an fp32, and two."""


def work(p: Params, problem: Problem) -> Work:
    """What one block does, for the cost model. A turn is a buffer of bk steps."""
    warps, tile, size = thread_count(p) // LANES, p["bm"] * p["bn"], element_bytes(p)
    wm, wn, products = p["wm"], p["wn"], problem.products
    matrices = warps * steps(p)  # of operands of wm and wn rows
    loads, cycles = _loads(p, problem)
    multiplies = wm // 16 * (wn // 8) * products
    rounded = 0 if size == 2 else (SPLITTING if split(p) else ROUNDING)
    promoted = wm * wn / LANES / p["promote"] if p["promote"] else 0
    copies, lines = _copies(p, problem)
    copied = sum(copy(problem, name).bytes for name in "ab" if packed(p, name))
    turns = -(-problem.k // p["bk"])
    shares = p["split_k"] if p["split_k"] > 1 else 0
    added = 2 * (p["slices"] - 1) / LANES
    return Work(
        blocks=block_count(p, problem),
        rows=p["bn"] if p["swap"] else p["bm"],
        columns=p["bm"] if p["swap"] else p["bn"],
        warps=warps,
        turns=-(-turns // p["split_k"]),
        issue=matrices * (multiplies + loads + rounded * (wm + wn) / 4)
        + warps * (LOOP_INSTRUCTIONS + promoted),
        copies=copies,
        shared=matrices * cycles + lines,
        waits=1 if p["min_blocks"] == 1 else steps(p),
        bytes=size * p["bk"] * (p["bm"] + p["bn"]),
        ahead=p["stages"] - 1,
        end=tile * (added + _stored(p, problem)),
        group=p["group"],
        gathers=-(-shares // SHARES_AT_ONCE) * wm * wn / LANES / SUMS_AT_ONCE,
        passes=0 if p["pack"] == "none" else 1,
        moved=2.0 * copied,
        tensor=tile * p["bk"] * products,
        traits=_traits(p),
    )


def _stored(p: Params, problem: Problem) -> float:
    """Cycles that an element of C takes: of memory, which stores whole sectors, or also of shared
    memory, where four lanes' neighbours become a row."""
    size = problem.output_bytes
    if p["store"] == "staged":
        return size / STORED_BYTES_A_CYCLE + 2 * FLOAT_BYTES / LINE_BYTES
    row = SECTOR_BYTES if p["swap"] else 4 * neighbours(p, problem) * size
    return size / STORED_BYTES_A_CYCLE * SECTOR_BYTES / min(SECTOR_BYTES, row)


def _traits(p: Params) -> tuple[str, ...]:
    """The tensor cores' instruction, and the warp tile, of which the last is most specific."""
    compute, warp = p["compute"], f"{p['wm']}x{p['wn']}"
    return (
        f"mma {compute}",
        f"mma {compute} {warp}",
        f"mma {compute} {warp} of {p['bk']} in {thread_count(p) // LANES} warps",
    )


def _loads(p: Params, problem: Problem) -> tuple[float, float]:
    """Instructions of a warp that load the fragments of a step, and cycles of shared memory.

    ldmatrix brings 16 rows of 32 bytes of K at once. 32-bit operands that do not run along K come
    as two vectors of each 4 elements of 8 rows.
    """
    form, instructions, cycles = form_of(p, problem), 0.0, 0.0
    for name in "ab":
        rows = p["wm" if name == "a" else "wn"]
        apart = element_bytes(p) == 4 and not along_k(form, name)
        instructions += 2 * rows / min(32, rows) if apart else max(1, rows // 16)
        cycles += rows * 32 / LINE_BYTES
    return instructions, cycles


def _copies(p: Params, problem: Problem) -> tuple[float, float]:
    """Instructions that bring the operands of a turn, and their cycles of shared memory."""
    alignment, size = Alignment.dense(problem), element_bytes(p)
    sides = ("bn", "bm") if p["swap"] else ("bm", "bn")
    instructions = lines = 0.0
    for name, side, width in zip("ab", sides, (alignment.a, alignment.b), strict=True):
        elements = p["bk"] * p[side]
        if packed(p, name):
            width = VECTOR_BYTES // size
        width = vector(problem, name, width, p["copy"] == "async")
        through = 2 if p["copy"] == "staged" or width * size < 4 else 1
        instructions += through * elements / LANES / width
        lines += max(elements * size / LINE_BYTES, elements / LANES / width)
    return instructions, lines
