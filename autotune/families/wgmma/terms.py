"""What the parameters of `wgmma` stand for: tiles, blocks, registers and bytes.

The kernel computes D[x][y], the sum over k of P[x][k] Q[y][k]: C itself (`swap` 0: x runs over M),
or its transpose (`swap` 1: x runs over N).
"""

from __future__ import annotations

from math import prod

from autotune.families.legacy import Params
from autotune.families.plan import VECTOR_BYTES, Alignment
from autotune.families.shared.layout import along_k
from autotune.problem import Problem

SCHEDULES = ("cooperative", "pingpong")
CLUSTERS = {
    "1x1": (1, 1, 1),
    "2x1": (2, 1, 1),
    "1x2": (1, 2, 1),
    "1x1x2": (1, 1, 2),
    "1x1x4": (1, 1, 4),
    "1x1x8": (1, 1, 8),
}
"""Blocks of a cluster along x, y and K."""
SOURCES = ("shared", "registers")
REDUCTIONS = ("none", "fused", "stream")
LOWS = ("none", "kernel", "pass")
PACKS = ("needed", "lines")
"""Operands that are copied: those that have to be, or also those whose rows begin within a line of
the cache."""

WARPGROUP, INSTRUCTION_ROWS = 128, 64
"""Threads that multiply together, and the rows of x that one instruction of theirs has."""
SPAN = 128
"""Bytes of a row that one bulk copy brings: what is swizzled together."""
FIXED_SHARED = 2048
"""Bytes besides the buffers: barriers, and what aligns the buffers."""

SHARES = {(1, 1): 255, (1, 2): 200, (1, 3): 112, (2, 1): 224, (2, 2): 96, (3, 1): 152}
"""Registers of a consumer's thread by consumers and resident blocks, after those that the producer
has given away. There are kernels for these pairs only."""
OTHER_REGISTERS, MANY_SUMS, ALSO_STORED = 40, 128, 8
"""Besides the sums: addresses and counters; and where there are many sums, what stores them."""
GELU_REGISTERS = 24
"""For the error function, at the end."""
GATHERING_REGISTERS = 32
"""Besides the sums and the part of them that a block of a cluster adds up, while it does."""
SPLIT_REGISTERS = 8
"""For the low part of 64 rows of P; what is promoted leaves room for the second 64."""
INSTRUCTION_REGISTERS, FRAGMENT_REGISTERS = 26, 4
"""Besides the sums of one instruction, all of which has to fit what a thread has at the kernel's
entry (ptxas C7602); and of P, if that comes through registers."""


def sides(p: Params) -> tuple[int, int]:
    """Rows of x and of y of a block's tile, the kernel's BX and BY."""
    return (p["bn"], p["bm"]) if p["swap"] else (p["bm"], p["bn"])


def extents(p: Params, problem: Problem) -> tuple[int, int]:
    """Rows of P and of Q."""
    return (problem.n, problem.m) if p["swap"] else (problem.m, problem.n)


def operand_names(p: Params) -> tuple[str, str]:
    """Which operand is P, and which Q."""
    return ("b", "a") if p["swap"] else ("a", "b")


def cluster(p: Params) -> tuple[int, int]:
    """Blocks of a cluster along x and y."""
    along_x, along_y, _ = CLUSTERS[p["cluster"]]
    return along_x, along_y


def inner_shares(p: Params) -> int:
    """Shares of K that the blocks of a cluster have of one tile."""
    return CLUSTERS[p["cluster"]][2]


def outer_shares(p: Params) -> int:
    """Shares of K that blocks or clusters have of one tile."""
    return int(p["split_k"]) // inner_shares(p)


def summers(p: Params) -> int:
    """Of the blocks of a cluster that have shares of a tile, those that add up and store a part of
    its y: whole instructions of 8 rows."""
    (_, along_y), summers = sides(p), inner_shares(p)
    while along_y % (8 * summers):
        summers //= 2
    return summers


def cluster_blocks(p: Params) -> int:
    """Blocks of a cluster."""
    return prod(CLUSTERS[p["cluster"]])


def thread_count(p: Params) -> int:
    """Threads a block: the producer's warpgroup and the consumers'."""
    return WARPGROUP * (int(p["consumers"]) + 1)


def warpgroup_rows(p: Params) -> int:
    """Rows of x that a consumer has: of the tile they share, or of the one that it has alone."""
    along_x, _ = sides(p)
    return along_x if p["schedule"] == "pingpong" else along_x // int(p["consumers"])


def tile_grid(p: Params, problem: Problem) -> tuple[int, int]:
    """Tiles along x and y, filled up to whole clusters."""
    pairs = zip(extents(p, problem), sides(p), cluster(p), strict=True)
    along_x, along_y = (-(-extent // (side * of)) * of for extent, side, of in pairs)
    return along_x, along_y


def tiles(p: Params, problem: Problem) -> int:
    """Tiles that cover one C of the batch."""
    along_x, along_y = tile_grid(p, problem)
    return along_x * along_y


def units(p: Params, problem: Problem) -> int:
    """Pieces of work over the whole batch: tiles, or shares of the K of a tile."""
    return tiles(p, problem) * int(p["split_k"]) * problem.batch


def steps(p: Params, problem: Problem) -> int:
    """Blocks of K of one tile."""
    return -(-problem.k // int(p["bk"]))


def streamed(p: Params, problem: Problem) -> int:
    """Tiles whose K is one line that `workers` blocks share: those of the wave that is not full and
    of the one before, so that no tile has more than two or three blocks; or all of them."""
    if p["reduction"] != "stream":
        return 0
    count, workers = tiles(p, problem), int(p["workers"])
    return count if count < 2 * workers else count % workers + workers


def block_count(p: Params, problem: Problem) -> int:
    """Blocks that are launched: whole clusters."""
    workers, each = int(p["workers"]), cluster_blocks(p)
    return workers // each * each if workers else units(p, problem)


def partial_floats(p: Params, problem: Problem) -> int:
    """Floats of workspace that shares of K take until they are added up."""
    along_x, along_y = sides(p)
    match p["reduction"]:
        case "fused":
            return problem.batch * tiles(p, problem) * outer_shares(p) * along_x * along_y
        case "stream":
            return 2 * int(p["workers"]) * along_x * along_y
    return 0


def counters(p: Params, problem: Problem) -> int:
    """Words that count the finished shares of each tile, or of each part that a block adds up."""
    return 0 if p["reduction"] == "none" else problem.batch * tiles(p, problem) * summers(p)


def transposed(p: Params, problem: Problem, operand: str) -> bool:
    """Whether the kernel can read an operand only the other way than it is stored: of 32-bit
    elements the tensor cores take rows along K, but for those that come through registers."""
    if problem.element_bytes == 2 or along_k(problem, operand):
        return False
    _, q = operand_names(p)
    return operand == q or p["source"] == "shared"


def packed(p: Params, problem: Problem, alignment: Alignment, operand: str) -> bool:
    """Whether `a` or `b` is copied before it is multiplied."""
    _, q = operand_names(p)
    return (
        transposed(p, problem, operand)
        or (operand == q and p["low"] == "pass")
        or (p["pack"] == "lines" and crooked(problem, operand))
        or not readable(problem, alignment, operand)
    )


def crooked(problem: Problem, operand: str) -> bool:
    """Whether rows without gaps begin within lines of the cache: each box of bulk copies then asks
    L2 for twice as many."""
    lda, ldb, _ = problem.leading_dimensions
    return (lda if operand == "a" else ldb) * problem.element_bytes % SPAN != 0


def readable(problem: Problem, alignment: Alignment, operand: str) -> bool:
    """Whether bulk copies can read an operand where it is."""
    width = alignment.a if operand == "a" else alignment.b
    return width * problem.element_bytes == VECTOR_BYTES


def runs_along_k(p: Params, problem: Problem, operand: str) -> bool:
    """Whether the rows that the kernel reads run along K."""
    return along_k(problem, operand) or transposed(p, problem, operand)


def accumulators(p: Params) -> int:
    """Registers of a consumer's thread for sums."""
    _, along_y = sides(p)
    return warpgroup_rows(p) // INSTRUCTION_ROWS * along_y // 2 * (2 if p["promote"] else 1)


def register_estimate(p: Params) -> int:
    """Registers of a consumer's thread while it multiplies or stores, as NVRTC 13 needs them."""
    sums, blocks = accumulators(p), warpgroup_rows(p) // INSTRUCTION_ROWS
    stored = ALSO_STORED if sums > MANY_SUMS else 0
    split = SPLIT_REGISTERS * (1 if p["promote"] else blocks) if p["low"] != "none" else 0
    return sums + OTHER_REGISTERS + stored + split


def gathering_registers(p: Params) -> int:
    """Registers of a consumer's thread while blocks of a cluster add up their shares of a tile."""
    if inner_shares(p) == 1:
        return 0
    sums = accumulators({**p, "promote": 0})
    stored = ALSO_STORED if sums > MANY_SUMS else 0
    return sums + sums // summers(p) + stored + GATHERING_REGISTERS


def instruction_registers(p: Params) -> int:
    """Registers without which one instruction cannot be compiled."""
    _, along_y = sides(p)
    fragment = FRAGMENT_REGISTERS if p["source"] == "registers" else 0
    return along_y // 2 + INSTRUCTION_REGISTERS + fragment


def entry_registers(p: Params) -> int:
    """Registers a thread may have at the kernel's entry: the pool shared evenly among the threads,
    in steps of 8."""
    even = 65536 // int(p["min_blocks"]) // thread_count(p) // 8 * 8
    return min(255, even)


def launch_registers(p: Params) -> int:
    """Registers a thread that a block is launched with. Where they move from the producer to the
    consumers it is all that there may be; a single block of one consumer leaves them as they are.
    """
    moved = (p["consumers"], p["min_blocks"]) != (1, 1)
    needed = max(register_estimate(p), gathering_registers(p))
    return entry_registers(p) if moved else min(255, needed)


def q_rows(p: Params, problem: Problem) -> int:
    """Rows of Q that a block brings: what does not run along K comes in whole spans."""
    (_, along_y), (_, q) = sides(p), operand_names(p)
    return along_y if runs_along_k(p, problem, q) else rounded(along_y, INSTRUCTION_ROWS)


def stage_bytes(p: Params, element_bytes: int, *, q_along_k: bool = True) -> int:
    """Shared memory of one buffer: a block of K of P and Q, and of Q's low part."""
    (along_x, along_y), row = sides(p), int(p["bk"]) * element_bytes
    # What does not run along K comes in whole spans of x or y.
    q = along_y if q_along_k else rounded(along_y, INSTRUCTION_ROWS)
    low = along_y if p["low"] != "none" else 0
    return row * (along_x + q + low)


def staged_bytes(p: Params, output_bytes: int) -> int:
    """Shared memory in which the consumers arrange what they store: two of the parts of each, one
    line of 128 bytes in each row of C that an instruction has."""
    if p["store"] == "direct":
        return 0
    blocks, (_, along_y) = warpgroup_rows(p) // INSTRUCTION_ROWS, sides(p)
    parts = blocks if p["swap"] else blocks * -(-along_y * output_bytes // SPAN)
    rows = along_y if p["swap"] else INSTRUCTION_ROWS
    return int(p["consumers"]) * min(2, parts) * rows * SPAN


def shared_bytes(p: Params, problem: Problem) -> int:
    """Shared memory of a block."""
    _, q = operand_names(p)
    stage = stage_bytes(p, problem.element_bytes, q_along_k=runs_along_k(p, problem, q))
    return FIXED_SHARED + int(p["stages"]) * stage + staged_bytes(p, problem.output_bytes)


def rounded(size: int, step: int) -> int:
    """`size` filled up to a multiple of `step`."""
    return -(-size // step) * step
