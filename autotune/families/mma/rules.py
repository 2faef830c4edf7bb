"""Which parameters of `mma` go together."""

from __future__ import annotations

from functools import partial

from autotune.device import Device
from autotune.families.legacy import Params, Rule
from autotune.families.mma import k_sharing
from autotune.families.mma.terms import (
    ASYNC_CAPABILITY,
    COPY_BYTES,
    element_bytes,
    form_of,
    packed,
    register_estimate,
    shared_bytes,
    split,
    staged_registers,
    steps,
    thread_count,
    tiles,
    vector,
)
from autotune.families.plan import Alignment
from autotune.families.shared.launch_limits import grid_fault, register_budget, shared_fault
from autotune.problem import Problem

TURING = 7, 5
WARPS = 4, 8
"""Warps a block: one for each scheduler at least; more than 8 leave 64 registers a sum less."""
STEPS = 2, 4
"""Products along K of a warp in a buffer: fewer wait at barriers, more fill shared memory."""
LARGEST_SUMS = 128
FULL_TILE = 128
MANY_TILES = 16
"""Tiles an SM from which on larger ones fill it as well and read less."""
SLICED_TILES = 4
"""Tiles an SM from which on its warps have enough to do without slices."""
STAGES = {64: (3, 4, 5, 6), 128: (2, 3, 4, 5), 256: (2, 3, 4)}
"""Buffers of so many bytes of K: fewer bring data too late, more only take shared memory."""
AHEAD, NARROW = 384, 96
"""Bytes of K that copies run ahead at most, but for tiles of less than so many rows and columns:
those need the depth to keep memory busy."""
PROMOTED = 128
"""Steps of K after which sums are promoted, if at all."""
LONG = 256
"""Products in a warp's sum up to which it does not matter that the tensor cores cut what they add:
after 1024 the relative error was six times that of sums in fp32 (H100)."""


def rules(problem: Problem, device: Device) -> tuple[Rule, ...]:
    """The reasons to reject a combination for `problem` on `device`, cheapest first."""
    tile, warps = ("swap", "bm", "bn"), ("bm", "bn", "wm", "wn", "slices")
    buffers = ("compute", "bk", "slices")
    bound = (*warps, "bk", "promote", "min_blocks", "swap", "pack", "compute", "copy")
    return (
        Rule("architecture", ("compute",), partial(_architecture_fault, device)),
        Rule("swap", ("swap",), partial(_swap_fault, problem)),
        Rule("larger than the matrix", ("swap", "bm"), partial(_block_fault, "m", problem)),
        Rule("larger than the matrix", ("swap", "bn"), partial(_block_fault, "n", problem)),
        Rule("small tiles", tile, partial(_many_fault, problem, device)),
        Rule("divisibility", ("bm", "wm"), partial(_warp_fault, "m")),
        Rule("divisibility", ("bn", "wn"), partial(_warp_fault, "n")),
        Rule("warp shape", ("bm", "bn", "wm", "wn"), _shape_fault),
        Rule("warps", warps, partial(_warps_fault, device)),
        Rule("slices", ("swap", *warps), partial(_slices_fault, problem, device)),
        Rule("steps", buffers, _steps_fault),
        Rule("steps", buffers, partial(_depth_fault, problem)),
        Rule("grid", tile, lambda p: grid_fault(tiles(p, problem))),
        *k_sharing.rules(problem, device),
        Rule("copy", ("pack", "copy", "stages"), partial(_staged_fault, problem)),
        Rule("stages", ("bm", "bn", "compute", "bk", "copy", "stages"), _stages_fault),
        Rule("stages", ("bk", "stages", "split_k"), partial(_turns_fault, problem)),
        Rule(
            "promotion",
            ("compute", "slices", "bk", "split_k", "promote"),
            partial(_promote_fault, problem),
        ),
        Rule("residency", (*warps, "min_blocks"), partial(_residency_fault, device)),
        Rule("register estimate", bound, partial(_registers_fault, problem, device)),
        Rule("launch bounds", bound, partial(_bounds_fault, problem, device)),
        Rule(
            "shared memory",
            (*warps, "bk", "stages", "min_blocks", "store", "compute"),
            partial(_shared_fault, device),
        ),
    )


def _architecture_fault(device: Device, p: Params) -> str | None:
    needed = TURING if p["compute"] == "f16" else ASYNC_CAPABILITY
    if device.compute_capability >= needed:
        return None
    has, wanted = ("{}.{}".format(*one) for one in (device.compute_capability, needed))
    return f"{p['compute']} needs compute capability {wanted}; {device.name} has {has}"


def _swap_fault(problem: Problem, p: Params) -> str | None:
    if not p["swap"] or problem.m <= 8 < problem.n:
        return None
    return f"{problem.m}x{problem.n} has no 8 rows that would be the narrow side of a product"


def _block_fault(axis: str, problem: Problem, p: Params) -> str | None:
    form, tile = form_of(p, problem), p[f"b{axis}"]
    size = form.m if axis == "m" else form.n
    name = "MN"[(axis == "n") != bool(p["swap"])]
    if tile == 8:
        return None if size <= 8 else f"b{axis}=8 is for {name} of 8 at most, not {size}"
    if (tile == 16 and (axis == "m" or size > 8)) or tile < 2 * size:
        return None
    return f"b{axis}={tile} is at least twice {name}={size}"


def _many_fault(problem: Problem, device: Device, p: Params) -> str | None:
    form, count = form_of(p, problem), tiles(p, problem) * problem.batch
    if count <= MANY_TILES * device.sms:
        return None
    for axis, size in (("m", form.m), ("n", form.n)):
        tile = p[f"b{axis}"]
        if tile < min(FULL_TILE, size):
            return f"{count} tiles for {device.sms} SMs with b{axis}={tile}; larger ones read less"
    return None


def _warp_fault(axis: str, p: Params) -> str | None:
    warp, block = p[f"w{axis}"], p[f"b{axis}"]
    return None if block % warp == 0 else f"w{axis}={warp} does not divide b{axis}={block}"


def _shape_fault(p: Params) -> str | None:
    wm, wn = p["wm"], p["wn"]
    if wm * wn // 32 > LARGEST_SUMS:
        return f"{wm}x{wn} has {wm * wn // 32} sums a thread; {LARGEST_SUMS} at most"
    long, short = max(wm, wn), min(wm, wn)
    whole = (wm == short and p["bm"] == wm) or (wn == short and p["bn"] == wn)
    if long <= (4 if whole else 2) * short:
        return None
    return f"{wm}x{wn} loads {wm + wn} rows for {wm * wn} products; sides of 2 to 1 load less"


def _warps_fault(device: Device, p: Params) -> str | None:
    warps, (least, most) = thread_count(p) // 32, WARPS
    if least <= warps <= min(most, device.threads_per_block // 32):
        return None
    return f"{warps} a block; {least} to {most} are tried"


def _slices_fault(problem: Problem, device: Device, p: Params) -> str | None:
    blocks = tiles(p, problem) * problem.batch
    if p["slices"] == 1 or blocks <= SLICED_TILES * device.sms:
        return None
    least, warps = WARPS[0], thread_count(p) // 32
    if warps == least and warps // p["slices"] < least:
        return None  # the smallest tiles have warps enough in no other way
    return f"{blocks} tiles keep {device.sms} SMs busy with one slice each"


def _steps_fault(p: Params) -> str | None:
    count, row = steps(p), p["bk"] * element_bytes(p)
    if row not in STAGES:
        return f"bk={p['bk']} has {row} bytes; {', '.join(map(str, STAGES))} are tried"
    if not STEPS[0] <= count <= STEPS[1]:
        return f"bk={p['bk']} has {count} for each of {p['slices']} slices; 2 to 4 are tried"
    return None


def _depth_fault(problem: Problem, p: Params) -> str | None:
    if p["bk"] < 2 * problem.k or steps(p) == STEPS[0]:
        return None
    return f"bk={p['bk']} is at least twice K={problem.k}"


def _staged_fault(problem: Problem, p: Params) -> str | None:
    """Registers hold one tile; more buffers than that and its predecessor's stay empty."""
    dense = Alignment.dense(problem)
    widths = (
        vector(problem, name, one, p["copy"] == "async")
        for name, one in (("a", dense.a), ("b", dense.b))
        if not packed(p, name)
    )
    narrow = [width * problem.element_bytes < COPY_BYTES for width in widths]
    copies = p["copy"] == "async" and not (len(narrow) == 2 and all(narrow))
    if copies or p["stages"] == 2:
        return None
    return f"stages={p['stages']}; what comes through registers fills one buffer ahead"


def _stages_fault(p: Params) -> str | None:
    row = p["bk"] * element_bytes(p)
    if p["stages"] == 2 and row == min(STAGES):
        return None  # for what comes through registers; the next rule has the rest
    if p["stages"] not in STAGES[row]:
        return f"stages={p['stages']} of {row} bytes of K; {STAGES[row]} are tried"
    ahead = (p["stages"] - 1) * row
    if ahead > AHEAD and p["bm"] + p["bn"] > NARROW:
        return f"copies of {p['bm']}+{p['bn']} rows run {ahead} bytes ahead; {AHEAD} are enough"
    return None


def _turns_fault(problem: Problem, p: Params) -> str | None:
    turns = -(-problem.k // p["bk"] // p["split_k"])
    if p["stages"] <= max(3, turns):
        return None
    return f"stages={p['stages']} for {turns} turns"


def _promote_fault(problem: Problem, p: Params) -> str | None:
    terms = problem.k // (p["split_k"] * p["slices"])
    if not split(p) or terms <= LONG:
        return f"sums of {terms} products in {p['compute']} need none" if p["promote"] else None
    after = p["promote"] * p["bk"]
    return None if after == PROMOTED else f"after {after} steps of K; {PROMOTED} are tried"


def _residency_fault(device: Device, p: Params) -> str | None:
    needed = p["min_blocks"] * thread_count(p)
    if needed <= device.threads_per_sm:
        return None
    return f"{needed} resident threads; {device.name} holds {device.threads_per_sm} an SM"


def _registers_fault(problem: Problem, device: Device, p: Params) -> str | None:
    guess, budget = _guess(problem, p), _register_budget(device, p)
    if guess <= budget:
        return None
    blocks, threads = p["min_blocks"], thread_count(p)
    return f"about {guess} a thread; {blocks} blocks of {threads} threads leave {budget}"


def _bounds_fault(problem: Problem, device: Device, p: Params) -> str | None:
    """A second block is worth a set of fragments, but only where it would not fit with it."""
    if p["min_blocks"] == 1:
        return None
    guess, budget = _guess(problem, {**p, "min_blocks": 1}), _register_budget(device, p)
    if guess > budget:
        return None
    return f"{p['min_blocks']} blocks leave {budget} registers; about {guess} are taken anyway"


def _guess(problem: Problem, p: Params) -> int:
    return register_estimate(p, staged_registers(p, problem, p["copy"] == "async"))


def _shared_fault(device: Device, p: Params) -> str | None:
    return shared_fault(shared_bytes(p), p["min_blocks"], device)


def _register_budget(device: Device, p: Params) -> int:
    return register_budget(p["min_blocks"], thread_count(p), device)
