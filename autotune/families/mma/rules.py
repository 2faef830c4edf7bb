"""Rules of `mma` on tiles, registers, buffers and sharing K, and how it adds up products."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import gcd

from autotune.device import Device
from autotune.families.family import Rule
from autotune.families.mma.parameters import (
    COPY_BYTES,
    SPLITS,
    CopyPath,
    MmaBuffer,
    MmaCopies,
    MmaRegisters,
    MmaSharedMemory,
    MmaTile,
    MmaWarps,
    MmaWarpSteps,
    MmaWarpTile,
    Store,
    column_count,
    converts,
    partial_bytes,
)
from autotune.families.plan import VECTOR_BYTES, Alignment
from autotune.families.shared import limits
from autotune.families.shared.limits import register_budget, workspace_fault
from autotune.families.shared.packing import Pack, Packing, must_transpose, packed_bytes
from autotune.families.shared.tiling import (
    fill,
    last_block_fault,
    longest_split,
    order_fault,
    split_waves_fault,
)
from autotune.families.summation import (
    ACCURACY,
    EXACT,
    Summation,
    SummationOrder,
    chain,
    from_zero,
    in_order,
    possible_limit,
    sliced,
    split_by_longest,
    split_length,
)
from autotune.problem import GATE_SPAN, SCALE_BLOCK, Problem
from autotune.problem.integers import ceil_div

DEPTHS = 16, 32, 64, 128
"""Steps of K of a buffer."""
COLUMN_STAGES = 2, 3, 4, 6
"""Buffers of A of a block that computes a column of tiles."""
ROWS, WIDTH = 128, 64
"""The most rows, and the least columns, of a tile in a column of them."""
EVEN = 0.75
"""The least fill of the SMs by columns of tiles, which all take as long."""
MANY_COLUMNS = 12
"""Columns of tiles an SM from which the last of them matter little."""


def column_fault(
    tile: MmaTile, wn: int, slices: int, copies: MmaCopies, problem: Problem
) -> str | None:
    """Why a block does not compute a column of such tiles; None if it may."""
    if copies.copy != "ahead":
        return None
    if tile.swap or slices > 1:
        return "a column of tiles is one of C, in one slice"
    if copies.pack != "none":
        return "a copy of an operand would take as long as the product"
    whole = 1 << (problem.n - 1).bit_length()
    if tile.bm > ROWS or tile.bn < min(WIDTH, whole) or wn < min(32, tile.bn):
        return f"{tile.bm}x{tile.bn} in parts of {wn} columns stores parts of short rows"
    return None


def stages_fault(copies: MmaCopies, stages: int, problem: Problem) -> str | None:
    """Why A does not come in so many buffers; None if it may."""
    if copies.copy != "ahead":
        return None
    width = copies.width(problem, "a", Alignment.dense(problem).a)
    through = copies.goes_through_registers(width, problem.element_bytes)
    tried = (2,) if through else COLUMN_STAGES
    return None if stages in tried else f"stages={stages} of a column; {tried} are tried"


def depth_fault(buffer: MmaBuffer, copy: CopyPath, problem: Problem) -> str | None:
    """Why a buffer of a column has another depth; None if K needs this one."""
    if copy != "ahead" or buffer.bk == next(bk for bk in DEPTHS if bk >= problem.k):
        return None
    return f"bk={buffer.bk} is not the least that holds K={problem.k}"


def group_fault(tile: MmaTile, group: int, problem: Problem, device: Device) -> str | None:
    """Why a block does not compute `group` tiles; None if it may."""
    if group == 1:
        return "a column of one tile has no next one"
    if group > ceil_div(problem.m, tile.bm):
        return f"group={group} of {ceil_div(problem.m, tile.bm)} rows of tiles"
    blocks = column_count(tile, group, problem) * problem.batch
    if blocks > MANY_COLUMNS * device.sms or fill(blocks, device.sms) >= EVEN:
        return None
    return f"{blocks} columns of {group} tiles fill {device.sms} SMs unevenly"


SPLIT_BLOCKS_A_SM, WAVE_BLOCKS_A_SM = 2, 4
"""Blocks an SM that hide each other's latency whatever the waves they make, and the most blocks an
SM for which K is split only to fill the last wave."""
SPLIT_BYTES = 256
"""The least bytes of K of a split: its store and load cost as much."""
LONG_SPLIT = 2048
"""Steps of K from which two blocks are faster than one, if there are SMs for both."""
PACKED_ROWS = 512
"""The least rows that a packed operand serves, for its copy to be a tenth of the GEMM or less."""
GROUPS = 1, 4, 8
GROUPED_TILES = 2
"""Tiles an SM above which their order may decide what L2 still holds."""
WIDE_TILE = 64 * 64
SECTOR = 32


def _split_fault(buffer: MmaBuffer, split_k: int, problem: Problem) -> str | None:
    if split_k == 1 or _divides(buffer, split_k, problem):
        return None
    return f"{buffer.iterations(problem)} tiles of bk={buffer.bk} do not go into {split_k} splits"


def _split_gain_fault(tile: MmaTile, split_k: int, problem: Problem, device: Device) -> str | None:
    if split_k == 1:
        return None
    count, sms = tile.count(problem), device.sms
    if count * (split_k - 1) < SPLIT_BLOCKS_A_SM * sms:
        return None
    return split_waves_fault(count, split_k, sms, WAVE_BLOCKS_A_SM)


def _divides(buffer: MmaBuffer, splits: int, problem: Problem) -> bool:
    """Whether K has so many splits that are long enough, and none of them empty."""
    longest = longest_split(buffer.iterations(problem), splits)
    return longest * buffer.row_bytes >= SPLIT_BYTES


def _last_block_fault(tile: MmaTile, split_k: int) -> str | None:
    return None if split_k == 1 else last_block_fault(4 * split_k * tile.elements)


def _idle_fault(
    tile: MmaTile, buffer: MmaBuffer, split_k: int, problem: Problem, device: Device
) -> str | None:
    blocks = tile.count(problem) * split_k
    if 2 * blocks >= device.sms:
        return None
    if tile.elements > WIDE_TILE:
        return f"{blocks} blocks of {tile.bm}x{tile.bn} leave most of {device.sms} SMs idle"
    terms = problem.k // split_k
    more = (
        splits
        for splits in SPLITS
        if splits >= 2 * split_k
        and _divides(buffer, splits, problem)
        and last_block_fault(4 * splits * tile.elements) is None
    )
    if terms < LONG_SPLIT or not any(more):
        return None
    return f"{blocks} blocks with {terms} of K each leave most of {device.sms} SMs idle"


def _pack_fault(copy: CopyPath, pack: Pack, problem: Problem) -> str | None:
    """Operands are packed if they have to be transposed, or if that allows whole vectors and the
    copy takes little time."""
    if copy == "staged" and pack != "none":
        return "registers take vectors that end with their row, wherever it starts"
    dense, size = Alignment.dense(problem), problem.element_bytes
    needed = "".join(operand for operand in "ab" if must_transpose(problem, operand))
    gaining = "".join(
        operand
        for operand, width, served in (("a", dense.a, problem.n), ("b", dense.b, problem.m))
        if operand in needed or (served >= PACKED_ROWS and width * size < VECTOR_BYTES)
    )
    if pack in (needed or "none", gaining):
        return None
    if needed:
        return f"8-bit operands run along K, which takes a transposed copy of {needed}"
    return f"{gaining or 'no operand'} would gain from a copy"


def _workspace_fault(
    tile: MmaTile, split_k: int, packing: Packing, problem: Problem, device: Device
) -> str | None:
    needed = partial_bytes(tile, split_k, problem) + packed_bytes(packing, problem)
    return workspace_fault(needed, device)


def _group_fault(
    tile: MmaTile, copy: CopyPath, group: int, problem: Problem, device: Device
) -> str | None:
    form = tile.oriented(problem)
    if copy == "ahead":
        return group_fault(tile, group, problem, device)
    if group not in GROUPS:
        return f"group={group}; {GROUPS} are tried for tiles of blocks of their own"
    down, across = ceil_div(form.m, tile.bm), ceil_div(form.n, tile.bn)
    return order_fault(down, across, group, GROUPED_TILES, device)


def _store_fault(
    swap: int, warp: MmaWarpTile, copy: CopyPath, split_k: int, store: Store, problem: Problem
) -> str | None:
    if store == "direct":
        return None
    if problem.output_element.integer:
        return "int32 sums are stored as they are"
    vector = gcd(Alignment.dense(problem).c, problem.width) * problem.output_bytes
    if copy == "ahead" and vector == VECTOR_BYTES:
        return "threads hold whole vectors of a row as it is"
    if swap:
        return "the rows of C are the columns of a tile"
    if split_k > 1:
        return "blocks that add up splits wait for their loads"
    width = warp.wn // 2 if problem.gated else warp.wn
    neighbours, row = warp.neighbours(problem), min(SECTOR, width * problem.output_bytes)
    if neighbours * problem.output_bytes >= row:
        return f"threads hold {neighbours} neighbours of a row as it is"
    return None


SHARING_RULES = (
    Rule("split-K", _split_fault),
    Rule("split-K", _split_gain_fault, for_shape=True),
    Rule("split-K", _last_block_fault),
    Rule("idle SMs", _idle_fault, for_shape=True),
    Rule("pack", _pack_fault),
    Rule("workspace", _workspace_fault),
    Rule("group", _group_fault),
    Rule("store", _store_fault),
)
"""The rules on sharing, cheapest first."""


@dataclass(frozen=True)
class MmaSums:
    """The parameters that decide in which order products are added up."""

    slices: int
    bk: int
    split_k: int
    promote: int


def summation(p: MmaSums, problem: Problem) -> Summation:
    """Each slice adds up its share of each promoted run; slices and blocks are added up then."""
    length = split_length(problem.k, p.split_k, p.bk)
    run = min(length, p.promote * p.bk) if p.promote else length
    return Summation(in_order(length / run, p.slices, p.split_k), run / p.slices)


@dataclass(frozen=True)
class MmaOrder(MmaSums):
    """The parameters that decide the order of summation."""

    swap: int


def summation_order(p: MmaOrder, problem: Problem) -> SummationOrder:
    """Each slice is a chain, promoted or not; slices are added up, then splits."""
    if problem.precision.operand.integer:
        return EXACT
    steps = split_by_longest(ceil_div(problem.k, p.bk), p.split_k)
    tree = [
        sliced(chain(count * p.bk, p.promote * p.bk), p.slices, p.bk // p.slices) for count in steps
    ]
    instruction = f"mma {problem.compute} swap={p.swap}"
    return SummationOrder(instruction, from_zero(tree) if p.split_k > 1 else tree[0])


def _error_fault(sums: MmaSums, problem: Problem, device: Device) -> str | None:
    return possible_limit(problem, device).fault(summation(sums, problem), problem)


ERROR_RULES = (Rule(ACCURACY, _error_fault, for_speed=True),)
"""A recorded kernel was verified, which overrules the prediction."""


INSTRUCTIONS_SINCE = {"f16": (7, 5), "f8": (8, 9), "f8e5": (8, 9)}
"""The first compute capability with the kernel's MMA instructions, by precision; 8.0 for others."""
SPILLS_SINCE, CONVERSION_OF_FEW = (10, 0), 16
"""The compute capability from which rows of A in fp16, where 8-bit floats are multiplied as such,
count as registers, as they make kernels spill (NVRTC 13; on 9.0 such kernels were measured); more
registers with splits of K, and where sums are not promoted in each iteration."""
WARPS = 4, 8
"""Warps a block: at least one for each scheduler; more than 8 leave an accumulator less than 64
registers."""
STEPS = 2, 4
"""MMA steps of a warp in a buffer: fewer wait at barriers, more fill shared memory."""
LARGEST_SUMS = 128
"""The most accumulators a thread."""
FULL_TILE = 128
MANY_TILES = 16
"""Tiles an SM above which larger ones fill it as well and read less."""
SLICED_TILES = 4
"""Tiles an SM above which its warps are busy without slices."""
STAGES = {64: (3, 4, 5, 6), 128: (2, 3, 4, 5), 256: (2, 3, 4)}
"""Numbers of buffers, by bytes of K in a buffer: with fewer, data comes too late; more only take
shared memory."""
AHEAD, NARROW = 384, 96
"""Bytes of K that copies run ahead at most, except for tiles whose rows and columns add up to 96 or
less: those need the depth to keep memory busy."""
PROMOTED = 128
"""Steps of K after which accumulators are promoted, if at all."""
LONG = 256
"""Products of a sum up to which truncation in the tensor cores does not matter: after 1024 the
relative error was six times that of sums in fp32 (H100)."""


def _architecture_fault(compute: str, device: Device) -> str | None:
    needed = INSTRUCTIONS_SINCE.get(compute, limits.ASYNC_CAPABILITY)
    if device.compute_capability >= needed:
        return None
    has, wanted = ("{}.{}".format(*pair) for pair in (device.compute_capability, needed))
    return f"{compute} needs compute capability {wanted}; {device.name} has {has}"


def _swap_fault(swap: int, problem: Problem) -> str | None:
    if not swap or problem.m <= 8 < problem.n:
        return None
    return f"{problem.m}x{problem.n} has no 8 rows that would be the narrow side of a product"


def _rows_fault(swap: int, bm: int, problem: Problem) -> str | None:
    size, name = (problem.n, "N") if swap else (problem.m, "M")
    if bm == 16 or bm < 2 * size:
        return None
    return f"bm={bm} is at least twice {name}={size}"


def _columns_fault(swap: int, bn: int, problem: Problem) -> str | None:
    size, name = (problem.m, "M") if swap else (problem.n, "N")
    if bn == 8:
        return None if size <= 8 else f"bn=8 is for {name} of 8 at most, not {size}"
    if (bn == 16 and size > 8) or bn < 2 * size:
        return None
    return f"bn={bn} is at least twice {name}={size}"


def _many_fault(tile: MmaTile, copy: CopyPath, problem: Problem, device: Device) -> str | None:
    form, count = tile.oriented(problem), tile.count(problem)
    if count <= MANY_TILES * device.sms or copy == "ahead":
        return None
    for name, side, size in (("bm", tile.bm, form.m), ("bn", tile.bn, form.n)):
        if side < min(FULL_TILE, size):
            return f"{count} tiles for {device.sms} SMs with {name}={side}; larger ones read less"
    return None


def _warp_rows_fault(bm: int, wm: int) -> str | None:
    return None if bm % wm == 0 else f"wm={wm} does not divide bm={bm}"


def _warp_columns_fault(bn: int, wn: int) -> str | None:
    return None if bn % wn == 0 else f"wn={wn} does not divide bn={bn}"


def _shape_fault(bm: int, bn: int, wm: int, wn: int, copy: CopyPath) -> str | None:
    if wm * wn // 32 > LARGEST_SUMS:
        return f"{wm}x{wn} has {wm * wn // 32} sums a thread; {LARGEST_SUMS} at most"
    long, short = max(wm, wn), min(wm, wn)
    whole = (wm == short and bm == wm) or (wn == short and bn == wn)
    if long <= (4 if whole or copy == "ahead" else 2) * short:
        return None
    return f"{wm}x{wn} loads {wm + wn} rows for {wm * wn} products; sides of 2 to 1 load less"


def _gates_fault(swap: int, wn: int, copy: CopyPath, problem: Problem) -> str | None:
    if not problem.gated:
        return None
    if copy == "ahead":
        return "a block that computes a column of tiles has no pairs of columns"
    if swap or wn >= 2 * GATE_SPAN:
        return None
    return f"wn={wn} has no pairs of {GATE_SPAN} columns"


def _warps_fault(warps: MmaWarps, device: Device) -> str | None:
    count, (least, most) = warps.warps, WARPS
    if least <= count <= min(most, device.threads_per_block // 32):
        return None
    return f"{count} a block; {least} to {most} are tried"


def _slices_fault(warps: MmaWarps, tile: MmaTile, problem: Problem, device: Device) -> str | None:
    count = tile.count(problem)
    if warps.slices == 1 or count <= SLICED_TILES * device.sms:
        return None
    least = WARPS[0]
    if warps.warps == least and warps.warps_a_slice < least:
        return None  # slices alone give the smallest tiles enough warps
    return f"{count} tiles keep {device.sms} SMs busy with one slice each"


def _steps_fault(part: MmaWarpSteps, copy: CopyPath) -> str | None:
    if copy == "ahead":
        return None
    if part.row_bytes not in STAGES:
        return f"bk={part.bk} has {part.row_bytes} bytes; {', '.join(map(str, STAGES))} are tried"
    if not STEPS[0] <= part.steps <= STEPS[1]:
        return f"bk={part.bk} has {part.steps} for each of {part.slices} slices; 2 to 4 are tried"
    return None


def _depth_fault(part: MmaWarpSteps, problem: Problem) -> str | None:
    if part.bk < 2 * problem.k or part.steps <= STEPS[0]:
        return None
    return f"bk={part.bk} is at least twice K={problem.k}"


def _grid_fault(tile: MmaTile, problem: Problem) -> str | None:
    return limits.grid_fault(tile.tiles(problem))


def _copy_fault(copies: MmaCopies, stages: int, problem: Problem) -> str | None:
    """Registers hold one tile: more buffers than two stay empty."""
    dense, size = Alignment.dense(problem), problem.element_bytes
    narrow = [
        copies.width(problem, operand, alignment) * size < COPY_BYTES
        for operand, alignment in (("a", dense.a), ("b", dense.b))
        if not copies.packs(operand)
    ]
    copied = copies.is_async and not (len(narrow) == 2 and all(narrow))
    if copied or stages == 2:
        return None
    return f"stages={stages}; what comes through registers fills one buffer ahead"


def _stages_fault(bm: int, bn: int, buffer: MmaBuffer, copy: CopyPath, stages: int) -> str | None:
    row = buffer.row_bytes
    if copy == "ahead":
        return None
    if stages == 2 and row == min(STAGES):
        return None  # for what goes through registers, which the rule on copies is for
    if stages not in STAGES[row]:
        return f"stages={stages} of {row} bytes of K; {STAGES[row]} are tried"
    ahead = (stages - 1) * row
    if ahead > AHEAD and bm + bn > NARROW:
        return f"copies of {bm}+{bn} rows run {ahead} bytes ahead; {AHEAD} are enough"
    return None


def _iterations_fault(
    bk: int, copy: CopyPath, stages: int, split_k: int, problem: Problem
) -> str | None:
    if copy == "ahead":
        return None
    iterations = ceil_div(ceil_div(problem.k, bk), split_k)
    if stages <= max(3, iterations):
        return None
    return f"stages={stages} for {iterations} k-iterations"


def _promote_fault(part: MmaWarpSteps, split_k: int, promote: int, problem: Problem) -> str | None:
    if part.precision.eight_bit:
        return _block_promotion_fault(part, split_k, promote, problem)
    terms = problem.k // (split_k * part.slices)
    if not part.is_split or terms <= LONG:
        return f"sums of {terms} products in {part.compute} need none" if promote else None
    after = promote * part.bk
    return None if after == PROMOTED else f"after {after} steps of K; {PROMOTED} are tried"


def _block_promotion_fault(
    part: MmaWarpSteps, split_k: int, promote: int, problem: Problem
) -> str | None:
    """Exact sums of fp8 have 128 terms at most; those with scales of blocks are of one block."""
    depth = part.bk // part.slices
    terms = ceil_div(part.iterations(problem), split_k) * depth
    wanted = 0
    if problem.scale == "block":
        wanted = 1
    elif problem.accumulate == "exact" and not part.precision.operand.integer:
        wanted = SCALE_BLOCK // depth if terms > SCALE_BLOCK else 0
    if promote == wanted:
        return None
    sums = f"{problem.accumulate} sums of {part.compute}, scale={problem.scale}"
    return f"{sums}, of {terms} terms take promote={wanted}"


def _residency_fault(warps: MmaWarps, min_blocks: int, device: Device) -> str | None:
    return limits.residency_fault(min_blocks * warps.threads, device)


def _extra_registers(kernel: MmaRegisters, problem: Problem) -> int:
    """Registers a thread that depend on the problem."""
    return kernel.staging_registers(problem) + kernel.scale_registers(problem)


def _registers_fault(
    kernel: MmaRegisters, split_k: int, problem: Problem, device: Device
) -> str | None:
    guess = kernel.registers + _extra_registers(kernel, problem)
    if device.compute_capability >= SPILLS_SINCE and converts(problem, device):
        rare = split_k > 1 or kernel.promote > 1
        guess += kernel.wm + (CONVERSION_OF_FEW if rare else 0)
    budget = register_budget(kernel.min_blocks, kernel.threads, device)
    if guess <= budget:
        return None
    blocks, threads = kernel.min_blocks, kernel.threads
    return f"about {guess} a thread; {blocks} blocks of {threads} threads leave {budget}"


def _bounds_fault(kernel: MmaRegisters, problem: Problem, device: Device) -> str | None:
    """A second block is worth a set of fragments only where it would not fit with it."""
    if kernel.min_blocks == 1:
        return None
    single = replace(kernel, min_blocks=1)
    guess = single.registers + _extra_registers(single, problem)
    budget = register_budget(kernel.min_blocks, kernel.threads, device)
    if guess > budget:
        return None
    return f"{kernel.min_blocks} blocks leave {budget} registers; about {guess} are taken anyway"


def _shared_fault(memory: MmaSharedMemory, min_blocks: int, device: Device) -> str | None:
    return limits.shared_fault(memory.shared_bytes, min_blocks, device)


RULES = (
    Rule("architecture", _architecture_fault),
    Rule("swap", _swap_fault),
    Rule("larger than the matrix", _rows_fault),
    Rule("larger than the matrix", _columns_fault),
    Rule("small tiles", _many_fault, for_shape=True),
    Rule("divisibility", _warp_rows_fault),
    Rule("divisibility", _warp_columns_fault),
    Rule("warp shape", _shape_fault),
    Rule("gates", _gates_fault),
    Rule("warps", _warps_fault),
    Rule("slices", _slices_fault, for_shape=True),
    Rule("column", column_fault),
    Rule("column", depth_fault),
    Rule("steps", _steps_fault),
    Rule("steps", _depth_fault),
    Rule("grid", _grid_fault),
    *SHARING_RULES,
    Rule("copy", _copy_fault),
    Rule("stages", stages_fault),
    Rule("stages", _stages_fault),
    Rule("stages", _iterations_fault),
    Rule("promotion", _promote_fault),
    Rule("residency", _residency_fault),
    Rule("register estimate", _registers_fault),
    Rule("launch bounds", _bounds_fault),
    Rule("shared memory", _shared_fault),
    *ERROR_RULES,
)
"""The reasons to reject a combination, cheapest first."""
