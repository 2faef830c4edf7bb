"""Rules of `gemv`: which of its parameters go together, and how it adds up products."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.device import Device
from autotune.families.family import Rule
from autotune.families.gemv.kernel import (
    ROWS,
    VECTOR,
    Block,
    GemvBuffers,
    GemvParams,
    SplitK,
    Strip,
    oriented,
)
from autotune.families.shared import limits
from autotune.families.shared.arguments import along_k
from autotune.families.shared.tiling import fill
from autotune.families.summation import ACCURACY, Summation, in_order, possible_limit, split_length
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

RADIX = 8
"""Sums of threads that one thread adds up at a time (gemv.cu)."""


@dataclass(frozen=True)
class GemvSums(SplitK):
    """The parameters that decide in which order products are added up."""

    ways: int


def summation(p: GemvSums, problem: Problem) -> Summation:
    """Each thread sums up its share of the block's K; threads and blocks are added up then."""
    levels, ways = [], p.ways
    while ways > 1:
        levels.append(min(ways, RADIX))
        ways //= RADIX
    length = split_length(problem.k, p.split_k, VECTOR) / p.ways
    return Summation(in_order(length, *levels, p.split_k))


def _error_fault(sums: GemvSums, problem: Problem, device: Device) -> str | None:
    return possible_limit(problem, device).fault(summation(sums, problem), problem)


ERROR_RULES = (Rule(ACCURACY, _error_fault, for_speed=True),)
"""A recorded kernel was verified, which overrules the prediction."""


THREADS = 64, 512
BATCH_FLOATS = 16, 64
"""Floats of the larger operand that a thread loads in a batch: 1 to 4 vectors of 4 hide the latency
of memory with the threads that fit an SM."""
SUMS = 64
"""The most sums a thread."""
SEGMENT_BYTES = 64
"""The least bytes that neighbouring threads read in a row: two sectors."""
LEAST_FILL = 0.8
"""The least share of the SMs' time that a split of K may use."""
SPILLS_SINCE, SPILLING = (12, 0), (64, 4, 256)
"""The compute capability from which a kernel spills in 128 registers that is loaded through
registers: its sums a thread, depth and threads (NVRTC 13)."""
BUSY_LATENCY = 1e-6
"""Latency of a busy memory in seconds. Times the bandwidth it gives the bytes that have to be in
flight to keep memory busy; a quarter of a small matrix is enough."""


def _shape_fault(problem: Problem) -> str | None:
    if min(problem.m, problem.n) <= ROWS[-1]:
        return None
    return f"{problem.m}x{problem.n} has no side of at most {ROWS[-1]}"


def _rows_fault(rows: int, problem: Problem) -> str | None:
    m = oriented(problem).m
    wanted = _power_of_two(m)
    return None if rows == wanted else f"rows={rows}; {m} rows take {wanted}"


def _columns_fault(rows: int, columns: int, problem: Problem) -> str | None:
    form = oriented(problem)
    if rows * columns > SUMS:
        return f"{rows}x{columns} sums a thread; {SUMS} at most"
    if columns > _power_of_two(form.n):
        return f"columns={columns} are more than N={form.n}"
    if not along_k(form, "b") and columns < min(VECTOR, form.n):
        return f"columns={columns} next to each other make no vector of {VECTOR}"
    # Otherwise shared memory is busy for longer than device memory.
    if columns < form.n and rows > 4 * columns:
        return f"each value of the {rows} rows read is used for {columns} columns only"
    return None


def _batch_fault(columns: int, depth: int) -> str | None:
    floats, (least, most) = columns * depth, BATCH_FLOATS
    return None if least <= floats <= most else f"{floats} floats a thread; {least} to {most}"


def _width_fault(strip: Strip, problem: Problem) -> str | None:
    n = oriented(problem).n
    if strip.across == 1 or strip.width < 2 * n:
        return None
    return f"{strip.columns}x{strip.across} columns are at least twice N={n}"


def _coalescing_fault(strip: Strip, problem: Problem) -> str | None:
    """The threads of a warp lie along N first, then along K."""
    form, across = oriented(problem), strip.across
    if along_k(form, "b"):
        segment = 4 * VECTOR * (32 // min(32, across))
    elif strip.width >= form.n:
        return None
    else:
        segment = 4 * min(VECTOR, strip.columns) * across
    if segment >= SEGMENT_BYTES:
        return None
    return f"{across} threads across read {segment} bytes in a row; {SEGMENT_BYTES} at least"


def _reuse_fault(rows: int, strip: Strip, problem: Problem) -> str | None:
    """Every strip reads the smaller operand again."""
    if strip.width >= min(oriented(problem).n, 2 * rows):
        return None
    return f"{rows} rows are read again for every {strip.width} columns"


def _threads_fault(across: int, ways: int, device: Device) -> str | None:
    threads, (least, most) = across * ways, THREADS
    if not least <= threads <= most:
        return f"{threads} a block; {least} to {most} are tried"
    return limits.threads_fault(threads, device)


def _depth_fault(depth: int, across: int, ways: int, problem: Problem) -> str | None:
    if across * ways == THREADS[0] or ways * depth < 2 * problem.k:
        return None
    return f"{ways}x{depth} steps are at least twice K={problem.k}"


def _grid_fault(strip: Strip, problem: Problem) -> str | None:
    return limits.grid_fault(strip.strips(oriented(problem)))


def _split_fault(block: Block, split: SplitK, problem: Problem, device: Device) -> str | None:
    splits, form = split.split_k, oriented(problem)
    if splits == 1:
        return None
    steps = split.steps(form)
    if steps < block.batch_steps or ceil_div(form.k, steps) != splits:
        return f"K={form.k} does not go into {splits} splits of {block.batch_steps} or more"
    blocks, sms = block.strips(form) * form.batch * splits, device.sms
    if blocks * block.threads > device.threads_per_sm * sms:
        return f"{blocks} blocks of {block.threads} threads do not run at once"
    used = fill(blocks, sms)
    if blocks <= sms or used >= LEAST_FILL:
        return None
    return f"{blocks} blocks use {used:.0%} of {sms} SMs"


def _stages_fault(
    depth: int, ways: int, split: SplitK, stages: int, problem: Problem
) -> str | None:
    batches = ceil_div(split.steps(problem), ways * depth)
    if stages <= max(1, batches):
        return None
    return f"{stages} stages for {batches} batches"


def _copy_fault(stages: int, device: Device) -> str | None:
    return None if stages == 1 else limits.cp_async_fault(device)


def _registers_fault(buffers: GemvBuffers, device: Device) -> str | None:
    threads, guess = buffers.threads, buffers.registers
    budget = device.registers_per_block // threads
    return None if guess <= budget else f"about {guess} a thread; {threads} threads leave {budget}"


def _spills_fault(buffers: GemvBuffers, device: Device) -> str | None:
    """Fewer or more threads, and another depth, spill nothing."""
    sums, threads = buffers.rows * buffers.columns, buffers.threads
    if device.compute_capability < SPILLS_SINCE or buffers.stages > 1:
        return None
    if (sums, buffers.depth, threads) != SPILLING:
        return None
    return f"{sums} sums and depth={buffers.depth} spill in {threads} threads"


def _shared_fault(buffers: GemvBuffers, problem: Problem, device: Device) -> str | None:
    needed = buffers.shared_bytes(along_k(oriented(problem), "b"))
    most = device.shared_per_block_optin
    return None if needed <= most else f"needs {needed} bytes a block, {device.name} allows {most}"


def _flight_fault(p: GemvParams, problem: Problem, device: Device) -> str | None:
    """Enough bytes are in flight to keep memory busy."""
    form = oriented(problem)
    shared = p.shared_bytes(along_k(form, "b")) + device.reserved_shared_per_block
    resident = device.sms * min(device.threads_per_sm // p.threads, device.shared_per_sm // shared)
    batch = form.element_bytes * p.threads * p.columns * p.depth * max(1, p.stages - 1)
    flight = min(p.blocks(form), resident) * batch
    whole = form.element_bytes * form.k * form.n * form.batch
    wanted = min(device.memory_bandwidth * BUSY_LATENCY, whole / 4)
    if flight >= wanted:
        return None
    return f"{flight} bytes at a time; {device.name} needs {wanted:.0f} to be busy"


def _power_of_two(size: int) -> int:
    """The least power of two that is no less than `size`."""
    return 1 << (size - 1).bit_length()


RULES = (
    Rule("shape", _shape_fault),
    Rule("rows", _rows_fault),
    Rule("columns", _columns_fault),
    Rule("batch", _batch_fault),
    Rule("larger than the matrix", _width_fault),
    Rule("coalescing", _coalescing_fault),
    Rule("reuse", _reuse_fault),
    Rule("threads", _threads_fault),
    Rule("larger than the matrix", _depth_fault),
    Rule("grid", _grid_fault),
    Rule("split-K", _split_fault),
    Rule("stages", _stages_fault),
    Rule("copy", _copy_fault),
    Rule("register estimate", _registers_fault),
    Rule("register estimate", _spills_fault),
    Rule("shared memory", _shared_fault),
    Rule("in flight", _flight_fault),
    *ERROR_RULES,
)
"""The reasons to reject a combination, cheapest first."""
