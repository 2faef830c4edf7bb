"""The launches of an `mma` configuration, packing and GEMM, and the work of their blocks."""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from autotune.families.config import Config
from autotune.families.family import Work
from autotune.families.mma.parameters import MmaParams
from autotune.families.plan import (
    VECTOR_BYTES,
    Alignment,
    Argument,
    Launch,
    LaunchPlan,
    Template,
)
from autotune.families.shared import packing
from autotune.families.shared.arguments import (
    along_k,
    call_struct,
    constants,
    each_type,
    epilogue,
    scale,
    sizes_and_factors,
    struct,
    transposes,
)
from autotune.families.shared.packing import OperandPair, VectorOperand, packed_bytes
from autotune.families.shared.tiling import WARP
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

PAIR = 2
"""Elements that change places together where columns are interleaved."""


def plan(config: Config, p: MmaParams, problem: Problem, alignment: Alignment) -> LaunchPlan:
    """The packing, if any, and the GEMM on operands of that alignment."""
    a = _operand("a", p, problem, alignment, 0)
    b = _operand("b", p, problem, alignment, a.copy.bytes if a.copy else 0)
    copies = [operand.copy for operand in (a, b) if operand.copy]
    copied = sum(copy.bytes for copy in copies)
    packs = (packing.launch(copies),) if copies else ()
    return LaunchPlan(
        config,
        (*packs, _gemm(p, problem, alignment, (a, b), copied)),
        workspace=copied + p.partial_bytes(problem),
        counters=p.count(problem) if p.split_k > 1 else 0,
        product=len(packs),
    )


def _operand(
    name: str, p: MmaParams, problem: Problem, alignment: Alignment, start: int
) -> VectorOperand:
    transposed = packing.must_transpose(problem, name)
    copy = (
        packing.copy(problem, name, transposed=transposed, start=start) if p.packs(name) else None
    )
    own = alignment.a if name == "a" else alignment.b
    width = p.width(problem, name, VECTOR_BYTES // problem.element_bytes if copy else own)
    if name == "b" and p.interleaved(problem, alignment.c) > 1 and not along_k(problem, name):
        width = min(width, PAIR)
    return VectorOperand(name, width, copy)


def _gemm(
    p: MmaParams, problem: Problem, alignment: Alignment, pair: OperandPair, start: int
) -> Launch:
    form = p.oriented(problem)
    first, second = reversed(pair) if p.swap else pair
    schedule = struct(
        "MmaSchedule",
        start_a=first.start,
        start_b=second.start,
        start_partials=Argument("i64", start // 4),
        group=Argument("i32", p.group),
    )
    return Launch(
        template=_template(p, problem, alignment.c, (first.width, second.width)),
        grid=p.grid(problem),
        block=(p.threads, 1, 1),
        shared=p.shared_bytes,
        arguments=(
            call_struct(**first.members("a"), **second.members("b")),
            schedule,
            *sizes_and_factors(form),
        ),
    )


def _template(p: MmaParams, problem: Problem, alignment: int, widths: tuple[int, int]) -> Template:
    form = p.oriented(problem)
    warp_columns = p.wn // (2 if problem.gated else 1)
    return Template(
        "mma.cu",
        "mma_column" if p.copy == "ahead" else "mma",
        (
            *each_type(form),
            scale(form),
            ("PRODUCTS", p.precision.products),
            *constants(p, "bm", "bn", "bk", "wm", "wn", "slices", "stages", "promote"),
            ("ASYNC", p.is_async),
            ("MIN_BLOCKS", p.min_blocks),
            ("FUSED", p.split_k > 1),
            ("STAGED", p.store == "staged"),
            ("TRANSPOSED", bool(p.swap)),
            # 8-bit operands run along K.
            *transposes(replace(form, layout="nt") if form.precision.eight_bit else form),
            epilogue(problem),
            ("VA", widths[0]),
            ("VB", widths[1]),
            ("VC", 1 if p.swap else gcd(alignment, problem.width, warp_columns)),
            ("INTERLEAVED", p.interleaved(form, alignment)),
        ),
        named=True,
    )


LINE_BYTES = 128
"""Bytes that shared memory serves in a cycle."""
LOOP_INSTRUCTIONS = 16
"""Instructions of a warp in a k-iteration for the barrier, counters and addresses."""
STORED_BYTES_A_CYCLE, SECTOR_BYTES, FLOAT_BYTES = 64, 32, 4
SPLITS_AT_ONCE, SUMS_AT_ONCE = 4, 16
"""Partial sums that a thread loads together (`k_sharing/last_block.cuh`, `mma.cu`)."""
ROUNDING, SPLITTING = 3, 7
"""Instructions that round an fp32 value to tf32, and that split it into two tf32 values."""


def work(p: MmaParams, problem: Problem) -> Work:
    """The work of a block; a k-iteration is a buffer of bk steps."""
    size, products = p.element_bytes, problem.products
    warp_steps = p.warps * p.steps
    loads, cycles = _fragment_loads(p, problem)
    multiplies = p.wm // 16 * (p.wn // 8) * products
    rounded = 0 if size < 4 else (SPLITTING if p.is_split else ROUNDING)
    promoted = p.wm * p.wn / WARP / p.promote if p.promote else 0
    copies, lines = _copies(p, problem)
    splits = p.split_k if p.split_k > 1 else 0
    added = 2 * (p.slices - 1) / WARP
    # A block that computes a column loads B once, and takes an iteration for each tile.
    column = p.copy == "ahead"
    tiles = p.tiles_of_a_block(problem)
    return Work(
        blocks=p.blocks(problem),
        rows=p.bn if p.swap else p.bm,
        columns=p.bm if p.swap else p.bn,
        warps=p.warps,
        iterations=tiles * ceil_div(p.iterations(problem), p.split_k),
        issue=warp_steps * (multiplies + loads + rounded * (p.wm + p.wn) / 4)
        + p.warps * (LOOP_INSTRUCTIONS + promoted),
        copies=copies,
        shared=warp_steps * cycles + lines,
        waits=1 if p.min_blocks == 1 else p.steps,
        bytes=size * p.bk * (p.bm + p.bn / tiles if column else p.bm + p.bn),
        ahead=p.stages - 1,
        end=tiles * p.elements * (added + _store_cycles(p, problem)),
        group=1 if column else p.group,
        gathers=ceil_div(splits, SPLITS_AT_ONCE) * p.wm * p.wn / WARP / SUMS_AT_ONCE,
        passes=0 if p.pack == "none" else 1,
        moved=2.0 * packed_bytes(p.pack, problem),
        tensor=p.elements * p.bk * products,
        traits=_traits(p),
    )


def _store_cycles(p: MmaParams, problem: Problem) -> float:
    """Cycles to store an element of C: memory stores whole sectors; through shared memory, the
    neighbours of four lanes become a row."""
    size = problem.output_bytes
    if p.store == "staged":
        return size / STORED_BYTES_A_CYCLE + 2 * FLOAT_BYTES / LINE_BYTES
    row = SECTOR_BYTES if p.swap else 4 * p.neighbours_in_c(problem) * size
    return size / STORED_BYTES_A_CYCLE * SECTOR_BYTES / min(SECTOR_BYTES, row)


def _traits(p: MmaParams) -> tuple[str, ...]:
    """The MMA instruction and the warp tile, from the most general to the most specific."""
    warp = f"{p.wm}x{p.wn}"
    return (
        f"mma {p.compute}",
        f"mma {p.compute} {warp}",
        f"mma {p.compute} {warp} of {p.bk} in {p.warps} warps",
    )


def _fragment_loads(p: MmaParams, problem: Problem) -> tuple[float, float]:
    """Instructions of a warp that load the fragments of a step, and cycles of shared memory.

    ldmatrix loads 16 rows of 32 bytes of K at once. 32-bit operands whose rows do not run along K
    come as two vectors of 4 elements for each 8 rows.
    """
    form, instructions, cycles = p.oriented(problem), 0.0, 0.0
    for operand, rows in (("a", p.wm), ("b", p.wn)):
        apart = p.element_bytes == 4 and not along_k(form, operand)
        instructions += 2 * rows / min(32, rows) if apart else max(1, rows // 16)
        cycles += rows * 32 / LINE_BYTES
    return instructions, cycles


def _copies(p: MmaParams, problem: Problem) -> tuple[float, float]:
    """Instructions that copy the operands of a k-iteration, and their cycles of shared memory."""
    dense, size = Alignment.dense(problem), p.element_bytes
    instructions = lines = 0.0
    for (operand, rows), alignment in zip(p.operand_rows, (dense.a, dense.b), strict=True):
        elements: float = p.bk * rows
        if operand == "b" and p.copy == "ahead":
            elements /= p.tiles_of_a_block(problem)
        widest = VECTOR_BYTES // size if p.packs(operand) else alignment
        width = p.width(problem, operand, widest)
        through = 2 if p.goes_through_registers(width, size) else 1
        instructions += through * elements / WARP / width
        lines += max(elements * size / LINE_BYTES, elements / WARP / width)
    return instructions, lines
