"""What the parameters of `mma` stand for, in threads, blocks and bytes."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from autotune.families.legacy import Params
from autotune.families.plan import Alignment
from autotune.families.shared.layout import along_k
from autotune.problem import Problem

PACKS = ("none", "a", "b", "ab")
STORES = ("direct", "staged")
STEP_BYTES = 32
"""Bytes of K that one product of a warp takes (mma_fragments.cuh)."""
COPY_BYTES = 4
"""The least that cp.async brings; what comes in less goes through registers."""
ASYNC_CAPABILITY = 8, 0
"""From which compute capability on there is cp.async."""
STRIP_ROWS, STRIP_PADDING = 16, 8
"""Rows of C that a warp makes whole in shared memory, and floats between them (mma.cu)."""
OTHER_REGISTERS = 38
"""Registers besides the sums and fragments: addresses, counters, predicates."""


def element_bytes(p: Params) -> int:
    """Bytes of an element of A or B."""
    return 2 if p["compute"] in ("f16", "bf16") else 4


def split(p: Params) -> bool:
    """Whether operands are split into high and low parts."""
    return bool(p["compute"] == "tf32x3")


def thread_count(p: Params) -> int:
    """Threads a block."""
    return 32 * warp_count(p) * int(p["slices"])


def warp_count(p: Params) -> int:
    """Warps that a tile has for each slice."""
    return int((p["bm"] // p["wm"]) * (p["bn"] // p["wn"]))


def steps(p: Params) -> int:
    """Products of each warp, one after the other along K, in a buffer."""
    return int(p["bk"] * element_bytes(p) // STEP_BYTES // p["slices"])


def form_of(p: Params, problem: Problem) -> Problem:
    """What is computed: C, or C^T = op(B)^T op(A)^T if operands are exchanged."""
    if not p["swap"]:
        return problem
    turned = {"n": "t", "t": "n"}
    layout = turned[problem.layout[1]] + turned[problem.layout[0]]
    return replace(problem, m=problem.n, n=problem.m, layout=layout)


def tiles(p: Params, problem: Problem) -> int:
    """Tiles of bm x bn that cover one C of the batch."""
    form = form_of(p, problem)
    return int(-(-form.m // p["bm"]) * -(-form.n // p["bn"]))


def block_count(p: Params, problem: Problem) -> int:
    """Blocks that multiply, over the whole batch."""
    return tiles(p, problem) * int(p["split_k"]) * problem.batch


def partial_bytes(p: Params, problem: Problem) -> int:
    """Bytes of workspace that shares of K take until they are added up."""
    if p["split_k"] == 1:
        return 0
    return int(4 * block_count(p, problem) * p["bm"] * p["bn"])


def packed(p: Params, operand: str) -> bool:
    """Whether `a` or `b` is copied before it is multiplied."""
    return p["pack"] != "none" and operand in p["pack"]


def vector(problem: Problem, operand: str, alignment: int, asynchronous: bool) -> int:
    """Elements of the vectors in which an operand comes that is read where it is.

    cp.async fills up what lies past the end of a row; registers take whole vectors only.
    """
    if asynchronous and alignment * problem.element_bytes >= COPY_BYTES:
        return alignment
    extent = problem.m if operand == "a" else problem.n
    return gcd(alignment, problem.k if along_k(problem, operand) else extent)


def staged_registers(p: Params, problem: Problem, asynchronous: bool) -> int:
    """Registers a thread of what operands without gaps leave in them on their way."""
    dense, size, registers = Alignment.dense(problem), problem.element_bytes, 0
    sides = ("n", "m") if p["swap"] else ("m", "n")
    for operand, side, alignment in zip("ab", sides, (dense.a, dense.b), strict=True):
        width = vector(problem, operand, alignment, asynchronous)
        if packed(p, operand) or (asynchronous and width * size >= COPY_BYTES):
            continue
        vectors = p["bk"] * p[f"b{side}"] // width // thread_count(p)
        registers += max(1, vectors) * max(1, width * size // 4)
    return registers


def neighbours(p: Params, problem: Problem) -> int:
    """Elements of a row of C that a thread holds side by side (mma_fragments.cuh)."""
    apart = problem.element_bytes == 4 and not along_k(problem, "b")
    return min(8, int(p["wn"]) // 4) if apart else 2


def register_estimate(p: Params, staged: int = 0) -> int:
    """Registers a thread: sums, fragments, their low parts, what is staged, and some besides."""
    rows, columns = p["wm"] // 16, p["wn"] // 8
    sums: int = 4 * rows * columns * (2 if p["promote"] else 1)
    sets = 2 if p["min_blocks"] == 1 else 1
    fragments: int = sets * (4 * rows + 2 * columns)
    low: int = 4 * rows + 8 if split(p) else 0
    return sums + fragments + low + staged + OTHER_REGISTERS


def shared_bytes(p: Params) -> int:
    """Bytes of the buffers, or of what slices add up and warps store, if that is more."""
    row: int = p["bm"] + p["bn"]
    buffers: int = p["stages"] * p["bk"] * row * element_bytes(p)
    slices: int = (p["slices"] - 1) * p["bm"] * p["bn"]
    strips = STRIP_ROWS * (p["wn"] + STRIP_PADDING) * warp_count(p) if p["store"] == "staged" else 0
    return max(buffers, 4 * (slices + int(strips)))
