"""Rules of `mma` on tiles, registers, buffers and sharing K, and how it adds up products."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import gcd

from autotune.device import Device
from autotune.families.family import ParameterFunction, Rule, accuracy_rule
from autotune.families.mma.parameters import COPY_BYTES, SPLITS, MmaParams, converts
from autotune.families.plan import VECTOR_BYTES, Alignment
from autotune.families.shared import limits
from autotune.families.shared.limits import register_budget, workspace_fault
from autotune.families.shared.packing import must_transpose, packed_bytes
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
from autotune.families.summation import (
    EXACT,
    Summation,
    SummationOrder,
    chain,
    from_zero,
    in_order,
    sliced,
    split_by_longest,
    split_length,
)
from autotune.problem import GATE_SPAN, SCALE_BLOCK, Problem
from autotune.problem.integers import ceil_div

TILE = ("swap", "bm", "bn")
BLOCK = ("wm", "wn", "bm", "bn", "slices")
REGISTERS = ("compute", "bk", *TILE, "pack", "copy", "wm", "wn", "slices", "promote", "min_blocks")
"""Parameters that several rules need together."""

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


def _column_fault(p: MmaParams, problem: Problem, _device: Device) -> str | None:
    if p.copy != "ahead":
        return None
    if p.swap or p.slices > 1:
        return "a column of tiles is one of C, in one slice"
    if p.pack != "none":
        return "a copy of an operand would take as long as the product"
    whole = 1 << (problem.n - 1).bit_length()
    if p.bm > ROWS or p.bn < min(WIDTH, whole) or p.wn < min(32, p.bn):
        return f"{p.bm}x{p.bn} in parts of {p.wn} columns stores parts of short rows"
    return None


def _column_stages_fault(p: MmaParams, problem: Problem, _device: Device) -> str | None:
    if p.copy != "ahead":
        return None
    width = p.width(problem, "a", Alignment.dense(problem).a)
    through = p.goes_through_registers(width, problem.element_bytes)
    tried = (2,) if through else COLUMN_STAGES
    return None if p.stages in tried else f"stages={p.stages} of a column; {tried} are tried"


def _column_depth_fault(p: MmaParams, problem: Problem, _device: Device) -> str | None:
    if p.copy != "ahead" or p.bk == next(bk for bk in DEPTHS if bk >= problem.k):
        return None
    return f"bk={p.bk} is not the least that holds K={problem.k}"


def _column_group_fault(p: MmaParams, problem: Problem, device: Device) -> str | None:
    if p.group == 1:
        return "a column of one tile has no next tile"
    if p.group > ceil_div(problem.m, p.bm):
        return f"group={p.group} of {ceil_div(problem.m, p.bm)} rows of tiles"
    blocks = p.columns(problem) * problem.batch
    if blocks > MANY_COLUMNS * device.sms or fill(blocks, device.sms) >= EVEN:
        return None
    return f"{blocks} columns of {p.group} tiles fill {device.sms} SMs unevenly"


WAVE_BLOCKS_A_SM = 4
"""The most blocks an SM for which K is split only to fill the last wave."""
_split_gain_fault = partial(split_gain_fault, waves=WAVE_BLOCKS_A_SM)
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


def _split_fault(p: MmaParams, problem: Problem, _device: Device) -> str | None:
    if p.split_k == 1 or _divides(p, p.split_k, problem):
        return None
    return f"{p.iterations(problem)} tiles of bk={p.bk} do not go into {p.split_k} splits"


def _divides(p: MmaParams, splits: int, problem: Problem) -> bool:
    """Whether K has this number of splits, each long enough and none empty."""
    longest = longest_split(p.iterations(problem), splits)
    return longest * p.row_bytes >= SPLIT_BYTES


def _last_block_fault(p: MmaParams, _problem: Problem, _device: Device) -> str | None:
    return None if p.split_k == 1 else last_block_fault(4 * p.split_k * p.elements)


def _idle_fault(p: MmaParams, problem: Problem, device: Device) -> str | None:
    blocks = p.count(problem) * p.split_k
    if 2 * blocks >= device.sms:
        return None
    if p.elements > WIDE_TILE:
        return f"{blocks} blocks of {p.bm}x{p.bn} leave most of {device.sms} SMs idle"
    terms = problem.k // p.split_k
    more = (
        splits
        for splits in SPLITS
        if splits >= 2 * p.split_k
        and _divides(p, splits, problem)
        and last_block_fault(4 * splits * p.elements) is None
    )
    if terms < LONG_SPLIT or not any(more):
        return None
    return f"{blocks} blocks with {terms} of K each leave most of {device.sms} SMs idle"


def _pack_fault(p: MmaParams, problem: Problem, _device: Device) -> str | None:
    """Operands are packed if they have to be transposed, or if that allows whole vectors and the
    copy takes little time."""
    if p.copy == "staged" and p.pack != "none":
        return "registers take vectors that end with their row, wherever it starts"
    dense, size = Alignment.dense(problem), problem.element_bytes
    needed = "".join(operand for operand in "ab" if must_transpose(problem, operand))
    gaining = "".join(
        operand
        for operand, width, served in (("a", dense.a, problem.n), ("b", dense.b, problem.m))
        if operand in needed or (served >= PACKED_ROWS and width * size < VECTOR_BYTES)
    )
    if p.pack in (needed or "none", gaining):
        return None
    if needed:
        return f"8-bit operands run along K, which takes a transposed copy of {needed}"
    return f"{gaining or 'no operand'} would gain from a copy"


def _workspace_fault(p: MmaParams, problem: Problem, device: Device) -> str | None:
    return workspace_fault(p.partial_bytes(problem) + packed_bytes(p.pack, problem), device)


def _group_fault(p: MmaParams, problem: Problem, device: Device) -> str | None:
    form = p.oriented(problem)
    if p.copy == "ahead":
        return _column_group_fault(p, problem, device)
    if p.group not in GROUPS:
        return f"group={p.group}; {GROUPS} are tried for tiles of blocks of their own"
    down, across = ceil_div(form.m, p.bm), ceil_div(form.n, p.bn)
    return order_fault(down, across, p.group, GROUPED_TILES, device)


def _store_fault(p: MmaParams, problem: Problem, _device: Device) -> str | None:
    if p.store == "direct":
        return None
    if problem.output_element.integer:
        return "int32 sums are stored as they are"
    vector = gcd(Alignment.dense(problem).c, problem.width) * problem.output_bytes
    if p.copy == "ahead" and vector == VECTOR_BYTES:
        return "threads hold whole vectors of a row as it is"
    if p.swap:
        return "the rows of C are the columns of a tile"
    if p.split_k > 1:
        return "blocks that add up splits wait for their loads"
    width = p.wn // 2 if problem.gated else p.wn
    neighbours, row = p.neighbours(problem), min(SECTOR, width * problem.output_bytes)
    if neighbours * problem.output_bytes >= row:
        return f"threads hold {neighbours} neighbours of a row as it is"
    return None


SHARING_RULES = (
    Rule("split-K", _split_fault, ("compute", "bk", "split_k")),
    Rule("split-K", _split_gain_fault, (*TILE, "split_k"), for_shape=True),
    Rule("split-K", _last_block_fault, (*TILE, "split_k")),
    Rule("idle SMs", _idle_fault, (*TILE, "compute", "bk", "split_k"), for_shape=True),
    Rule("pack", _pack_fault, ("copy", "pack")),
    Rule("workspace", _workspace_fault, (*TILE, "split_k", "pack")),
    Rule("group", _group_fault, (*TILE, "copy", "group")),
    Rule("store", _store_fault, ("swap", "wm", "wn", "copy", "split_k", "store")),
)
"""The rules on sharing, cheapest first."""


def summation(p: MmaParams, problem: Problem) -> Summation:
    """Each slice adds up its share of each promoted run; slices and blocks are added up then."""
    length = split_length(problem.k, p.split_k, p.bk)
    run = min(length, p.promote * p.bk) if p.promote else length
    return Summation(in_order(length / run, p.slices, p.split_k), run / p.slices)


def summation_order(p: MmaParams, problem: Problem) -> SummationOrder:
    """Each slice is a chain, promoted or not; slices are added up, then splits."""
    if problem.precision.operand.integer:
        return EXACT
    steps = split_by_longest(ceil_div(problem.k, p.bk), p.split_k)
    tree = [
        sliced(chain(count * p.bk, p.promote * p.bk), p.slices, p.bk // p.slices) for count in steps
    ]
    instruction = f"mma {problem.compute} swap={p.swap}"
    return SummationOrder(instruction, from_zero(tree) if p.split_k > 1 else tree[0])


SUMMATION = ParameterFunction(summation, ("slices", "bk", "split_k", "promote"))
SUMMATION_ORDER = ParameterFunction(summation_order, ("slices", "bk", "split_k", "promote", "swap"))

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


def _architecture_fault(p: MmaParams, _problem: Problem, device: Device) -> str | None:
    needed = INSTRUCTIONS_SINCE.get(p.compute, limits.ASYNC_CAPABILITY)
    return limits.capability_fault(p.compute, needed, device)


def _swap_fault(p: MmaParams, problem: Problem, _device: Device) -> str | None:
    if not p.swap or problem.m <= 8 < problem.n:
        return None
    return f"{problem.m}x{problem.n} has no 8 rows that would be the narrow side of a product"


def _rows_fault(p: MmaParams, problem: Problem, _device: Device) -> str | None:
    size, name = (problem.n, "N") if p.swap else (problem.m, "M")
    if p.bm == 16 or p.bm < 2 * size:
        return None
    return f"bm={p.bm} is at least twice {name}={size}"


def _columns_fault(p: MmaParams, problem: Problem, _device: Device) -> str | None:
    size, name = (problem.m, "M") if p.swap else (problem.n, "N")
    if p.bn == 8:
        return None if size <= 8 else f"bn=8 is for {name} of 8 at most, not {size}"
    if (p.bn == 16 and size > 8) or p.bn < 2 * size:
        return None
    return f"bn={p.bn} is at least twice {name}={size}"


def _many_fault(p: MmaParams, problem: Problem, device: Device) -> str | None:
    form, count = p.oriented(problem), p.count(problem)
    if count <= MANY_TILES * device.sms or p.copy == "ahead":
        return None
    for name, side, size in (("bm", p.bm, form.m), ("bn", p.bn, form.n)):
        if side < min(FULL_TILE, size):
            return f"{count} tiles for {device.sms} SMs with {name}={side}; larger tiles read less"
    return None


def _shape_fault(p: MmaParams, _problem: Problem, _device: Device) -> str | None:
    if p.wm * p.wn // 32 > LARGEST_SUMS:
        return f"{p.wm}x{p.wn} has {p.wm * p.wn // 32} sums a thread; {LARGEST_SUMS} at most"
    long, short = max(p.wm, p.wn), min(p.wm, p.wn)
    whole = (p.wm == short and p.bm == p.wm) or (p.wn == short and p.bn == p.wn)
    if long <= (4 if whole or p.copy == "ahead" else 2) * short:
        return None
    loaded = f"{p.wm + p.wn} rows for {p.wm * p.wn} products"
    return f"{p.wm}x{p.wn} loads {loaded}; sides of 2 to 1 load less"


def _gates_fault(p: MmaParams, problem: Problem, _device: Device) -> str | None:
    if not problem.gated:
        return None
    if p.copy == "ahead":
        return "a block that computes a column of tiles has no pairs of columns"
    if p.swap or p.wn >= 2 * GATE_SPAN:
        return None
    return f"wn={p.wn} has no pairs of {GATE_SPAN} columns"


def _warps_fault(p: MmaParams, _problem: Problem, device: Device) -> str | None:
    count, (least, most) = p.warps, WARPS
    if least <= count <= min(most, device.threads_per_block // 32):
        return None
    return f"{count} a block; {least} to {most} are tried"


def _slices_fault(p: MmaParams, problem: Problem, device: Device) -> str | None:
    count = p.count(problem)
    if p.slices == 1 or count <= SLICED_TILES * device.sms:
        return None
    least = WARPS[0]
    if p.warps == least and p.warps_a_slice < least:
        return None  # slices alone give the smallest tiles enough warps
    return f"{count} tiles keep {device.sms} SMs busy with one slice each"


def _steps_fault(p: MmaParams, _problem: Problem, _device: Device) -> str | None:
    if p.copy == "ahead":
        return None
    if p.row_bytes not in STAGES:
        return f"bk={p.bk} has {p.row_bytes} bytes; {', '.join(map(str, STAGES))} are tried"
    if not STEPS[0] <= p.steps <= STEPS[1]:
        return f"bk={p.bk} has {p.steps} for each of {p.slices} slices; 2 to 4 are tried"
    return None


def _depth_fault(p: MmaParams, problem: Problem, _device: Device) -> str | None:
    if p.bk < 2 * problem.k or p.steps <= STEPS[0]:
        return None
    return f"bk={p.bk} is at least twice K={problem.k}"


def _copy_fault(p: MmaParams, problem: Problem, _device: Device) -> str | None:
    """Registers hold one tile: more buffers than two stay empty."""
    dense, size = Alignment.dense(problem), problem.element_bytes
    narrow = [
        p.width(problem, operand, alignment) * size < COPY_BYTES
        for operand, alignment in (("a", dense.a), ("b", dense.b))
        if not p.packs(operand)
    ]
    copied = p.is_async and not (len(narrow) == 2 and all(narrow))
    if copied or p.stages == 2:
        return None
    return f"stages={p.stages}; operands that come through registers fill one buffer ahead"


def _stages_fault(p: MmaParams, _problem: Problem, _device: Device) -> str | None:
    row = p.row_bytes
    if p.copy == "ahead":
        return None
    if p.stages == 2 and row == min(STAGES):
        return None  # for what goes through registers, which the rule on copies is for
    if p.stages not in STAGES[row]:
        return f"stages={p.stages} of {row} bytes of K; {STAGES[row]} are tried"
    ahead = (p.stages - 1) * row
    if ahead > AHEAD and p.bm + p.bn > NARROW:
        return f"copies of {p.bm}+{p.bn} rows run {ahead} bytes ahead; {AHEAD} are enough"
    return None


def _iterations_fault(p: MmaParams, problem: Problem, _device: Device) -> str | None:
    if p.copy == "ahead":
        return None
    iterations = ceil_div(ceil_div(problem.k, p.bk), p.split_k)
    if p.stages <= max(3, iterations):
        return None
    return f"stages={p.stages} for {iterations} k-iterations"


def _promote_fault(p: MmaParams, problem: Problem, _device: Device) -> str | None:
    if p.precision.eight_bit:
        return _block_promotion_fault(p, problem)
    terms = problem.k // (p.split_k * p.slices)
    if not p.is_split or terms <= LONG:
        return f"sums of {terms} products in {p.compute} need none" if p.promote else None
    after = p.promote * p.bk
    return None if after == PROMOTED else f"after {after} steps of K; {PROMOTED} are tried"


def _block_promotion_fault(p: MmaParams, problem: Problem) -> str | None:
    """Exact sums of fp8 have 128 terms at most; those with scales of blocks are of one block."""
    depth = p.bk // p.slices
    terms = ceil_div(p.iterations(problem), p.split_k) * depth
    wanted = 0
    if problem.scale == "block":
        wanted = 1
    elif problem.accumulate == "exact" and not p.precision.operand.integer:
        wanted = SCALE_BLOCK // depth if terms > SCALE_BLOCK else 0
    if p.promote == wanted:
        return None
    sums = f"{problem.accumulate} sums of {p.compute}, scale={problem.scale}"
    return f"{sums}, of {terms} terms take promote={wanted}"


def _registers_fault(p: MmaParams, problem: Problem, device: Device) -> str | None:
    guess = p.registers + p.extra_registers(problem)
    if device.compute_capability >= SPILLS_SINCE and converts(problem, device):
        rare = p.split_k > 1 or p.promote > 1
        guess += p.wm + (CONVERSION_OF_FEW if rare else 0)
    return limits.registers_fault(guess, p.min_blocks, p.threads, device)


def _bounds_fault(p: MmaParams, problem: Problem, device: Device) -> str | None:
    """A second block is worth a set of fragments only where it would not fit with it."""
    if p.min_blocks == 1:
        return None
    single = replace(p, min_blocks=1)
    guess = single.registers + single.extra_registers(problem)
    budget = register_budget(p.min_blocks, p.threads, device)
    if guess > budget:
        return None
    return f"{p.min_blocks} blocks leave {budget} registers; about {guess} are taken anyway"


RULES = (
    Rule("architecture", _architecture_fault, ("compute",)),
    Rule("swap", _swap_fault, ("swap",)),
    Rule("larger than the matrix", _rows_fault, ("swap", "bm")),
    Rule("larger than the matrix", _columns_fault, ("swap", "bn")),
    Rule("small tiles", _many_fault, (*TILE, "copy"), for_shape=True),
    Rule("divisibility", warp_rows_fault, ("bm", "wm")),
    Rule("divisibility", warp_columns_fault, ("bn", "wn")),
    Rule("warp shape", _shape_fault, ("bm", "bn", "wm", "wn", "copy")),
    Rule("gates", _gates_fault, ("swap", "wn", "copy")),
    Rule("warps", _warps_fault, BLOCK),
    Rule("slices", _slices_fault, (*BLOCK, "swap"), for_shape=True),
    Rule("column", _column_fault, (*TILE, "wn", "slices", "pack", "copy")),
    Rule("column", _column_depth_fault, ("compute", "bk", "copy")),
    Rule("steps", _steps_fault, ("compute", "bk", "slices", "copy")),
    Rule("steps", _depth_fault, ("compute", "bk", "slices")),
    Rule("grid", tiles_fault, TILE),
    *SHARING_RULES,
    Rule("copy", _copy_fault, ("pack", "copy", "stages")),
    Rule("stages", _column_stages_fault, ("pack", "copy", "stages")),
    Rule("stages", _stages_fault, ("bm", "bn", "compute", "bk", "copy", "stages")),
    Rule("stages", _iterations_fault, ("bk", "copy", "stages", "split_k")),
    Rule("promotion", _promote_fault, ("compute", "bk", "slices", "split_k", "promote")),
    Rule("residency", residency_fault, (*BLOCK, "min_blocks")),
    Rule("register estimate", _registers_fault, (*REGISTERS, "split_k")),
    Rule("launch bounds", _bounds_fault, REGISTERS),
    Rule(
        "shared memory",
        lambda p, _, device: limits.shared_fault(p.shared_bytes, p.min_blocks, device),
        ("compute", "bk", *BLOCK, "copy", "stages", "store", "min_blocks"),
    ),
    accuracy_rule(SUMMATION),
)
"""The reasons to reject a combination, cheapest first."""
