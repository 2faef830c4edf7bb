"""What the parameters of `gemv` cost, and which of them go together."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from autotune.device import Device
from autotune.families.legacy import Params, Rule
from autotune.families.shared.launch_limits import grid_fault, threads_fault
from autotune.families.shared.layout import along_k
from autotune.problem import Problem

ROWS = (1, 2, 4, 8, 16)
THREADS = 64, 512
VECTOR = 4
# Floats of the larger operand that a thread has on the way in a batch: 1 to 4 vectors of 4 are what
# covers the latency of memory with the threads that fit an SM.
BATCH_FLOATS = 16, 64
SUMS = 64
# Bytes that neighbouring threads ask of memory at once: two sectors at least.
SEGMENT_BYTES = 64
# A wave of blocks that leaves more of the SMs idle than this wants another split.
LEAST_FILL = 0.8
# What an SM has asked of memory and not got yet, at the latency of a busy memory and the bandwidth
# that the device has; a quarter of a small matrix is enough.
BUSY_LATENCY = 1e-6
OTHER_REGISTERS = 32


def rules(problem: Problem, device: Device) -> tuple[Rule, ...]:
    """The reasons to reject a combination for `problem` on `device`."""
    form, _ = flat(problem)
    width, block = ("columns", "across"), ("columns", "depth", "across", "ways")
    everything = ("rows", *block, "split_k", "stages")
    return (
        Rule("shape", ("rows",), partial(_shape_fault, problem)),
        Rule("rows", ("rows",), partial(_rows_fault, form)),
        Rule("columns", ("rows", "columns"), partial(_columns_fault, form)),
        Rule("batch", ("columns", "depth"), _batch_fault),
        Rule("larger than the matrix", width, partial(_width_fault, form)),
        Rule("coalescing", width, partial(_coalescing_fault, form)),
        Rule("reuse", ("rows", *width), partial(_reuse_fault, form)),
        Rule("threads", ("across", "ways"), partial(_threads_fault, device)),
        Rule("larger than the matrix", block[1:], partial(_depth_fault, form)),
        Rule("grid", width, lambda p: grid_fault(strips(p, form))),
        Rule("split-K", (*block, "split_k"), partial(_split_fault, form, device)),
        Rule("stages", ("depth", "ways", "split_k", "stages"), partial(_stages_fault, form)),
        Rule("copy", ("stages",), partial(_copy_fault, device)),
        Rule("register estimate", everything, partial(_registers_fault, device)),
        Rule("shared memory", ("rows", *block, "stages"), partial(_shared_fault, form, device)),
        Rule("in flight", everything, partial(_flight_fault, form, device)),
    )


def flat(problem: Problem) -> tuple[Problem, bool]:
    """The problem with no more rows than columns, and whether it is that of C^T."""
    if problem.m <= problem.n:
        return problem, False
    turned = {"n": "t", "t": "n"}
    layout = turned[problem.layout[1]] + turned[problem.layout[0]]
    return replace(problem, m=problem.n, n=problem.m, layout=layout), True


def strips(p: Params, form: Problem) -> int:
    """Blocks side by side along N."""
    width: int = p["columns"] * p["across"]
    return -(-form.n // width)


def share(p: Params, form: Problem) -> int:
    """Steps of K of a block: whole vectors, but for the last block's."""
    steps: int = -(-form.k // p["split_k"])
    return min(form.k, -(-steps // VECTOR) * VECTOR)


def shared_bytes(p: Params, along_k: bool) -> int:
    """Bytes of the batches, and later of the sums of all threads, if B is stored along K or not."""
    rows, threads, steps = p["rows"], p["across"] * p["ways"], p["ways"] * p["depth"]
    padded = rows + 4 if rows >= 8 else rows
    small: int = rows * (steps + 4) if along_k else steps * padded
    large: int = threads * p["columns"] * p["depth"] if p["stages"] > 1 else 0
    batches: int = max(2, p["stages"]) * (small + large)
    sums: int = threads * rows * p["columns"]
    return 4 * max(batches, sums)


def register_estimate(p: Params) -> int:
    """Registers a thread: sums, the values of a step or of a batch, and some besides."""
    held: int = p["depth"] if p["stages"] == 1 else VECTOR
    rows, columns = int(p["rows"]), int(p["columns"])
    return columns * (rows + held) + rows + OTHER_REGISTERS


def _power_of_two(size: int) -> int:
    """The least power of two that is no less than `size`."""
    power: int = 1 << (size - 1).bit_length()
    return power


def _shape_fault(problem: Problem, p: Params) -> str | None:
    del p
    least = min(problem.m, problem.n)
    if least <= ROWS[-1]:
        return None
    return f"{problem.m}x{problem.n} has no side of at most {ROWS[-1]}"


def _rows_fault(form: Problem, p: Params) -> str | None:
    wanted = _power_of_two(form.m)
    return None if p["rows"] == wanted else f"rows={p['rows']}; {form.m} rows take {wanted}"


def _columns_fault(form: Problem, p: Params) -> str | None:
    rows, columns = p["rows"], p["columns"]
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


def _batch_fault(p: Params) -> str | None:
    floats, (least, most) = p["columns"] * p["depth"], BATCH_FLOATS
    return None if least <= floats <= most else f"{floats} floats a thread; {least} to {most}"


def _width_fault(form: Problem, p: Params) -> str | None:
    width = p["columns"] * p["across"]
    if p["across"] == 1 or width < 2 * form.n:
        return None
    return f"{p['columns']}x{p['across']} columns are at least twice N={form.n}"


def _coalescing_fault(form: Problem, p: Params) -> str | None:
    """The threads of a warp lie across first; the rest of them lie along K."""
    if along_k(form, "b"):
        bytes_ = 4 * VECTOR * (32 // min(32, p["across"]))
    elif p["columns"] * p["across"] >= form.n:
        return None
    else:
        bytes_ = 4 * min(VECTOR, p["columns"]) * p["across"]
    if bytes_ >= SEGMENT_BYTES:
        return None
    return f"{p['across']} threads across read {bytes_} bytes in a row; {SEGMENT_BYTES} at least"


def _reuse_fault(form: Problem, p: Params) -> str | None:
    """Every strip reads the smaller operand anew."""
    width = p["columns"] * p["across"]
    if width >= min(form.n, 2 * p["rows"]):
        return None
    return f"{p['rows']} rows are read again for every {width} columns"


def _threads_fault(device: Device, p: Params) -> str | None:
    threads, (least, most) = p["across"] * p["ways"], THREADS
    if not least <= threads <= most:
        return f"{threads} a block; {least} to {most} are tried"
    return threads_fault(threads, device)


def _depth_fault(form: Problem, p: Params) -> str | None:
    steps = p["ways"] * p["depth"]
    if p["across"] * p["ways"] == THREADS[0] or steps < 2 * form.k:
        return None
    return f"{p['ways']}x{p['depth']} steps are at least twice K={form.k}"


def _split_fault(form: Problem, device: Device, p: Params) -> str | None:
    splits, steps = p["split_k"], p["ways"] * p["depth"]
    if splits == 1:
        return None
    part = share(p, form)
    if part < steps or -(-form.k // part) != splits:
        return f"K={form.k} does not go into {splits} shares of {steps} or more"
    blocks, sms = strips(p, form) * form.batch * splits, device.sms
    if blocks * p["across"] * p["ways"] > device.threads_per_sm * sms:
        return f"{blocks} blocks of {p['across'] * p['ways']} threads do not run at once"
    fill = blocks / (-(-blocks // sms) * sms)
    if blocks <= sms or fill >= LEAST_FILL:
        return None
    return f"{blocks} blocks use {fill:.0%} of {sms} SMs"


def _stages_fault(form: Problem, p: Params) -> str | None:
    batches = -(-share(p, form) // (p["ways"] * p["depth"]))
    if p["stages"] <= max(1, batches):
        return None
    return f"{p['stages']} stages for {batches} batches"


def _copy_fault(device: Device, p: Params) -> str | None:
    if p["stages"] == 1 or device.compute_capability >= (8, 0):
        return None
    major, minor = device.compute_capability
    return f"cp.async needs compute capability 8.0; {device.name} has {major}.{minor}"


def _registers_fault(device: Device, p: Params) -> str | None:
    threads, guess = p["across"] * p["ways"], register_estimate(p)
    budget = device.registers_per_block // threads
    return None if guess <= budget else f"about {guess} a thread; {threads} threads leave {budget}"


def _shared_fault(form: Problem, device: Device, p: Params) -> str | None:
    needed, most = shared_bytes(p, along_k(form, "b")), device.shared_per_block_optin
    return None if needed <= most else f"needs {needed} bytes a block, {device.name} allows {most}"


def _flight_fault(form: Problem, device: Device, p: Params) -> str | None:
    threads = p["across"] * p["ways"]
    shared = shared_bytes(p, along_k(form, "b")) + device.reserved_shared_per_block
    resident = device.sms * min(device.threads_per_sm // threads, device.shared_per_sm // shared)
    blocks = strips(p, form) * p["split_k"] * form.batch
    batch = form.element_bytes * threads * p["columns"] * p["depth"] * max(1, p["stages"] - 1)
    flight = min(blocks, resident) * batch
    whole = form.element_bytes * form.k * form.n * form.batch
    wanted = min(device.memory_bandwidth * BUSY_LATENCY, whole / 4)
    if flight >= wanted:
        return None
    return f"{flight} bytes at a time; {device.name} needs {wanted:.0f} to be busy"
