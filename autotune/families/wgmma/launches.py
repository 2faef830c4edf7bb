"""The launches of a `wgmma` configuration, packing and GEMM, and the work of their blocks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from autotune.families.config import Config
from autotune.families.family import Between, Work
from autotune.families.plan import (
    VECTOR_BYTES,
    Alignment,
    Argument,
    Launch,
    LaunchPlan,
    Template,
    TensorMap,
)
from autotune.families.shared import packing, tiling
from autotune.families.shared.arguments import (
    call_struct,
    constants,
    divisor,
    each_type,
    epilogue,
    scale,
    sizes_and_factors,
    struct,
    transposed,
)
from autotune.families.shared.cuda_enums import Store, enumerator
from autotune.families.shared.tiling import WARP
from autotune.families.wgmma.parameters import FLOAT_BYTES, WARPGROUP, WgmmaParams, copies_end
from autotune.families.wgmma.tiles import (
    INSTRUCTION_ROWS,
    LINE_BYTES,
    kernel_operands,
    unaligned_rows,
)
from autotune.problem import SCALE_BLOCK, Problem
from autotune.problem.integers import ceil_div, round_up


@dataclass(frozen=True)
class _TmaOperand:
    """The kernel's A or B as it reads it.

    Attributes:
        name: the problem's operand, `a` or `b`.
        k_contiguous: whether the rows that the kernel reads run along K.
        box_rows: rows of a TMA box, which is a block's part of what its cluster shares.
        copy: its packed copy; None if it is read in place.
    """

    name: str
    k_contiguous: bool
    box_rows: int
    copy: packing.Copy | None

    @property
    def stride(self) -> Argument:
        """Elements from one matrix of the batch to the next."""
        return Argument("i64", self.copy.stride if self.copy else f"stride_{self.name}")

    def tensor_map(self, problem: Problem, *, low: bool = False) -> Argument:
        """The tensor map by which TMA reads the operand, or the low part of its copy."""
        extent = problem.m if self.name == "a" else problem.n
        columns, rows = (problem.k, extent) if self.k_contiguous else (extent, problem.k)
        copy = self.copy
        start = (copy.low_start if low else copy.start) if copy else 0
        return Argument(
            "tensor_map",
            TensorMap(
                base="workspace" if copy else self.name,
                offset=start,
                type=problem.precision.tensor_map.name,  # TMA rounds to tf32 on the way
                columns=columns,
                rows=rows,
                batch=problem.batch,
                pitch=copy.pitch if copy else f"ld{self.name}",
                stride=copy.stride if copy else f"stride_{self.name}",
                box=(LINE_BYTES // problem.element_bytes, self.box_rows),
                swizzle=LINE_BYTES,
            ),
        )


def plan(config: Config, p: WgmmaParams, problem: Problem, alignment: Alignment) -> LaunchPlan:
    """The launches on operands of an alignment."""
    copies = p.copies(problem, alignment)
    start = copies_end(copies)
    gemm = _gemm(p, problem, alignment, copies)
    return LaunchPlan(
        config,
        (*([packing.launch(copies)] if copies else ()), gemm),
        workspace=start + FLOAT_BYTES * p.partial_floats(problem),
        counters=p.counters(problem),
        product=1 if copies else 0,
    )


def _gemm(
    p: WgmmaParams, problem: Problem, alignment: Alignment, copies: Sequence[packing.Copy]
) -> Launch:
    a, b = _operands(p, problem, copies)
    store = _store(p, problem, alignment)
    map_b = b.tensor_map(problem)
    return Launch(
        template=_template(p, problem, alignment, (a, b), store),
        grid=p.launch_grid(problem),
        block=(p.threads, 1, 1),
        shared=p.shared_bytes(p.stages, problem),
        arguments=(
            a.tensor_map(problem),
            map_b,
            b.tensor_map(problem, low=True) if p.low == "pass" else map_b,
            _map_c(p, problem) if store == "tma" else map_b,
            # Tensor maps stand for the pointers and pitches of A and B.
            call_struct(**{f"stride_{operand.name}": operand.stride for operand in (a, b)}),
            schedule_struct(p, problem, copies_end(copies) // FLOAT_BYTES),
            *sizes_and_factors(problem),
        ),
        cluster=p.shape.blocks,
    )


def _operands(
    p: WgmmaParams, problem: Problem, copies: Sequence[packing.Copy]
) -> tuple[_TmaOperand, _TmaOperand]:
    by_name = {copy.operand: copy for copy in copies}
    span = LINE_BYTES // problem.element_bytes

    def operand(name: str, side: int, sharing: int) -> _TmaOperand:
        contiguous = p.k_contiguous(problem, name)
        spans = (p.bk if contiguous else round_up(side, span)) // span
        box_rows = (side if contiguous else p.bk) // (sharing // gcd(spans, sharing))
        return _TmaOperand(name, contiguous, box_rows, by_name.get(name))

    name_a, name_b = kernel_operands(p.swap)
    # The blocks of a cluster along N read the same A, those along M the same B.
    return operand(name_a, p.tile_m, p.shape.n), operand(name_b, p.tile_n, p.shape.m)


def _store(p: WgmmaParams, problem: Problem, alignment: Alignment) -> Store:
    if p.store == "direct":
        return "direct"
    whole = _stored_columns(p, problem) * problem.output_bytes % LINE_BYTES == 0
    # TMA stores write past the last column if a row does not end with a whole vector.
    vector = gcd(alignment.c, problem.width) * problem.output_bytes
    return "tma" if whole and vector == VECTOR_BYTES else "staged"


def _stored_columns(p: WgmmaParams, problem: Problem) -> int:
    """Columns of C that a block stores of a row at a time; blocks start at multiples of them."""
    # Of a transposed tile a strip has the rows of an instruction as columns.
    columns = INSTRUCTION_ROWS if p.swap else p.tile_n // p.reducers
    return columns // (2 if problem.gated else 1)


def _map_c(p: WgmmaParams, problem: Problem) -> Argument:
    """The tensor map by which TMA stores C."""
    rows = p.tile_n // p.reducers if p.swap else INSTRUCTION_ROWS
    return Argument(
        "tensor_map",
        TensorMap(
            base="c",
            offset=0,
            type=problem.output_type if problem.output_bytes > 1 else "u8",
            columns=problem.width,
            rows=problem.m,
            batch=problem.batch,
            pitch="ldc",
            stride="stride_c",
            box=(LINE_BYTES // problem.output_bytes, rows),
            swizzle=LINE_BYTES,
        ),
    )


def _template(
    p: WgmmaParams,
    problem: Problem,
    alignment: Alignment,
    pair: tuple[_TmaOperand, _TmaOperand],
    store: Store,
) -> Template:
    return Template(
        "wgmma.cu",
        "wgmma",
        (
            *each_type(transposed(problem) if p.swap else problem),
            ("PRODUCTS", problem.products),
            scale(problem),
            *constants(p, "tile_m", "tile_n"),
            ("TILE_K", p.bk),
            *constants(p, "stages", "consumers"),
            ("PINGPONG", p.schedule == "pingpong"),
            ("PERSISTENT", p.workers > 0),
            ("CLUSTER_M", p.shape.m),
            ("CLUSTER_N", p.shape.n),
            ("CLUSTER_K", p.shape.k),
            ("MIN_BLOCKS", p.min_blocks),
            ("A_IN_REGISTERS", p.source == "registers"),
            ("A_STREAMED", p.source == "streamed"),
            ("A_ALONG_K", pair[0].k_contiguous),
            ("B_ALONG_K", pair[1].k_contiguous),
            ("TRANSPOSED", bool(p.swap)),
            ("LOW_PACKED", p.low == "pass"),
            ("PROMOTE", p.promote),
            ("REDUCTION", enumerator("Reduction", p.reduction)),
            ("STORE", enumerator("Store", store)),
            epilogue(problem),
            ("VC", gcd(alignment.c, problem.width, _stored_columns(p, problem))),
        ),
        specific=True,
        named=True,
    )


def schedule_struct(p: WgmmaParams, problem: Problem, start_partials: int) -> Argument:
    """The struct `WgmmaSchedule` of `cuda_src/include/k_sharing/tile_scheduler.cuh`.

    A tile is computed by a cluster, whose blocks work together. Partial sums start `start_partials`
    floats into the workspace.
    """
    rows, columns = p.cluster_rows_and_columns(problem)
    steps = ceil_div(problem.k, p.bk)
    part_steps, longer_parts = divmod(steps, p.split_k)
    group = min(p.group, rows)
    return struct(
        "WgmmaSchedule",
        start_partials=Argument("i64", start_partials),
        tiles=divisor(rows * columns),
        shares=divisor(p.grid_splits),
        group_tiles=divisor(group * columns),
        group=divisor(group),
        last_group=divisor(rows % group or group),
        rows=Argument("i32", rows),
        columns=Argument("i32", columns),
        steps=Argument("i32", steps),
        batch=Argument("i32", problem.batch),
        streamed=Argument("i32", p.streamed(problem)),
        part_steps=Argument("i32", part_steps),
        longer_parts=Argument("i32", longer_parts),
    )


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
    blocks, iterations, parts = tiling.block_shares(p, problem, p.units(problem))
    visible = VISIBLE_EPILOGUE if p.schedule == "pingpong" else 1.0
    # Registers of 16-bit elements fill only half a sector.
    halves = p.store == "direct" and problem.output_bytes == 2
    stored = visible * problem.output_bytes * (2 if halves else 1)
    # A cluster's partial sums go through shared memory, faster than stores to C.
    stored += 2 if p.shape.k > 1 else 0
    sums = p.elements / (WARPGROUP * p.consumers)
    packed = p.packed_bytes(problem)
    return Work(
        blocks=blocks,
        rows=p.bm,
        columns=p.bn,
        cluster=p.shape.blocks,
        warps=p.threads // WARP,
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
        traits=("wgmma", f"wgmma {problem.compute} {p.schedule}", _tile_trait(p)),
    )


def _tile_trait(p: WgmmaParams) -> str | Between:
    """The tile, between two whose columns are a power of two: few recordings have any other."""
    upper = 1 << (p.tile_n - 1).bit_length()
    lower = upper // 2
    if p.tile_n == upper:
        return f"wgmma {p.tile_m}x{upper}"
    share = (p.tile_n - lower) / lower
    return Between(f"wgmma {p.tile_m}x{lower}", f"wgmma {p.tile_m}x{upper}", share)


def _instructions(p: WgmmaParams, problem: Problem) -> float:
    """Instructions of a block's warps in a k-iteration, besides those of the tensor cores."""
    issued = LOOP_INSTRUCTIONS * p.threads / WARP
    split = SPLIT_INSTRUCTIONS * (problem.products > 1)
    if p.source == "registers":
        issued += p.tile_m * p.bk / WARP * (1 + split)
    if p.low == "kernel":
        issued += p.tile_n * p.bk / WARP * (1 + split)
    if p.promote:
        terms = p.promote * p.bk if problem.element_bytes > 1 else SCALE_BLOCK
        issued += p.elements / WARP * p.bk / terms
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


def _gathered(p: WgmmaParams, problem: Problem) -> float:
    """Partial sums of a tile that one block adds up, one after the other."""
    match p.reduction:
        case "fused":
            return p.grid_splits / p.reducers
        case "stream":
            return tiling.splits_of_a_tile(p.tiles(problem), p.workers)
    return 0
