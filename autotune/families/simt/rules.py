"""Rules of `simt` on tiles, registers, buffers and sharing K, and how it adds up products."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.device import Device
from autotune.families.family import Rule
from autotune.families.shared import limits, tiling
from autotune.families.shared.arguments import along_k
from autotune.families.shared.cuda_enums import Order, Reduction
from autotune.families.shared.limits import workspace_fault
from autotune.families.shared.packing import Pack
from autotune.families.shared.tiling import (
    fill,
    last_block_fault,
    longest_split,
    order_fault,
    split_waves_fault,
)
from autotune.families.simt.parameters import (
    CopyPath,
    MainLoop,
    SimtBuffers,
    SimtKSharing,
    SimtTile,
    SimtWarps,
    ThreadTile,
    VectorPacking,
    reduction_rows,
)
from autotune.families.summation import (
    ACCURACY,
    Summation,
    SummationOrder,
    from_zero,
    in_order,
    possible_limit,
    sliced,
    split_by_longest,
    split_length,
)
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

SPLIT_BLOCKS_A_SM, WAVE_BLOCKS_A_SM = 2, 8
"""Blocks an SM that hide each other's latency whatever the waves they make, and the most blocks an
SM for which K is split only to fill the last wave."""
PACKED_USES = 512
"""How often a packed operand must be read for its copy to take a tenth of the GEMM or less."""
CHUNK_TERMS = 1024
"""Terms of a sum from which a vendor's kernel may be more accurate by half or more."""
GROUPED_WAVES = 4
"""Tiles an SM above which their order may decide what L2 still holds."""
FULL_WAVES = 0.98
"""Fill of the SMs above which stream-K gains nothing."""


def _split_fault(bk: int, split_k: int, problem: Problem) -> str | None:
    iterations = ceil_div(problem.k, bk)
    if split_k == 1 or longest_split(iterations, split_k) >= 2:
        return None
    return f"{iterations} k-iterations of {bk} do not go into {split_k} splits of 2 or more"


def _split_gain_fault(tile: SimtTile, split_k: int, problem: Problem, device: Device) -> str | None:
    if split_k == 1:
        return None
    count, sms = tile.count(problem), device.sms
    if count * (split_k - 1) < SPLIT_BLOCKS_A_SM * sms:
        return None
    return split_waves_fault(count, split_k, sms, WAVE_BLOCKS_A_SM)


def _reduction_fault(split_k: int, reduction: Reduction) -> str | None:
    if (split_k > 1) == (reduction in ("separate", "fused")):
        return None
    return f"split_k={split_k} with reduction={reduction}"


def _last_block_fault(tile: SimtTile, split_k: int, reduction: Reduction) -> str | None:
    return last_block_fault(4 * split_k * tile.elements) if reduction == "fused" else None


def _workers_fault(reduction: Reduction, workers: int, problem: Problem) -> str | None:
    if (reduction == "stream") != (workers > 0):
        return f"workers={workers} with reduction={reduction}"
    if workers and problem.batch > 1:
        return f"workers share one matrix; the batch has {problem.batch}"
    return None


def _stream_fault(
    tile: SimtTile, bk: int, workers: int, problem: Problem, device: Device
) -> str | None:
    if workers == 0:
        return None
    tiles, count = tile.tiles(problem), ceil_div(problem.k, bk)
    if fill(tiles, device.sms) > FULL_WAVES:
        return f"{tiles} tiles keep {device.sms} SMs busy as they are"
    if tiles * count < 4 * workers:
        return f"{tiles} tiles of {count} k-iterations leave {workers} workers less than 4 each"
    return None


def _chunks_fault(slices: int, split_k: int, chunks: int, problem: Problem) -> str | None:
    terms = problem.k // (split_k * slices)
    if chunks == 1 or terms // chunks >= CHUNK_TERMS:
        return None
    return f"{chunks} chunks of {terms} terms; {CHUNK_TERMS} each at least"


def _pack_fault(pack: Pack, problem: Problem) -> str | None:
    """Packing pays if it makes vectors possible and takes a small part of the time."""
    gains = "".join(
        operand
        for operand, extent, uses in (("a", problem.m, problem.n), ("b", problem.n, problem.m))
        if uses >= PACKED_USES and (extent % 4 or along_k(problem, operand))
    )
    return None if pack in ("none", gains) else f"{gains or 'no operand'} would gain from a copy"


def _workspace_fault(
    sharing: SimtKSharing, packing: VectorPacking, problem: Problem, device: Device
) -> str | None:
    floats = sharing.partial_floats(problem) + packing.packed_floats(problem)
    return workspace_fault(problem.element_bytes * floats, device)


def _group_fault(tile: SimtTile, group: int, problem: Problem, device: Device) -> str | None:
    rows, columns = ceil_div(problem.m, tile.bm), ceil_div(problem.n, tile.bn)
    return order_fault(rows, columns, group, GROUPED_WAVES, device)


SHARING_RULES = (
    Rule("split-K", _split_fault),
    Rule("split-K", _split_gain_fault, for_shape=True),
    Rule("reduction", _reduction_fault),
    Rule("reduction", _last_block_fault),
    Rule("stream-K", _workers_fault),
    Rule("stream-K", _stream_fault),
    Rule("chunks", _chunks_fault),
    Rule("pack", _pack_fault),
    Rule("workspace", _workspace_fault),
    Rule("group", _group_fault),
)
"""Cheapest first."""


@dataclass(frozen=True)
class SimtSums(SimtKSharing):
    """The parameters that decide in which order products are added up."""

    slices: int
    bk: int
    chunks: int


def summation(p: SimtSums, problem: Problem) -> Summation:
    """Each slice sums up its share of every chunk; chunks, slices and blocks are added up then."""
    if p.workers:
        tiles = p.tiles(problem)
        length = problem.k * tiling.mean_part(tiles, p.workers)
        blocks = tiling.splits_of_a_tile(tiles, p.workers)
    else:
        length, blocks = split_length(problem.k, p.split_k, p.bk), p.split_k
    return Summation(in_order(length / (p.slices * p.chunks), p.chunks, p.slices, blocks))


@dataclass(frozen=True)
class SimtOrder:
    """The parameters that decide the order of summation."""

    slices: int
    bk: int
    split_k: int
    reduction: Reduction
    chunks: int


def summation_order(p: SimtOrder, problem: Problem) -> SummationOrder | None:
    """Each slice is a chain for each chunk; chunks are added up, then slices, then splits. Splits
    of stream-K begin where the number of tiles has it."""
    if p.reduction == "stream":
        return None
    steps = split_by_longest(ceil_div(problem.k, p.bk), p.split_k)
    tree = [sliced(_chunks(count, p), p.slices, p.bk // p.slices) for count in steps]
    if p.split_k == 1:
        return SummationOrder("ffma", tree[0])
    rows = reduction_rows(p.split_k) if p.reduction == "separate" else 1
    return SummationOrder("ffma", sliced(from_zero(tree), rows, 1))


def _chunks(count: int, p: SimtOrder) -> str:
    """The chunks of `count` k-iterations."""
    parts = [str(part * p.bk) for part in split_by_longest(count, p.chunks)]
    return "+".join(parts)


def _error_fault(sums: SimtSums, problem: Problem, device: Device) -> str | None:
    return possible_limit(problem, device).fault(summation(sums, problem), problem)


ERROR_RULES = (Rule(ACCURACY, _error_fault, for_speed=True),)
"""A recorded kernel was verified, which overrules the prediction."""


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


def _rows_fault(bm: int, problem: Problem) -> str | None:
    if bm <= 32 or bm < 2 * problem.m:
        return None
    return f"bm={bm} is at least twice M={problem.m}"


def _columns_fault(bn: int, problem: Problem) -> str | None:
    n = problem.n
    if bn == 16:
        return None if n < 32 else f"bn=16 is for less than N={n}"
    return None if bn == 32 or bn < 2 * n else f"bn={bn} is at least twice N={n}"


def _warp_rows_fault(bm: int, wm: int) -> str | None:
    return None if bm % wm == 0 else f"wm={wm} does not divide bm={bm}"


def _warp_columns_fault(bn: int, wn: int) -> str | None:
    return None if bn % wn == 0 else f"wn={wn} does not divide bn={bn}"


def _thread_tile_fault(thread: ThreadTile) -> str | None:
    tm, tn = thread.tm, thread.tn
    if max(tm, tn) <= 2 * min(tm, tn):
        return None
    return f"{tm}x{tn} loads {tm + tn} values for {thread.sums} products; at most 2 to 1"


def _lanes_fault(wm: int, wn: int, thread: ThreadTile) -> str | None:
    """Other shapes of 32 lanes read more shared memory for the same products."""
    rows, columns = wm / thread.tm, wn / thread.tn
    if (rows, columns) in ((4, 8), (8, 4)):
        return None
    return f"{wm}x{wn} is {rows:g}x{columns:g} threads of {thread.tm}x{thread.tn}, not 4x8"


def _threads_fault(warps: SimtWarps, device: Device) -> str | None:
    (least, most), threads = THREADS, warps.threads
    most = min(most, device.threads_per_block)
    return None if least <= threads <= most else f"{threads} a block; {least} to {most} are tried"


def _slices_fault(tile: SimtTile, slices: int, problem: Problem, device: Device) -> str | None:
    count = tile.count(problem)
    if slices == 1 or count <= SLICED_BLOCKS_A_SM * device.sms:
        return None
    return f"{count} tiles keep {device.sms} SMs busy with one slice each"


def _steps_fault(slices: int, bk: int) -> str | None:
    steps, (least, most) = bk // slices, STEPS
    if not least <= steps <= most:
        return f"bk={bk} has {steps} steps for each of {slices} slices; {least} to {most}"
    if bk == 64 and slices < 8:
        return f"bk=64 is for 8 slices; {slices} have steps enough in half of it"
    return None


def _grid_fault(tile: SimtTile, problem: Problem) -> str | None:
    return limits.grid_fault(tile.tiles(problem))


def _copy_fault(thread: ThreadTile, copy: CopyPath, device: Device) -> str | None:
    if copy == "async":
        return limits.cp_async_fault(device)
    if thread.sums >= PLAIN_SUMS or not limits.has_cp_async(device):
        return None
    return f"{thread.tm}x{thread.tn} sums leave no time to go through registers"


def _stages_fault(tile: SimtTile, bk: int, copy: CopyPath, stages: int) -> str | None:
    tried = STAGES[bk] if copy == "async" else (2,)
    if stages not in tried:
        return f"stages={stages} of bk={bk} steps, {copy}; {tried} are tried"
    ahead = (stages - 1) * bk
    if ahead > AHEAD and tile.bm + tile.bn > NARROW:
        return f"copies of {tile.bm}+{tile.bn} floats run {ahead} steps ahead; {AHEAD} are enough"
    return None


def _fragments_fault(thread: ThreadTile, slices: int, bk: int, fragments: int) -> str | None:
    steps = bk // slices
    if steps % fragments:
        return f"{steps} steps are not a multiple of {fragments} fragments"
    if fragments == 1 and thread.sums != PLAIN_SUMS:
        sums = thread.sums
        return f"{sums} sums: fewer have registers for two fragments, more too few warps for one"
    return None


def _fence_fault(thread: ThreadTile, fragments: int, fence: int) -> str | None:
    if fence == 0 or (fragments == 2 and thread.sums >= PLAIN_SUMS):
        return None
    return f"{thread.tm}x{thread.tn} sums with {fragments} fragments gain nothing from it"


def _order_fault(thread: ThreadTile, order: Order) -> str | None:
    tm, tn = thread.tm, thread.tn
    if thread.sums < PLAIN_SUMS:
        return None if order == "rows" else f"{tm}x{tn} sums are too few for it to matter"
    along = {"rows": tm > tn, "row-pairs": tm > tn, "columns": tn >= tm, "column-pairs": tn >= tm}
    return None if along.get(order, True) else f"{order} of {tm}x{tn} sums go along the longer side"


def _residency_fault(warps: SimtWarps, min_blocks: int, device: Device) -> str | None:
    return limits.residency_fault(min_blocks * warps.threads, device)


def _bounds_fault(loop: MainLoop, min_blocks: int, device: Device) -> str | None:
    if min_blocks == 1:
        return None
    if loop.sums < PLAIN_SUMS or loop.slices > 1:
        return f"{loop.tm}x{loop.tn} sums in {loop.slices} slices need no bound"
    threads, needed = loop.threads, loop.register_estimate
    budget = limits.register_budget(min_blocks, threads, device)
    if min(2 * needed, limits.LARGEST_THREAD_REGISTERS) > budget:
        return None
    return (
        f"{min_blocks} blocks of {threads} threads leave {budget} registers; "
        f"about {needed} are taken"
    )


def _registers_fault(loop: MainLoop, min_blocks: int, reduction: str, device: Device) -> str | None:
    threads, needed = loop.threads, loop.register_estimate
    if device.compute_capability != MEASURED:
        needed += SUMMING_REGISTERS.get(reduction, 0)
    budget = limits.register_budget(min_blocks, threads, device)
    if needed <= budget:
        return None
    return f"about {needed} a thread; {min_blocks} blocks of {threads} threads leave {budget}"


def _resident_workers_fault(
    loop: MainLoop, min_blocks: int, workers: int, device: Device
) -> str | None:
    """All workers must be resident at once: late ones would make a wave of their own."""
    if workers == 0:
        return None
    blocks = workers // device.sms
    if blocks < min_blocks:
        return f"{blocks} workers an SM; {min_blocks} blocks are resident"
    registers = blocks * loop.threads * loop.register_estimate
    if registers <= device.registers_per_sm:
        return None
    return f"{blocks} workers an SM need about {registers} registers of {device.registers_per_sm}"


def _shared_fault(buffers: SimtBuffers, min_blocks: int, device: Device) -> str | None:
    return limits.shared_fault(buffers.shared_bytes(), min_blocks, device)


RULES = (
    Rule("larger than the matrix", _rows_fault),
    Rule("larger than the matrix", _columns_fault),
    Rule("divisibility", _warp_rows_fault),
    Rule("divisibility", _warp_columns_fault),
    Rule("thread tile", _thread_tile_fault),
    Rule("warp shape", _lanes_fault),
    Rule("threads", _threads_fault),
    Rule("slices", _slices_fault),
    Rule("steps", _steps_fault),
    Rule("grid", _grid_fault),
    *SHARING_RULES,
    Rule("copy", _copy_fault),
    Rule("stages", _stages_fault),
    Rule("fragments", _fragments_fault),
    Rule("fence", _fence_fault),
    Rule("order", _order_fault),
    Rule("residency", _residency_fault),
    Rule("launch bounds", _bounds_fault),
    Rule("register estimate", _registers_fault),
    Rule("workers", _resident_workers_fault),
    Rule("shared memory", _shared_fault),
    *ERROR_RULES,
)
"""The rules of `simt`, cheapest first."""
