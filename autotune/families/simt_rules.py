"""What the parameters of `simt` cost, and which of them go together."""

from __future__ import annotations

from functools import partial

from autotune.device import Device
from autotune.families.base import Params, Rule
from autotune.families.conventions import grid_fault
from autotune.problem import Problem

PADDING = 4
# Registers besides the sums and fragments: addresses, counters, predicates.
OTHER_REGISTERS = 26
LARGEST_THREAD_REGISTERS = 255
THREADS = 64, 512
# Up to so many blocks an SM hide each other's latency, whatever the waves they make; beyond that
# K is split only for a fuller last wave.
SPLIT_BLOCKS_A_SM = 2
WAVE_BLOCKS_A_SM = 8
WORKSPACE_SHARE = 8


def rules(problem: Problem, device: Device) -> tuple[Rule, ...]:
    """The reasons to reject a combination for `problem` on `device`, cheapest first."""
    tile, warps = ("bm", "bn"), ("bm", "bn", "wm", "wn")
    estimate = (*warps, "tm", "tn", "bk", "fragments", "copy", "min_blocks")
    return (
        Rule("larger than the matrix", ("bm",), partial(_block_fault, "m", problem.m)),
        Rule("larger than the matrix", ("bn",), partial(_block_fault, "n", problem.n)),
        Rule("divisibility", ("bm", "wm"), partial(_warp_fault, "m")),
        Rule("divisibility", ("bn", "wn"), partial(_warp_fault, "n")),
        Rule("thread tile", ("tm", "tn"), _thread_tile_fault),
        Rule("warp shape", ("wm", "wn", "tm", "tn"), _lanes_fault),
        Rule("threads", warps, partial(_threads_fault, device)),
        Rule("grid", tile, lambda p: grid_fault(block_count(p, problem))),
        Rule("split-K", (*tile, "bk", "split_k"), partial(_split_fault, problem, device)),
        Rule("workspace", ("split_k",), partial(_workspace_fault, problem, device)),
        Rule("group", (*tile, "group"), partial(_group_fault, problem, device)),
        Rule("copy", ("copy",), partial(_copy_fault, device)),
        Rule("stages", ("copy", "stages"), _stages_fault),
        Rule("residency", (*warps, "min_blocks"), partial(_residency_fault, device)),
        Rule("launch bounds", (*warps, "min_blocks"), partial(_bounds_fault, device)),
        Rule("register estimate", estimate, partial(_registers_fault, device)),
        Rule(
            "shared memory", (*tile, "bk", "stages", "min_blocks"), partial(_shared_fault, device)
        ),
    )


def thread_count(p: Params) -> int:
    """Threads a block."""
    warps: int = (p["bm"] // p["wm"]) * (p["bn"] // p["wn"])
    return 32 * warps


def block_count(p: Params, problem: Problem) -> int:
    """Tiles of bm x bn that cover C."""
    rows: int = -(-problem.m // p["bm"])
    columns: int = -(-problem.n // p["bn"])
    return rows * columns


def register_estimate(p: Params) -> int:
    """Registers a thread: sums, fragments, what is staged in them, and some besides."""
    sums: int = p["tm"] * p["tn"]
    fragments: int = p["fragments"] * (p["tm"] + p["tn"])
    staged: int = p["bk"] * (p["bm"] + p["bn"]) // thread_count(p) if p["copy"] == "staged" else 0
    return sums + fragments + staged + OTHER_REGISTERS


def shared_bytes(p: Params, layout: str = "nt") -> int:
    """Bytes of the stages; by default of the layout that pads both operands."""
    padding = PADDING * ((layout[0] == "n") + (layout[1] == "t"))
    row: int = p["bm"] + p["bn"] + padding
    steps: int = p["stages"] * p["bk"]
    return 4 * steps * row


def _block_fault(axis: str, size: int, p: Params) -> str | None:
    tile = p[f"b{axis}"]
    if tile == 32 or tile < 2 * size:
        return None
    return f"b{axis}={tile} is at least twice {axis.upper()}={size}"


def _warp_fault(axis: str, p: Params) -> str | None:
    warp, block = p[f"w{axis}"], p[f"b{axis}"]
    return None if block % warp == 0 else f"w{axis}={warp} does not divide b{axis}={block}"


def _thread_tile_fault(p: Params) -> str | None:
    tm, tn = p["tm"], p["tn"]
    if tm * tn > 128:
        return f"{tm}x{tn} sums take {tm * tn} of {LARGEST_THREAD_REGISTERS} registers"
    if max(tm, tn) > 2 * min(tm, tn):
        return f"{tm}x{tn} loads {tm + tn} values for {tm * tn} products; at most 2 to 1"
    return None


def _lanes_fault(p: Params) -> str | None:
    """Other shapes of 32 lanes read more of shared memory for the same products."""
    rows, columns = p["wm"] / p["tm"], p["wn"] / p["tn"]
    if (rows, columns) in ((4, 8), (8, 4)):
        return None
    return f"{p['wm']}x{p['wn']} is {rows:g}x{columns:g} threads of {p['tm']}x{p['tn']}, not 4x8"


def _threads_fault(device: Device, p: Params) -> str | None:
    threads, least, most = thread_count(p), THREADS[0], min(THREADS[1], device.threads_per_block)
    return None if least <= threads <= most else f"{threads} a block; {least} to {most} are tried"


def _split_fault(problem: Problem, device: Device, p: Params) -> str | None:
    splits = p["split_k"]
    if splits == 1:
        return None
    tiles = -(-problem.k // p["bk"])
    share = -(-tiles // splits)
    if share < 2 or -(-tiles // share) != splits:
        return f"{tiles} tiles of bk={p['bk']} do not go into {splits} shares of 2 or more"
    blocks, sms = block_count(p, problem), device.sms
    if blocks * (splits - 1) < SPLIT_BLOCKS_A_SM * sms:
        return None
    fuller = all(
        _fill(blocks * splits, sms) > _fill(blocks * less, sms) for less in range(1, splits)
    )
    if fuller and blocks * splits <= WAVE_BLOCKS_A_SM * sms:
        return None
    return f"{blocks} tiles fill {sms} SMs as well with less than {splits} shares"


def _fill(blocks: int, sms: int) -> float:
    """The share of the SMs' time that is used if each wave gives every SM one block."""
    return blocks / (-(-blocks // sms) * sms)


def _workspace_fault(problem: Problem, device: Device, p: Params) -> str | None:
    needed = problem.element_bytes * problem.m * problem.n * p["split_k"]
    most = device.memory_bytes // WORKSPACE_SHARE
    if p["split_k"] == 1 or needed <= most:
        return None
    return f"needs {needed} bytes; {most} of {device.name} are taken at most"


def _group_fault(problem: Problem, device: Device, p: Params) -> str | None:
    if p["group"] == 1:
        return None
    rows, columns = -(-problem.m // p["bm"]), -(-problem.n // p["bn"])
    if rows * columns <= device.sms:
        return f"{rows * columns} tiles run at once on {device.sms} SMs; their order is free"
    if columns == 1 or p["group"] > rows:
        return f"{rows}x{columns} tiles have no groups of {p['group']} rows"
    return None


def _copy_fault(device: Device, p: Params) -> str | None:
    if p["copy"] == "staged" or device.compute_capability >= (8, 0):
        return None
    major, minor = device.compute_capability
    return f"cp.async needs compute capability 8.0; {device.name} has {major}.{minor}"


def _stages_fault(p: Params) -> str | None:
    if p["copy"] == "async" or p["stages"] == 2:
        return None
    return f"registers stage one tile ahead, not {p['stages'] - 1}"


def _residency_fault(device: Device, p: Params) -> str | None:
    needed = p["min_blocks"] * thread_count(p)
    if needed <= device.threads_per_sm:
        return None
    return f"{needed} resident threads; {device.name} holds {device.threads_per_sm} an SM"


def _bounds_fault(device: Device, p: Params) -> str | None:
    if p["min_blocks"] == 1 or _register_budget(device, p) < LARGEST_THREAD_REGISTERS:
        return None
    return f"{p['min_blocks']} blocks of {thread_count(p)} threads bound registers no more than 1"


def _registers_fault(device: Device, p: Params) -> str | None:
    guess, budget = register_estimate(p), _register_budget(device, p)
    if guess <= budget:
        return None
    blocks, threads = p["min_blocks"], thread_count(p)
    return f"about {guess} a thread; {blocks} blocks of {threads} threads leave {budget}"


def _shared_fault(device: Device, p: Params) -> str | None:
    needed, most = shared_bytes(p), device.shared_per_block_optin
    if needed > most:
        return f"needs {needed} bytes a block, {device.name} allows {most}"
    resident = p["min_blocks"] * (needed + device.reserved_shared_per_block)
    if resident <= device.shared_per_sm:
        return None
    return f"{p['min_blocks']} blocks need {resident} bytes an SM of {device.shared_per_sm}"


def _register_budget(device: Device, p: Params) -> int:
    """Registers a thread, in the allocation's steps of 8, that let `min_blocks` be resident."""
    available = min(device.registers_per_sm // p["min_blocks"], device.registers_per_block)
    budget: int = available // thread_count(p) // 8 * 8
    return min(LARGEST_THREAD_REGISTERS, budget)
