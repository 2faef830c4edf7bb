"""Rules of `mma` on tiles, the main loop, registers and buffers, and the list of all its rules."""

from __future__ import annotations

from dataclasses import replace

from autotune.device import Device
from autotune.families.mma import columns, k_sharing, summation
from autotune.families.mma.parameters import (
    COPY_BYTES,
    CopyPath,
    MmaBuffer,
    MmaCopies,
    MmaRegisters,
    MmaSharedMemory,
    MmaWarpSteps,
)
from autotune.families.mma.tiles import MmaTile, MmaWarps, converts
from autotune.families.plan import Alignment
from autotune.families.rules import Rule
from autotune.families.shared import launch_limits
from autotune.families.shared.launch_limits import register_budget
from autotune.problem import GATE_SPAN, SCALE_BLOCK, Problem
from autotune.problem.integers import ceil_div

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
    needed = INSTRUCTIONS_SINCE.get(compute, launch_limits.ASYNC_CAPABILITY)
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
    return launch_limits.grid_fault(tile.tiles(problem))


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
    return launch_limits.residency_fault(min_blocks * warps.threads, device)


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
    return launch_limits.shared_fault(memory.shared_bytes, min_blocks, device)


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
    Rule("column", columns.column_fault),
    Rule("column", columns.depth_fault),
    Rule("steps", _steps_fault),
    Rule("steps", _depth_fault),
    Rule("grid", _grid_fault),
    *k_sharing.RULES,
    Rule("copy", _copy_fault),
    Rule("stages", columns.stages_fault),
    Rule("stages", _stages_fault),
    Rule("stages", _iterations_fault),
    Rule("promotion", _promote_fault),
    Rule("residency", _residency_fault),
    Rule("register estimate", _registers_fault),
    Rule("launch bounds", _bounds_fault),
    Rule("shared memory", _shared_fault),
    *summation.RULES,
)
"""The reasons to reject a combination, cheapest first."""
