"""Which parameters of `simt` go together."""

from __future__ import annotations

from functools import partial

from autotune.device import Device
from autotune.families.legacy import Params, Rule
from autotune.families.shared.launch_limits import (
    LARGEST_THREAD_REGISTERS,
    grid_fault,
    register_budget,
    shared_fault,
)
from autotune.families.simt import k_sharing
from autotune.families.simt.terms import register_estimate, shared_bytes, thread_count, tiles
from autotune.problem import Problem

THREADS = 64, 512
STEPS = 4, 16
"""Steps of K between two barriers, all unrolled: fewer wait, more take seconds to compile."""
SLICED_BLOCKS_A_SM = 4
PLAIN_SUMS = 64
"""Sums a thread from which on the order of multiplication and a fence make a difference."""
STAGES = {8: (3, 4, 5), 16: (2, 3, 4), 32: (2, 3, 4), 64: (2, 3, 4)}
"""Buffers of bk steps: fewer bring data too late, more only take shared memory."""
AHEAD, NARROW = 64, 96
"""Steps of K that copies run ahead at most, but for tiles of less than so many rows and columns:
those need the depth to keep memory busy."""


def rules(problem: Problem, device: Device) -> tuple[Rule, ...]:
    """The reasons to reject a combination for `problem` on `device`, cheapest first."""
    tile, warps = ("bm", "bn"), ("bm", "bn", "wm", "wn", "slices")
    estimate = (*warps, "tm", "tn", "bk", "fragments", "copy", "min_blocks")
    return (
        Rule("larger than the matrix", ("bm",), partial(_block_fault, "m", problem.m)),
        Rule("larger than the matrix", ("bn",), partial(_block_fault, "n", problem.n)),
        Rule("divisibility", ("bm", "wm"), partial(_warp_fault, "m")),
        Rule("divisibility", ("bn", "wn"), partial(_warp_fault, "n")),
        Rule("thread tile", ("tm", "tn"), _thread_tile_fault),
        Rule("warp shape", ("wm", "wn", "tm", "tn"), _lanes_fault),
        Rule("threads", warps, partial(_threads_fault, device)),
        Rule("slices", (*tile, "slices"), partial(_slices_fault, problem, device)),
        Rule("steps", ("slices", "bk"), _steps_fault),
        Rule("grid", tile, lambda p: grid_fault(tiles(p, problem))),
        *k_sharing.rules(problem, device),
        Rule("copy", ("tm", "tn", "copy"), partial(_copy_fault, device)),
        Rule("stages", (*tile, "bk", "copy", "stages"), _stages_fault),
        Rule("fragments", ("tm", "tn", "slices", "bk", "fragments"), _fragments_fault),
        Rule("fence", ("tm", "tn", "fragments", "fence"), _fence_fault),
        Rule("order", ("tm", "tn", "order"), _order_fault),
        Rule("residency", (*warps, "min_blocks"), partial(_residency_fault, device)),
        Rule("launch bounds", estimate, partial(_bounds_fault, device)),
        Rule("register estimate", estimate, partial(_registers_fault, device)),
        Rule("workers", (*estimate, "workers"), partial(_resident_fault, device)),
        Rule(
            "shared memory",
            (*tile, "slices", "bk", "stages", "min_blocks", "chunks"),
            partial(_shared_fault, device),
        ),
    )


def _block_fault(axis: str, size: int, p: Params) -> str | None:
    tile = p[f"b{axis}"]
    if tile == 16:
        return None if axis == "m" or size < 32 else f"bn=16 is for less than N={size}"
    if tile == 32 or tile < 2 * size:
        return None
    return f"b{axis}={tile} is at least twice {axis.upper()}={size}"


def _warp_fault(axis: str, p: Params) -> str | None:
    warp, block = p[f"w{axis}"], p[f"b{axis}"]
    return None if block % warp == 0 else f"w{axis}={warp} does not divide b{axis}={block}"


def _thread_tile_fault(p: Params) -> str | None:
    tm, tn = p["tm"], p["tn"]
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


def _slices_fault(problem: Problem, device: Device, p: Params) -> str | None:
    blocks = tiles(p, problem) * problem.batch
    if p["slices"] == 1 or blocks <= SLICED_BLOCKS_A_SM * device.sms:
        return None
    return f"{blocks} tiles keep {device.sms} SMs busy with one slice each"


def _steps_fault(p: Params) -> str | None:
    steps, (least, most) = p["bk"] // p["slices"], STEPS
    if not least <= steps <= most:
        return f"bk={p['bk']} has {steps} steps for each of {p['slices']} slices; {least} to {most}"
    if p["bk"] == 64 and p["slices"] < 8:
        return f"bk=64 is for 8 slices; {p['slices']} have steps enough in half of it"
    return None


def _copy_fault(device: Device, p: Params) -> str | None:
    asynchronous = device.compute_capability >= (8, 0)
    if p["copy"] == "staged":
        if p["tm"] * p["tn"] >= PLAIN_SUMS or not asynchronous:
            return None
        return f"{p['tm']}x{p['tn']} sums leave no time to go through registers"
    if asynchronous:
        return None
    major, minor = device.compute_capability
    return f"cp.async needs compute capability 8.0; {device.name} has {major}.{minor}"


def _stages_fault(p: Params) -> str | None:
    wanted = STAGES[p["bk"]] if p["copy"] == "async" else (2,)
    if p["stages"] not in wanted:
        return f"stages={p['stages']} of bk={p['bk']} steps, {p['copy']}; {wanted} are tried"
    ahead = (p["stages"] - 1) * p["bk"]
    if ahead > AHEAD and p["bm"] + p["bn"] > NARROW:
        return f"copies of {p['bm']}+{p['bn']} floats run {ahead} steps ahead; {AHEAD} are enough"
    return None


def _fragments_fault(p: Params) -> str | None:
    steps, sums = p["bk"] // p["slices"], p["tm"] * p["tn"]
    if steps % p["fragments"]:
        return f"{steps} steps are not a multiple of {p['fragments']} fragments"
    if p["fragments"] == 1 and sums != PLAIN_SUMS:
        return f"{sums} sums: fewer have registers for two fragments, more too few warps for one"
    return None


def _fence_fault(p: Params) -> str | None:
    if p["fence"] == 0 or (p["fragments"] == 2 and p["tm"] * p["tn"] >= PLAIN_SUMS):
        return None
    return f"{p['tm']}x{p['tn']} sums with {p['fragments']} fragments gain nothing from it"


def _order_fault(p: Params) -> str | None:
    tm, tn, order = p["tm"], p["tn"], p["order"]
    if tm * tn < PLAIN_SUMS:
        return None if order == "rows" else f"{tm}x{tn} sums are too few for it to matter"
    along = {"rows": tm > tn, "row-pairs": tm > tn, "columns": tn >= tm, "column-pairs": tn >= tm}
    return None if along.get(order, True) else f"{order} of {tm}x{tn} sums go along the longer side"


def _residency_fault(device: Device, p: Params) -> str | None:
    needed = p["min_blocks"] * thread_count(p)
    if needed <= device.threads_per_sm:
        return None
    return f"{needed} resident threads; {device.name} holds {device.threads_per_sm} an SM"


def _bounds_fault(device: Device, p: Params) -> str | None:
    if p["min_blocks"] == 1:
        return None
    if p["tm"] * p["tn"] < PLAIN_SUMS or p["slices"] > 1:
        return f"{p['tm']}x{p['tn']} sums in {p['slices']} slices need no bound"
    guess, budget = register_estimate(p), _register_budget(device, p)
    if min(2 * guess, LARGEST_THREAD_REGISTERS) > budget:
        return None
    blocks, threads = p["min_blocks"], thread_count(p)
    return f"{blocks} blocks of {threads} threads leave {budget} registers; about {guess} are taken"


def _registers_fault(device: Device, p: Params) -> str | None:
    guess, budget = register_estimate(p), _register_budget(device, p)
    if guess <= budget:
        return None
    blocks, threads = p["min_blocks"], thread_count(p)
    return f"about {guess} a thread; {blocks} blocks of {threads} threads leave {budget}"


def _resident_fault(device: Device, p: Params) -> str | None:
    """Workers that start late make a wave of their own."""
    workers, blocks = p["workers"], p["workers"] // device.sms
    if workers == 0:
        return None
    if blocks < p["min_blocks"]:
        return f"{blocks} workers an SM; {p['min_blocks']} blocks are resident"
    registers = blocks * thread_count(p) * register_estimate(p)
    if registers <= device.registers_per_sm:
        return None
    return f"{blocks} workers an SM need about {registers} registers of {device.registers_per_sm}"


def _shared_fault(device: Device, p: Params) -> str | None:
    return shared_fault(shared_bytes(p), p["min_blocks"], device)


def _register_budget(device: Device, p: Params) -> int:
    return register_budget(p["min_blocks"], thread_count(p), device)
