"""The work of the blocks of a `wgmma` configuration, for the cost model."""

from __future__ import annotations

from autotune.families.base import Between, Work
from autotune.families.plan import Alignment
from autotune.families.shared import stream_k
from autotune.families.wgmma.operands import kernel_operands, unaligned_rows
from autotune.families.wgmma.parameters import WgmmaParams
from autotune.families.wgmma.resources import (
    INSTRUCTION_ROWS,
    WARPGROUP,
    thread_count,
)
from autotune.problem import SCALE_BLOCK, Problem
from autotune.problem.integers import ceil_div

LANES = 32
SHARED_BYTES_A_CYCLE = 128
STORED_BYTES_A_CYCLE = 64
LOOP_INSTRUCTIONS = 16
"""Instructions of a warp in a k-iteration: the barriers, and the descriptors of the operands."""
SPLIT_INSTRUCTIONS = 4
"""Instructions that split an fp32 into two tf32."""
SUMS_AT_ONCE = 16
"""Partial sums that a thread loads together."""
UNALIGNED = 1.5
"""Bytes that L2 reads for each byte of rows that start within cache lines."""
VISIBLE_EPILOGUE = 0.25
"""The part of a tile's epilogue that remains visible if another consumer multiplies meanwhile."""


def work(p: WgmmaParams, problem: Problem) -> Work:
    """The work of one block; a k-iteration multiplies one stage of bk elements of K.

    Tiles count as blocks even if resident workers take several one after the other: they fall on
    the SMs in the same waves.
    """
    blocks, iterations, parts = _shares(p, problem)
    visible = VISIBLE_EPILOGUE if p.schedule == "pingpong" else 1.0
    # A cluster's partial sums go through shared memory, faster than stores to C.
    stored = visible * _stored_bytes(p, problem) + (2 if p.shape.k > 1 else 0)
    sums = p.elements / (WARPGROUP * p.consumers)
    packed = p.packed_bytes(problem)
    return Work(
        blocks=blocks,
        rows=p.bm,
        columns=p.bn,
        cluster=p.shape.blocks,
        warps=thread_count(p.consumers) // LANES,
        iterations=iterations,
        starts=parts,
        issue=_instructions(p, problem),
        shared=_shared_cycles(p, problem),
        waits=1 if p.source == "registers" else 0,
        bytes=_bytes(p, problem),
        ahead=p.stages - 1,
        end=parts * p.tile_m * p.tile_n * stored / STORED_BYTES_A_CYCLE,
        group=p.group,
        gathers=_gathered(p, problem) * sums / SUMS_AT_ONCE,
        passes=1 if packed else 0,
        moved=2 * packed,
        tensor=p.elements * p.bk * problem.products,
        traits=(
            "wgmma",
            f"wgmma {problem.compute} {p.schedule}",
            _tile_trait(p),
        ),
    )


def _tile_trait(p: WgmmaParams) -> str | Between:
    """The tile, between two whose columns are a power of two: few recordings have any other."""
    upper = 1 << (p.tile_n - 1).bit_length()
    lower = upper // 2
    if p.tile_n == upper:
        return f"wgmma {p.tile_m}x{upper}"
    share = (p.tile_n - lower) / lower
    return Between(f"wgmma {p.tile_m}x{lower}", f"wgmma {p.tile_m}x{upper}", share)


def _stored_bytes(p: WgmmaParams, problem: Problem) -> int:
    """Bytes stored for an element of C: registers of 16-bit elements fill only half a sector."""
    halves = p.store == "direct" and problem.output_bytes == 2
    return problem.output_bytes * (2 if halves else 1)


def _instructions(p: WgmmaParams, problem: Problem) -> float:
    """Instructions of a block's warps in a k-iteration, besides those of the tensor cores."""
    issued = LOOP_INSTRUCTIONS * thread_count(p.consumers) / LANES
    split = SPLIT_INSTRUCTIONS * (problem.products > 1)
    if p.source == "registers":
        issued += p.tile_m * p.bk / LANES * (1 + split)
    if p.low == "kernel":
        issued += p.tile_n * p.bk / LANES * (1 + split)
    if p.promote:
        terms = p.promote * p.bk if problem.element_bytes > 1 else SCALE_BLOCK
        issued += p.elements / LANES * p.bk / terms
    return issued


def _shared_cycles(p: WgmmaParams, problem: Problem) -> float:
    """Cycles of shared memory in a k-iteration: what TMA writes and what the tensor cores read.

    Each instruction of 64 rows reads all of B anew.
    """
    row = p.bk * problem.element_bytes
    instructions = p.tile_m // INSTRUCTION_ROWS
    operand_a, _ = kernel_operands(p.swap)
    # Lanes that read a fragment of an A that is not K-contiguous conflict in half the banks.
    conflicts = p.source == "registers" and not p.k_contiguous(problem, operand_a)
    written = p.tile_m + p.b_rows(problem)
    read = p.tile_m * (2 if conflicts else 1) + p.tile_n * instructions * problem.products
    split = 2 * p.tile_n if p.low == "kernel" else 0
    return (written + read + split) * row / SHARED_BYTES_A_CYCLE


def _bytes(p: WgmmaParams, problem: Problem) -> float:
    """Bytes that a block reads from L2 in a k-iteration; a cluster's blocks load parts for all.

    Rows that start within cache lines are read with parts of their neighbours.
    """
    planes = 2 if p.low == "pass" else 1
    operand_a, operand_b = kernel_operands(p.swap)
    rows_a = p.tile_m / p.shape.n * _read(p, problem, operand_a)
    rows_b = planes * p.b_rows(problem) / p.shape.m * _read(p, problem, operand_b)
    return (rows_a + rows_b) * p.bk * problem.element_bytes


def _read(p: WgmmaParams, problem: Problem, operand: str) -> float:
    """Bytes read for each byte of an operand."""
    if not unaligned_rows(problem, operand):
        return 1.0
    return 1.0 if p.packs(problem, Alignment.dense(problem), operand) else UNALIGNED


def _shares(p: WgmmaParams, problem: Problem) -> tuple[int, float, float]:
    """Blocks, the k-iterations of each, and the tiles of C that each computes a part of."""
    iterations = ceil_div(problem.k, p.bk)
    if p.reduction != "stream":
        return p.units(problem), ceil_div(iterations, p.split_k), 1
    share = stream_k.worker_share(p.tiles(problem), p.workers, iterations)
    return p.workers, share.iterations, share.parts


def _gathered(p: WgmmaParams, problem: Problem) -> float:
    """Partial sums of a tile that one block adds up, one after the other."""
    match p.reduction:
        case "fused":
            return p.grid_splits / p.reducers
        case "stream":
            return stream_k.splits_of_a_tile(p.tiles(problem), p.workers)
    return 0
