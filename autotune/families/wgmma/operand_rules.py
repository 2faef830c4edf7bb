"""Rules of `wgmma` on how operands reach the tensor cores, and on what packing is worth."""

from __future__ import annotations

from autotune.device import Device
from autotune.families.plan import Alignment
from autotune.families.rules import Rule
from autotune.families.wgmma.operands import (
    Low,
    OperandPath,
    Source,
    across_k,
    kernel_operands,
    readable,
    unaligned_rows,
)
from autotune.families.wgmma.tiles import ClusterTile, WgmmaTile
from autotune.problem import SCALE_BLOCK, Problem

TRANSPOSED_USES, SPLIT_USES = 2048, 1024
"""How often a packed copy must be read to pay: a transposed copy of A, and one with a low part."""
LINE_USES = 4096
"""How often a copy in whole lines must be read to pay: at 3000 cubed the GEMM gained 13 % and the
copies cost 20 % of its time (bf16, H100)."""
STREAMED_READS, STREAMED_BYTES = 2, 2**22
"""How often an A that L2 drops first may be read, and the least bytes of one: at 16x4096x4096 in
bf16 it took 15.1 us cold instead of 16.9, and 6.9 hot instead of 6.8 (H200)."""
LEAST_PART = 8
"""Columns of which a part of a tile that is promoted on its own has a multiple."""
PROMOTED, UNPROMOTED = 128, 256
"""Terms of K after which the tensor cores' sums, which truncate, must be added up in fp32 to come
near it; and the longest K that needs no promotion."""


def _uses(problem: Problem, operand: str) -> int:
    """How often each element of an operand is multiplied."""
    return problem.n if operand == "a" else problem.m


def _source_fault(swap: int, source: Source, problem: Problem) -> str | None:
    """A passes through registers to be split, or if it is not K-contiguous."""
    operand, _ = kernel_operands(swap)
    if problem.element_bytes != 4:
        bits = 8 * problem.element_bytes
        return None if source != "registers" else f"{bits}-bit operands are read from shared memory"
    if problem.products > 1:
        return None if source == "registers" else "operands are split in registers"
    transposed = across_k(problem, operand)
    in_place = readable(problem, Alignment.dense(problem), operand)
    if source == "registers":
        shared = not in_place or not transposed
        return f"{operand} is best read from shared memory" if shared else None
    uses = _uses(problem, operand)
    if not transposed or uses >= TRANSPOSED_USES or not in_place:
        return None
    return (
        f"a transposed copy of {operand} would be read for {uses} rows; {TRANSPOSED_USES} at least"
    )


def _streamed_fault(
    tile: ClusterTile, source: Source, problem: Problem, device: Device
) -> str | None:
    """An A that is read once or twice need not stay in L2, and cannot if it is larger."""
    m, _ = tile.extents(problem)
    operand, _ = kernel_operands(tile.swap)
    size = m * problem.k * problem.element_bytes * problem.batch
    reads = tile.cluster_grid(problem)[1] // tile.shape.n
    pays = reads <= STREAMED_READS and size >= STREAMED_BYTES
    if source == "streamed" and not pays:
        return f"{operand} of {size} bytes is read {reads} times; it may stay in L2"
    if source == "shared" and pays and size > device.l2_bytes:
        return f"{operand} of {size} bytes does not stay in an L2 of {device.l2_bytes}"
    return None


def _low_fault(swap: int, low: Low, problem: Problem) -> str | None:
    _, operand = kernel_operands(swap)
    if (problem.products > 1) == (low == "none"):
        return f"{problem.compute} has {problem.products} products"
    if low == "none":
        return None
    in_place = readable(problem, Alignment.dense(problem), operand)
    in_place = in_place and not across_k(problem, operand)
    if low == "kernel":
        return None if in_place else f"{operand} is packed anyway, which may as well split it"
    uses = _uses(problem, operand)
    if not in_place or uses >= SPLIT_USES:
        return None
    return f"a copy of {operand} would be read for {uses} rows; {SPLIT_USES} at least"


def _pack_fault(path: OperandPath, problem: Problem) -> str | None:
    if path.pack == "needed":
        return None
    dense = Alignment.dense(problem)
    gains = any(
        unaligned_rows(problem, operand)
        and _uses(problem, operand) >= LINE_USES
        and not path.must_pack(problem, dense, operand)
        for operand in ("a", "b")
    )
    return None if gains else "no operand would gain from a copy in whole lines"


def _promote_fault(bk: int, promote: int, problem: Problem) -> str | None:
    if problem.element_bytes == 1:
        return None
    terms = promote * bk
    if problem.products == 1:
        return f"sums of {problem.compute} need no promotion" if terms else None
    if terms == 0:
        if problem.k <= UNPROMOTED:
            return None
        return f"sums of K={problem.k} terms are truncated too often; {UNPROMOTED} at most"
    if terms <= PROMOTED and terms < problem.k:
        return None
    return f"sums of K={problem.k} terms are promoted after {terms}; {PROMOTED} at most, below K"


def _block_promotion_fault(tile: WgmmaTile, promote: int, problem: Problem) -> str | None:
    """Exact sums of fp8, and sums of blocks of K with scales of their own, are promoted."""
    if problem.element_bytes != 1:
        return None
    blocks = problem.scale == "block"
    exact = problem.accumulate == "exact" and not problem.precision.operand.integer
    promoted = blocks or (exact and problem.k > SCALE_BLOCK)
    if promoted != (promote > 0):
        sums = f"{problem.accumulate} sums of {problem.compute} over K={problem.k}"
        return f"{sums}, scale={problem.scale}, with promote={promote}"
    if promote > 1 and tile.tile_n % (LEAST_PART * promote):
        return f"{tile.tile_n} columns have no {promote} parts of multiples of {LEAST_PART}"
    return None


RULES = (
    Rule("source", _source_fault),
    Rule("low part", _low_fault),
    Rule("packing", _pack_fault),
    Rule("promotion", _promote_fault),
    Rule("promotion", _block_promotion_fault),
    Rule("source", _streamed_fault, for_speed=True),
)
