"""The launches of a `simt` configuration, and the work of their blocks for the cost model.

An operand is packed first where that pays; a last launch may add up splits of K.
"""

from __future__ import annotations

from math import ceil, gcd

from autotune.families.config import Config
from autotune.families.family import Work
from autotune.families.plan import Alignment, Argument, Launch, LaunchPlan, Template
from autotune.families.shared import packing, tiling
from autotune.families.shared.arguments import (
    along_k,
    call_struct,
    constants,
    epilogue,
    sizes_and_factors,
    struct,
    words,
)
from autotune.families.shared.cuda_enums import enumerator
from autotune.families.shared.packing import OperandPair, VectorOperand
from autotune.families.shared.tiling import WARP
from autotune.families.simt.parameters import FLOAT_BYTES, SimtParams, reduction_rows
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

SUM_THREADS = 256
VECTOR = 4


def plan(config: Config, p: SimtParams, problem: Problem, alignment: Alignment) -> LaunchPlan:
    """The launches on operands of an alignment."""
    a = _operand("a", p, problem, alignment.a, 0)
    b = _operand("b", p, problem, alignment.b, a.copy.bytes if a.copy else 0)
    copies = [operand.copy for operand in (a, b) if operand.copy is not None]
    packed = sum(copy.bytes for copy in copies) // FLOAT_BYTES
    launches = [_gemm(p, problem, alignment, (a, b), packed)]
    if copies:
        launches.insert(0, packing.launch(copies, early=False))
    if p.reduction == "separate":
        launches.append(_reduction(p, problem, alignment, packed))
    return LaunchPlan(
        config,
        tuple(launches),
        workspace=FLOAT_BYTES * (packed + p.partial_floats(problem)),
        counters=p.count(problem) if p.reduction in ("fused", "stream") else 0,
        product=1 if copies else 0,
    )


def _operand(
    name: str, p: SimtParams, problem: Problem, alignment: int, start: int
) -> VectorOperand:
    if p.packs(name):
        # The copy's rows run along M or N, so that vectors need no transposition.
        transposed = along_k(problem, name)
        copy = packing.copy(problem, name, transposed=transposed, start=start)
        return VectorOperand(name, VECTOR, copy)
    if not along_k(problem, name):
        return VectorOperand(name, gcd(alignment, problem.m if name == "a" else problem.n))
    # cp.async cannot transpose vectors: it copies a K-contiguous operand float by float.
    return VectorOperand(name, 1 if p.copy == "async" else gcd(alignment, problem.k))


def _gemm(
    p: SimtParams, problem: Problem, alignment: Alignment, pair: OperandPair, start: int
) -> Launch:
    """The GEMM, whose partial sums start `start` floats into the workspace."""
    a, b = pair
    schedule = struct(
        "SimtSchedule",
        start_a=a.start,
        start_b=b.start,
        start_partials=Argument("i64", start),
        group=Argument("i32", p.group),
        streamed=Argument("i32", p.streamed(problem)),
        workers=Argument("i32", p.workers),
    )
    return Launch(
        template=_template(p, problem, alignment, pair),
        grid=p.grid(problem),
        block=(p.threads, 1, 1),
        shared=p.shared_bytes(p.reads_along_k(problem, "a") + p.reads_along_k(problem, "b")),
        arguments=(
            call_struct(**a.members("a"), **b.members("b")),
            schedule,
            *sizes_and_factors(problem),
        ),
    )


def _template(p: SimtParams, problem: Problem, alignment: Alignment, pair: OperandPair) -> Template:
    a, b = pair
    whole = problem.m % p.bm == problem.n % p.bn == problem.k % p.bk == 0
    return Template(
        "simt.cu",
        "simt",
        (
            *constants(p, "bm", "bn", "bk", "wm", "wn", "tm", "tn", "slices", "chunks", "stages"),
            ("ASYNC", p.copy == "async"),
            ("FRAGMENTS", p.fragments),
            ("FENCE", bool(p.fence)),
            ("ORDER", enumerator("Order", p.order)),
            ("MIN_BLOCKS", p.min_blocks),
            ("REDUCTION", enumerator("Reduction", p.reduction)),
            ("TRANS_A", not p.reads_along_k(problem, "a")),
            ("TRANS_B", p.reads_along_k(problem, "b")),
            epilogue(problem),
            ("VA", a.width),
            ("VB", b.width),
            ("VC", gcd(alignment.c, problem.n)),
            ("CHECK", not whole),
        ),
        named=True,
    )


def _reduction(p: SimtParams, problem: Problem, alignment: Alignment, start: int) -> Launch:
    """The launch that adds up the splits, which start `start` floats into the workspace."""
    vector = gcd(alignment.c, problem.n)
    rows = reduction_rows(p.split_k)
    columns = SUM_THREADS // rows
    return Launch(
        template=Template(
            "split_k.cu", "split_k", (("VECTOR", vector), epilogue(problem)), named=True
        ),
        grid=(ceil_div(problem.m * problem.n // vector, columns), 1, problem.batch),
        block=(columns, rows, 1),
        shared=FLOAT_BYTES * SUM_THREADS * vector,
        arguments=(
            *words("workspace"),
            Argument("i64", start),
            Argument("i32", p.split_k),
            *words("c", "ldc", "stride_c"),
            Argument("i32", problem.m),
            Argument("i32", problem.n),
            Argument("i32", packing.pitch(problem.n, FLOAT_BYTES)),
            *words("alpha", "beta", "bias"),
        ),
    )


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
    blocks, iterations, parts = tiling.block_shares(p, problem, p.blocks(problem))
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
        floats, transposed = p.bk * side, p.reads_along_k(problem, operand)
        if p.packs(operand):
            width = VECTOR
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
            return tiling.splits_of_a_tile(p.tiles(problem), p.workers), passes, moved
    return 0, passes, moved
