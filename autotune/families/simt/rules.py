"""Rules of `simt` on tiles, registers, buffers and sharing K, and how it adds up products."""

from __future__ import annotations

from functools import partial

from autotune.device import Device
from autotune.families.family import ParameterFunction, Rule, accuracy_rule
from autotune.families.shared import limits, tiling
from autotune.families.shared.arguments import along_k
from autotune.families.shared.limits import workspace_fault
from autotune.families.shared.tiling import (
    fill,
    last_block_fault,
    longest_split,
    order_fault,
    residency_fault,
    split_gain_fault,
    tiles_fault,
    warp_columns_fault,
    warp_rows_fault,
)
from autotune.families.simt.parameters import SimtParams, reduction_rows
from autotune.families.summation import (
    Summation,
    SummationOrder,
    from_zero,
    in_order,
    sliced,
    split_by_longest,
    split_length,
)
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

TILE = ("bm", "bn")
WARPS = (*TILE, "wm", "wn", "slices")
MAIN_LOOP = ("tm", "tn", *WARPS, "bk", "copy", "fragments")
K_SHARING = (*TILE, "split_k", "reduction", "workers")
"""Parameters that several rules need together."""

WAVE_BLOCKS_A_SM = 8
"""The most blocks an SM for which K is split only to fill the last wave."""
_split_gain_fault = partial(split_gain_fault, waves=WAVE_BLOCKS_A_SM)
PACKED_USES = 512
"""The least reads of a packed operand for which its copy takes a tenth of the GEMM or less."""
CHUNK_TERMS = 1024
"""Terms of a sum from which a vendor's kernel may be more accurate by half or more."""
GROUPED_WAVES = 4
"""Tiles an SM above which their order may decide what L2 still holds."""
FULL_WAVES = 0.98
"""Fill of the SMs above which stream-K gains nothing."""


def _split_fault(p: SimtParams, problem: Problem, _device: Device) -> str | None:
    iterations = ceil_div(problem.k, p.bk)
    if p.split_k == 1 or longest_split(iterations, p.split_k) >= 2:
        return None
    return f"{iterations} k-iterations of {p.bk} do not go into {p.split_k} splits of 2 or more"


def _reduction_fault(p: SimtParams, _problem: Problem, _device: Device) -> str | None:
    if (p.split_k > 1) == (p.reduction in ("separate", "fused")):
        return None
    return f"split_k={p.split_k} with reduction={p.reduction}"


def _last_block_fault(p: SimtParams, _problem: Problem, _device: Device) -> str | None:
    return last_block_fault(4 * p.split_k * p.elements) if p.reduction == "fused" else None


def _workers_fault(p: SimtParams, problem: Problem, _device: Device) -> str | None:
    if (p.reduction == "stream") != (p.workers > 0):
        return f"workers={p.workers} with reduction={p.reduction}"
    if p.workers and problem.batch > 1:
        return f"workers share one matrix; the batch has {problem.batch}"
    return None


def _stream_fault(p: SimtParams, problem: Problem, device: Device) -> str | None:
    if p.workers == 0:
        return None
    tiles, count = p.tiles(problem), ceil_div(problem.k, p.bk)
    if fill(tiles, device.sms) > FULL_WAVES:
        return f"{tiles} tiles keep {device.sms} SMs busy as they are"
    if tiles * count < 4 * p.workers:
        return f"{tiles} tiles of {count} k-iterations leave {p.workers} workers less than 4 each"
    return None


def _chunks_fault(p: SimtParams, problem: Problem, _device: Device) -> str | None:
    terms = problem.k // (p.split_k * p.slices)
    if p.chunks == 1 or terms // p.chunks >= CHUNK_TERMS:
        return None
    return f"{p.chunks} chunks of {terms} terms; {CHUNK_TERMS} each at least"


def _pack_fault(p: SimtParams, problem: Problem, _device: Device) -> str | None:
    """Packing pays if it makes vectors possible and takes a small part of the time."""
    gains = "".join(
        operand
        for operand, extent, uses in (("a", problem.m, problem.n), ("b", problem.n, problem.m))
        if uses >= PACKED_USES and (extent % 4 or along_k(problem, operand))
    )
    return None if p.pack in ("none", gains) else f"{gains or 'no operand'} would gain from a copy"


def _workspace_fault(p: SimtParams, problem: Problem, device: Device) -> str | None:
    floats = p.partial_floats(problem) + p.packed_floats(problem)
    return workspace_fault(problem.element_bytes * floats, device)


def _group_fault(p: SimtParams, problem: Problem, device: Device) -> str | None:
    rows, columns = ceil_div(problem.m, p.bm), ceil_div(problem.n, p.bn)
    return order_fault(rows, columns, p.group, GROUPED_WAVES, device)


SHARING_RULES = (
    Rule("split-K", _split_fault, ("bk", "split_k")),
    Rule("split-K", _split_gain_fault, (*TILE, "split_k"), for_shape=True),
    Rule("reduction", _reduction_fault, ("split_k", "reduction")),
    Rule("reduction", _last_block_fault, (*TILE, "split_k", "reduction")),
    Rule("stream-K", _workers_fault, ("reduction", "workers")),
    Rule("stream-K", _stream_fault, (*TILE, "bk", "workers")),
    Rule("chunks", _chunks_fault, ("slices", "split_k", "chunks")),
    Rule("pack", _pack_fault, ("pack",)),
    Rule("workspace", _workspace_fault, (*K_SHARING, "pack")),
    Rule("group", _group_fault, (*TILE, "group")),
)
"""Cheapest first."""


def summation(p: SimtParams, problem: Problem) -> Summation:
    """Each slice sums up its share of every chunk; chunks, slices and blocks are added up then."""
    if p.workers:
        tiles = p.tiles(problem)
        length = problem.k * tiling.mean_part(tiles, p.workers)
        blocks = tiling.splits_of_a_tile(tiles, p.workers)
    else:
        length, blocks = split_length(problem.k, p.split_k, p.bk), p.split_k
    return Summation(in_order(length / (p.slices * p.chunks), p.chunks, p.slices, blocks))


def summation_order(p: SimtParams, problem: Problem) -> SummationOrder | None:
    """Each slice is a chain for each chunk; chunks are added up, then slices, then splits. Splits
    of stream-K begin where the number of tiles has it."""
    if p.reduction == "stream":
        return None
    tree = []
    for count in split_by_longest(ceil_div(problem.k, p.bk), p.split_k):
        chunks = "+".join(str(part * p.bk) for part in split_by_longest(count, p.chunks))
        tree.append(sliced(chunks, p.slices, p.bk // p.slices))
    if p.split_k == 1:
        return SummationOrder("ffma", tree[0])
    rows = reduction_rows(p.split_k) if p.reduction == "separate" else 1
    return SummationOrder("ffma", sliced(from_zero(tree), rows, 1))


SUMMATION = ParameterFunction(summation, (*K_SHARING, "slices", "bk", "chunks"))
SUMMATION_ORDER = ParameterFunction(
    summation_order, ("slices", "bk", "split_k", "reduction", "chunks")
)

THREADS = 64, 512
STEPS = 4, 16
"""Steps of K between two barriers, all unrolled: fewer wait, more take seconds to compile."""
SLICED_BLOCKS_A_SM = 4
PLAIN_SUMS = 64
"""Accumulators a thread from which the order of multiplication and a fence make a difference."""
STAGES = {8: (3, 4, 5), 16: (2, 3, 4), 32: (2, 3, 4), 64: (2, 3, 4)}
"""Buffers of bk steps: with fewer, data comes too late; more only take shared memory."""
SUMMING_REGISTERS, MEASURED = {"fused": 8, "stream": 24}, (9, 0)
"""Further registers of kernels that add up partial sums, by `reduction`: they spill if launch
bounds do not leave them (NVRTC 13, sm_86, sm_89 and sm_120); and the compute capability where such
kernels were measured without spills."""
AHEAD, NARROW = 64, 96
"""Steps of K that copies run ahead at most, except for tiles whose rows and columns add up to 96 or
less: those need the depth to keep memory busy."""


def _rows_fault(p: SimtParams, problem: Problem, _device: Device) -> str | None:
    if p.bm <= 32 or p.bm < 2 * problem.m:
        return None
    return f"bm={p.bm} is at least twice M={problem.m}"


def _columns_fault(p: SimtParams, problem: Problem, _device: Device) -> str | None:
    n = problem.n
    if p.bn == 16:
        return None if n < 32 else f"bn=16 is for less than N={n}"
    return None if p.bn == 32 or p.bn < 2 * n else f"bn={p.bn} is at least twice N={n}"


def _thread_tile_fault(p: SimtParams, _problem: Problem, _device: Device) -> str | None:
    tm, tn = p.tm, p.tn
    if max(tm, tn) <= 2 * min(tm, tn):
        return None
    return f"{tm}x{tn} loads {tm + tn} values for {p.sums} products; at most 2 to 1"


def _lanes_fault(p: SimtParams, _problem: Problem, _device: Device) -> str | None:
    """Other shapes of 32 lanes read more shared memory for the same products."""
    rows, columns = p.wm / p.tm, p.wn / p.tn
    if (rows, columns) in ((4, 8), (8, 4)):
        return None
    return f"{p.wm}x{p.wn} is {rows:g}x{columns:g} threads of {p.tm}x{p.tn}, not 4x8"


def _threads_fault(p: SimtParams, _problem: Problem, device: Device) -> str | None:
    (least, most), threads = THREADS, p.threads
    most = min(most, device.threads_per_block)
    return None if least <= threads <= most else f"{threads} a block; {least} to {most} are tried"


def _slices_fault(p: SimtParams, problem: Problem, device: Device) -> str | None:
    count = p.count(problem)
    if p.slices == 1 or count <= SLICED_BLOCKS_A_SM * device.sms:
        return None
    return f"{count} tiles keep {device.sms} SMs busy with one slice each"


def _steps_fault(p: SimtParams, _problem: Problem, _device: Device) -> str | None:
    steps, (least, most) = p.bk // p.slices, STEPS
    if not least <= steps <= most:
        return f"bk={p.bk} has {steps} steps for each of {p.slices} slices; {least} to {most}"
    if p.bk == 64 and p.slices < 8:
        return f"bk=64 is for 8 slices; {p.slices} have steps enough in half of it"
    return None


def _copy_fault(p: SimtParams, _problem: Problem, device: Device) -> str | None:
    if p.copy == "async":
        return limits.cp_async_fault(device)
    if p.sums >= PLAIN_SUMS or not limits.has_cp_async(device):
        return None
    return f"{p.tm}x{p.tn} sums leave no time to go through registers"


def _stages_fault(p: SimtParams, _problem: Problem, _device: Device) -> str | None:
    tried = STAGES[p.bk] if p.copy == "async" else (2,)
    if p.stages not in tried:
        return f"stages={p.stages} of bk={p.bk} steps, {p.copy}; {tried} are tried"
    ahead = (p.stages - 1) * p.bk
    if ahead > AHEAD and p.bm + p.bn > NARROW:
        return f"copies of {p.bm}+{p.bn} floats run {ahead} steps ahead; {AHEAD} are enough"
    return None


def _fragments_fault(p: SimtParams, _problem: Problem, _device: Device) -> str | None:
    steps = p.bk // p.slices
    if steps % p.fragments:
        return f"{steps} steps are not a multiple of {p.fragments} fragments"
    if p.fragments == 1 and p.sums != PLAIN_SUMS:
        sums = p.sums
        return f"{sums} sums: fewer have registers for two fragments, more too few warps for one"
    return None


def _fence_fault(p: SimtParams, _problem: Problem, _device: Device) -> str | None:
    if p.fence == 0 or (p.fragments == 2 and p.sums >= PLAIN_SUMS):
        return None
    return f"{p.tm}x{p.tn} sums with {p.fragments} fragments gain nothing from it"


def _order_fault(p: SimtParams, _problem: Problem, _device: Device) -> str | None:
    tm, tn = p.tm, p.tn
    if p.sums < PLAIN_SUMS:
        return None if p.order == "rows" else f"{tm}x{tn} sums are too few for it to matter"
    along = {"rows": tm > tn, "row-pairs": tm > tn, "columns": tn >= tm, "column-pairs": tn >= tm}
    return (
        None
        if along.get(p.order, True)
        else f"{p.order} of {tm}x{tn} sums go along the longer side"
    )


def _bounds_fault(p: SimtParams, _problem: Problem, device: Device) -> str | None:
    if p.min_blocks == 1:
        return None
    if p.sums < PLAIN_SUMS or p.slices > 1:
        return f"{p.tm}x{p.tn} sums in {p.slices} slices need no bound"
    threads, needed = p.threads, p.register_estimate
    budget = limits.register_budget(p.min_blocks, threads, device)
    if min(2 * needed, limits.LARGEST_THREAD_REGISTERS) > budget:
        return None
    return (
        f"{p.min_blocks} blocks of {threads} threads leave {budget} registers; "
        f"about {needed} are taken"
    )


def _registers_fault(p: SimtParams, _problem: Problem, device: Device) -> str | None:
    needed = p.register_estimate
    if device.compute_capability != MEASURED:
        needed += SUMMING_REGISTERS.get(p.reduction, 0)
    return limits.registers_fault(needed, p.min_blocks, p.threads, device)


def _resident_workers_fault(p: SimtParams, _problem: Problem, device: Device) -> str | None:
    """All workers must be resident at once: late ones would make a wave of their own."""
    if p.workers == 0:
        return None
    blocks = p.workers // device.sms
    if blocks < p.min_blocks:
        return f"{blocks} workers an SM; {p.min_blocks} blocks are resident"
    registers = blocks * p.threads * p.register_estimate
    if registers <= device.registers_per_sm:
        return None
    return f"{blocks} workers an SM need about {registers} registers of {device.registers_per_sm}"


RULES = (
    Rule("larger than the matrix", _rows_fault, ("bm",)),
    Rule("larger than the matrix", _columns_fault, ("bn",)),
    Rule("divisibility", warp_rows_fault, ("bm", "wm")),
    Rule("divisibility", warp_columns_fault, ("bn", "wn")),
    Rule("thread tile", _thread_tile_fault, ("tm", "tn")),
    Rule("warp shape", _lanes_fault, ("wm", "wn", "tm", "tn")),
    Rule("threads", _threads_fault, WARPS),
    Rule("slices", _slices_fault, (*TILE, "slices")),
    Rule("steps", _steps_fault, ("slices", "bk")),
    Rule("grid", tiles_fault, TILE),
    *SHARING_RULES,
    Rule("copy", _copy_fault, ("tm", "tn", "copy")),
    Rule("stages", _stages_fault, (*TILE, "bk", "copy", "stages")),
    Rule("fragments", _fragments_fault, ("tm", "tn", "slices", "bk", "fragments")),
    Rule("fence", _fence_fault, ("tm", "tn", "fragments", "fence")),
    Rule("order", _order_fault, ("tm", "tn", "order")),
    Rule("residency", residency_fault, (*WARPS, "min_blocks")),
    Rule("launch bounds", _bounds_fault, (*MAIN_LOOP, "min_blocks")),
    Rule("register estimate", _registers_fault, (*MAIN_LOOP, "min_blocks", "reduction")),
    Rule("workers", _resident_workers_fault, (*MAIN_LOOP, "min_blocks", "workers")),
    Rule(
        "shared memory",
        lambda p, _, device: limits.shared_fault(p.shared_bytes(), p.min_blocks, device),
        (*TILE, "slices", "bk", "stages", "chunks", "min_blocks"),
    ),
    accuracy_rule(SUMMATION),
)
"""The rules of `simt`, cheapest first."""
