"""Rules of `gemv`: which of its parameters go together, and how it adds up products."""

from __future__ import annotations

from autotune.device import Device
from autotune.families.family import ParameterFunction, Rule, accuracy_rule
from autotune.families.gemv.kernel import ROWS, VECTOR, GemvParams, oriented
from autotune.families.shared import limits
from autotune.families.shared.arguments import along_k
from autotune.families.shared.tiling import fill
from autotune.families.summation import Summation, in_order, split_length
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

STRIP = ("columns", "across")
BUFFERS = (*STRIP, "depth", "ways", "rows", "stages")
"""Parameters that several rules need together."""

RADIX = 8
"""Sums of threads that one thread adds up at a time (gemv.cu)."""


def summation(p: GemvParams, problem: Problem) -> Summation:
    """Each thread sums up its share of the block's K; threads and blocks are added up then."""
    levels, ways = [], p.ways
    while ways > 1:
        levels.append(min(ways, RADIX))
        ways //= RADIX
    length = split_length(problem.k, p.split_k, VECTOR) / p.ways
    return Summation(in_order(length, *levels, p.split_k))


SUMMATION = ParameterFunction(summation, ("split_k", "ways"))

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


def _shape_fault(_p: GemvParams, problem: Problem, _device: Device) -> str | None:
    if min(problem.m, problem.n) <= ROWS[-1]:
        return None
    return f"{problem.m}x{problem.n} has no side of at most {ROWS[-1]}"


def _rows_fault(p: GemvParams, problem: Problem, _device: Device) -> str | None:
    m = oriented(problem).m
    wanted = _power_of_two(m)
    return None if p.rows == wanted else f"rows={p.rows}; {m} rows take {wanted}"


def _columns_fault(p: GemvParams, problem: Problem, _device: Device) -> str | None:
    form = oriented(problem)
    if p.rows * p.columns > SUMS:
        return f"{p.rows}x{p.columns} sums a thread; {SUMS} at most"
    if p.columns > _power_of_two(form.n):
        return f"columns={p.columns} are more than N={form.n}"
    if not along_k(form, "b") and p.columns < min(VECTOR, form.n):
        return f"columns={p.columns} next to each other make no vector of {VECTOR}"
    # Otherwise shared memory is busy for longer than device memory.
    if p.columns < form.n and p.rows > 4 * p.columns:
        return f"each value of the {p.rows} rows read is used for {p.columns} columns only"
    return None


def _batch_fault(p: GemvParams, _problem: Problem, _device: Device) -> str | None:
    floats, (least, most) = p.columns * p.depth, BATCH_FLOATS
    return None if least <= floats <= most else f"{floats} floats a thread; {least} to {most}"


def _width_fault(p: GemvParams, problem: Problem, _device: Device) -> str | None:
    n = oriented(problem).n
    if p.across == 1 or p.width < 2 * n:
        return None
    return f"{p.columns}x{p.across} columns are at least twice N={n}"


def _coalescing_fault(p: GemvParams, problem: Problem, _device: Device) -> str | None:
    """The threads of a warp lie along N first, then along K."""
    form, across = oriented(problem), p.across
    if along_k(form, "b"):
        segment = 4 * VECTOR * (32 // min(32, across))
    elif p.width >= form.n:
        return None
    else:
        segment = 4 * min(VECTOR, p.columns) * across
    if segment >= SEGMENT_BYTES:
        return None
    return f"{across} threads across read {segment} bytes in a row; {SEGMENT_BYTES} at least"


def _reuse_fault(p: GemvParams, problem: Problem, _device: Device) -> str | None:
    """Every strip reads the smaller operand again."""
    if p.width >= min(oriented(problem).n, 2 * p.rows):
        return None
    return f"{p.rows} rows are read again for every {p.width} columns"


def _threads_fault(p: GemvParams, _problem: Problem, device: Device) -> str | None:
    threads, (least, most) = p.across * p.ways, THREADS
    if not least <= threads <= most:
        return f"{threads} a block; {least} to {most} are tried"
    return limits.threads_fault(threads, device)


def _depth_fault(p: GemvParams, problem: Problem, _device: Device) -> str | None:
    if p.across * p.ways == THREADS[0] or p.ways * p.depth < 2 * problem.k:
        return None
    return f"{p.ways}x{p.depth} steps are at least twice K={problem.k}"


def _split_fault(p: GemvParams, problem: Problem, device: Device) -> str | None:
    splits, form = p.split_k, oriented(problem)
    if splits == 1:
        return None
    steps = p.steps(form)
    if steps < p.batch_steps or ceil_div(form.k, steps) != splits:
        return f"K={form.k} does not go into {splits} splits of {p.batch_steps} or more"
    blocks, sms = p.strips(form) * form.batch * splits, device.sms
    if blocks * p.threads > device.threads_per_sm * sms:
        return f"{blocks} blocks of {p.threads} threads do not run at once"
    used = fill(blocks, sms)
    if blocks <= sms or used >= LEAST_FILL:
        return None
    return f"{blocks} blocks use {used:.0%} of {sms} SMs"


def _stages_fault(p: GemvParams, problem: Problem, _device: Device) -> str | None:
    batches = ceil_div(p.steps(problem), p.ways * p.depth)
    if p.stages <= max(1, batches):
        return None
    return f"{p.stages} stages for {batches} batches"


def _copy_fault(p: GemvParams, _problem: Problem, device: Device) -> str | None:
    return None if p.stages == 1 else limits.cp_async_fault(device)


def _registers_fault(p: GemvParams, _problem: Problem, device: Device) -> str | None:
    threads, guess = p.threads, p.registers
    budget = device.registers_per_block // threads
    return None if guess <= budget else f"about {guess} a thread; {threads} threads leave {budget}"


def _spills_fault(p: GemvParams, _problem: Problem, device: Device) -> str | None:
    """Fewer or more threads, and another depth, spill nothing."""
    sums, threads = p.rows * p.columns, p.threads
    if device.compute_capability < SPILLS_SINCE or p.stages > 1:
        return None
    if (sums, p.depth, threads) != SPILLING:
        return None
    return f"{sums} sums and depth={p.depth} spill in {threads} threads"


def _shared_fault(p: GemvParams, problem: Problem, device: Device) -> str | None:
    return limits.shared_fault(p.shared_bytes(along_k(oriented(problem), "b")), 1, device)


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
    """The least power of two that is at least `size`."""
    return 1 << (size - 1).bit_length()


RULES = (
    Rule("shape", _shape_fault),
    Rule("rows", _rows_fault, ("rows",)),
    Rule("columns", _columns_fault, ("rows", "columns")),
    Rule("batch", _batch_fault, ("columns", "depth")),
    Rule("larger than the matrix", _width_fault, STRIP),
    Rule("coalescing", _coalescing_fault, STRIP),
    Rule("reuse", _reuse_fault, ("rows", "columns", "across")),
    Rule("threads", _threads_fault, ("across", "ways")),
    Rule("larger than the matrix", _depth_fault, ("depth", "across", "ways")),
    Rule("grid", lambda p, problem, _: limits.grid_fault(p.strips(oriented(problem))), STRIP),
    Rule("split-K", _split_fault, (*STRIP, "depth", "ways", "split_k")),
    Rule("stages", _stages_fault, ("depth", "ways", "split_k", "stages")),
    Rule("copy", _copy_fault, ("stages",)),
    Rule("register estimate", _registers_fault, BUFFERS),
    Rule("register estimate", _spills_fault, BUFFERS),
    Rule("shared memory", _shared_fault, BUFFERS),
    Rule(
        "in flight",
        _flight_fault,
        ("split_k", "columns", "across", "depth", "ways", "rows", "stages"),
    ),
    accuracy_rule(SUMMATION),
)
"""The reasons to reject a combination, cheapest first."""
