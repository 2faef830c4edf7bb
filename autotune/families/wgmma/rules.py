"""Which parameters of `wgmma` go together: tiles, warpgroups, buffers and what is stored how."""

from __future__ import annotations

from functools import partial

from autotune.device import Device
from autotune.families.legacy import Params, Rule
from autotune.families.plan import Alignment
from autotune.families.shared.launch_limits import grid_fault
from autotune.families.wgmma import k_sharing, tile_choice
from autotune.families.wgmma.terms import (
    GELU_REGISTERS,
    INSTRUCTION_ROWS,
    SHARES,
    SPAN,
    accumulators,
    crooked,
    entry_registers,
    extents,
    gathering_registers,
    inner_shares,
    instruction_registers,
    operand_names,
    packed,
    readable,
    register_estimate,
    rounded,
    runs_along_k,
    shared_bytes,
    sides,
    stage_bytes,
    steps,
    summers,
    tile_grid,
    tiles,
    transposed,
    units,
    warpgroup_rows,
)
from autotune.problem import Problem

ARCHITECTURE = (9, 0)
LARGEST_COORDINATE = 2**31 - 1
"""What a bulk copy takes for a row or a column."""
SERVED_ROWS, SPLIT_ROWS = 2048, 1024
"""Rows that a transposed copy of P must serve to be worth its time, and that a copy with the low
part of Q must."""
LINED_ROWS = 4096
"""Rows that a copy in whole lines must serve: at 3000 cubed the product gained 13 % and the copies
cost 20 % of its time (bf16, H100)."""
MANY_TILES = 12
"""Tiles an SM from which on small ones have nothing to offer."""
PLAIN_ROWS = 128
LARGE_TILE = 128 * 224
"""Elements of a 16-bit tile from which on it takes the room of a stage until it is stored."""
MOST_STAGES, LEAST_STAGES = 8, 3
PROMOTED, UNPROMOTED = 128, 256
"""Steps of K after which the tensor cores' sums, which are cut and not rounded, have to be added up
in fp32 to be near it; and how long a K may be that has no need of it."""
TILE = ("swap", "bm", "bn")
GROUPS = (*TILE, "consumers", "schedule")


def rules(problem: Problem, device: Device) -> tuple[Rule, ...]:
    """The reasons to reject a combination for `problem` on `device`, cheapest first."""
    return (
        Rule("architecture", ("swap",), partial(_architecture_fault, device)),
        Rule("tile", TILE, partial(_tile_fault, problem, device)),
        Rule("larger than the matrix", TILE, partial(_size_fault, problem)),
        Rule("small tiles", TILE, partial(_small_fault, problem, device)),
        Rule("consumers", GROUPS, _consumers_fault),
        Rule("residency", (*GROUPS, "min_blocks"), partial(_residency_fault, problem, device)),
        Rule("source", ("swap", "source"), partial(_source_fault, problem)),
        Rule("low part", ("swap", "low"), partial(_low_fault, problem)),
        Rule("packing", ("swap", "source", "low", "pack"), partial(_pack_fault, problem)),
        Rule("promotion", ("bk", "promote"), partial(_promote_fault, problem)),
        Rule(
            "registers",
            (*GROUPS, "min_blocks", "source", "low", "promote"),
            partial(_registers_fault, problem),
        ),
        *k_sharing.rules(problem, device),
        Rule("registers", (*GROUPS, "min_blocks", "cluster"), _part_fault),
        Rule("coordinates", (*TILE, "bk", "cluster"), partial(_coordinates_fault, problem)),
        Rule("grid", (*TILE, "cluster", "split_k"), lambda p: grid_fault(units(p, problem))),
        Rule(
            "store",
            (*GROUPS, "split_k", "store"),
            partial(_store_fault, problem, device),
        ),
        Rule(
            "stages",
            (*GROUPS, "min_blocks", "low", "bk", "split_k", "workers", "store", "stages"),
            partial(_stages_fault, problem, device),
        ),
        Rule(
            "gathering",
            (*TILE, "low", "bk", "cluster", "stages"),
            partial(_gathering_fault, problem),
        ),
    )


def _architecture_fault(device: Device, p: Params) -> str | None:
    del p
    if device.compute_capability == ARCHITECTURE:
        return None
    major, minor = device.compute_capability
    return f"wgmma is of compute capability 9.0 alone; {device.name} has {major}.{minor}"


def _tile_fault(problem: Problem, device: Device, p: Params) -> str | None:
    along_x, along_y = sides(p)
    heights = tile_choice.heights(problem, device, p["swap"])
    if along_x not in tile_choice.BLOCK_ROWS or along_y not in heights:
        return f"{along_x} rows of x and {along_y} of y are no tile; swap={p['swap']}"
    return None


def _size_fault(problem: Problem, p: Params) -> str | None:
    (along_x, _), (extent, _) = sides(p), extents(p, problem)
    if along_x <= rounded(extent, INSTRUCTION_ROWS):
        return None
    return f"{along_x} rows for {extent}"


def _small_fault(problem: Problem, device: Device, p: Params) -> str | None:
    """Tiles reuse what they read the more the larger they are."""
    (along_x, along_y), (x, y) = sides(p), extents(p, problem)
    count = -(-x // along_x) * -(-y // along_y) * problem.batch
    plain = min(PLAIN_ROWS, rounded(x, INSTRUCTION_ROWS)) * min(PLAIN_ROWS, rounded(y, 8))
    if count > MANY_TILES * device.sms and along_x * along_y < plain:
        return f"{count} tiles of {along_x}x{along_y}; larger ones keep {device.sms} SMs busy"
    return None


def _consumers_fault(p: Params) -> str | None:
    (along_x, _), consumers = sides(p), p["consumers"]
    if p["schedule"] == "pingpong":
        if consumers == 2 and along_x in (64, 128):
            return None
        return f"{consumers} consumers take turns with {along_x} rows; 2 with 64 or 128"
    if along_x in (consumers * 64, consumers * 128):
        return None
    return f"{consumers} consumers share {along_x} rows; each has 64 or 128"


def _residency_fault(problem: Problem, device: Device, p: Params) -> str | None:
    """More blocks an SM hide each other's ends; one that nothing hides leaves the cores idle."""
    pair = p["consumers"], p["min_blocks"]
    if pair not in SHARES:
        return f"there is no kernel of {pair[0]} consumers for {pair[1]} blocks an SM"
    (along_x, along_y), (x, y) = sides(p), extents(p, problem)
    count = -(-x // along_x) * -(-y // along_y) * problem.batch
    if p["min_blocks"] > 1 and p["schedule"] == "pingpong":
        return f"{p['min_blocks']} blocks an SM take turns as it is"
    if pair == (1, 1) and count > 2 * device.sms:
        return f"{count} tiles, each ended by the only consumer of an SM"
    return None


def _source_fault(problem: Problem, p: Params) -> str | None:
    """P goes through registers to be split, or if it does not run along K."""
    source, (name, _) = p["source"], operand_names(p)
    if problem.element_bytes == 2:
        return None if source == "shared" else "16-bit operands are read from shared memory"
    if problem.products > 1:
        return None if source == "registers" else "operands are split in registers"
    copied = transposed({**p, "source": "shared"}, problem, name)
    if source == "registers":
        free = not readable(problem, Alignment.dense(problem), name)
        return f"{name} is best read from shared memory" if free or not copied else None
    served, _ = extents({**p, "swap": 1 - p["swap"]}, problem)
    if not copied or served >= SERVED_ROWS or not readable(problem, Alignment.dense(problem), name):
        return None
    return f"a transposed copy of {name} would serve {served} rows; {SERVED_ROWS} at least"


def _low_fault(problem: Problem, p: Params) -> str | None:
    low, (_, name) = p["low"], operand_names(p)
    if (problem.products > 1) == (low == "none"):
        return f"{problem.compute} has {problem.products} products"
    if low == "none":
        return None
    ready = readable(problem, Alignment.dense(problem), name) and not transposed(p, problem, name)
    served, _ = extents(p, problem)
    if low == "kernel":
        return None if ready else f"{name} is copied as it is, which may as well split it"
    if not ready or served >= SPLIT_ROWS:
        return None
    return f"a copy of {name} would serve {served} rows; {SPLIT_ROWS} at least"


def _pack_fault(problem: Problem, p: Params) -> str | None:
    if p["pack"] == "needed":
        return None
    dense, needed = Alignment.dense(problem), {**p, "pack": "needed"}
    gains = [
        name
        for name, served in (("a", problem.n), ("b", problem.m))
        if crooked(problem, name)
        and served >= LINED_ROWS
        and not packed(needed, problem, dense, name)
    ]
    return None if gains else "no operand would gain from a copy in whole lines"


def _promote_fault(problem: Problem, p: Params) -> str | None:
    every = p["promote"] * p["bk"]
    if problem.products == 1:
        return f"sums of {problem.compute} are what they are" if every else None
    if every == 0:
        if problem.k <= UNPROMOTED:
            return None
        return f"sums of K={problem.k} terms are cut too often; {UNPROMOTED} at most"
    if every <= PROMOTED and every < problem.k:
        return None
    return f"sums of K={problem.k} terms leave after {every}; {PROMOTED} at most, and K has more"


def _registers_fault(problem: Problem, p: Params) -> str | None:
    share, needed = SHARES[p["consumers"], p["min_blocks"]], register_estimate(p)
    if problem.epilogue.endswith("gelu"):
        needed += GELU_REGISTERS
    if needed > share:
        return f"{accumulators(p)} sums make about {needed} registers; a consumer has {share}"
    entry, least = entry_registers(p), instruction_registers(p)
    if least > entry:
        return f"an instruction needs {least} registers; a thread has {entry} at the entry"
    return None


def _part_fault(p: Params) -> str | None:
    share, needed = SHARES[p["consumers"], p["min_blocks"]], gathering_registers(p)
    if needed <= share:
        return None
    return f"adding up in a cluster takes about {needed} registers; a consumer has {share}"


def _coordinates_fault(problem: Problem, p: Params) -> str | None:
    pairs = zip(tile_grid(p, problem), sides(p), strict=True)
    largest = max(*(count * side for count, side in pairs), steps(p, problem) * p["bk"])
    if largest <= LARGEST_COORDINATE:
        return None
    return f"tiles end at {largest}; bulk copies reach {LARGEST_COORDINATE}"


def _store_fault(problem: Problem, device: Device, p: Params) -> str | None:
    """Registers hold pieces of 32 bytes of rows of 32-bit elements, and half as much of others."""
    if problem.output_bytes == 4:
        return None if p["store"] == "direct" else "32-bit results make whole sectors as they are"
    width = warpgroup_rows(p) if p["swap"] else sides(p)[1]
    narrow = 2 * width * problem.output_bytes < SPAN
    if p["store"] == "staged":
        return f"rows of {width} elements make no lines" if narrow else None
    count = tiles({**p, "cluster": "1x1"}, problem) * p["split_k"] * problem.batch
    large = sides(p)[0] * sides(p)[1] >= LARGE_TILE
    if narrow or large or count <= device.sms:
        return None
    return f"{count} tiles had better be stored in lines"


def _stages_fault(problem: Problem, device: Device, p: Params) -> str | None:
    """As many as fit; or fewer, which leave L2 and the copies more room."""
    one = shared_bytes({**p, "stages": 1}, problem)
    each = shared_bytes({**p, "stages": 2}, problem) - one
    resident = device.shared_per_sm // p["min_blocks"] - device.reserved_shared_per_block
    room = min(device.shared_per_block_optin, resident)
    fitting = (room - one) // each + 1
    if fitting < LEAST_STAGES:
        return f"{fitting} of {each} bytes fit; {LEAST_STAGES} at least"
    turns = -(-steps(p, problem) // p["split_k"])
    most = min(fitting, MOST_STAGES)
    if p["workers"] == 0:
        most = min(most, max(turns, LEAST_STAGES))
    fewer = max(LEAST_STAGES, most - (1 if most < 6 else 2))
    if p["stages"] in (most, fewer):
        return None
    return f"{p['stages']} buffers of {each} bytes; {fewer} and {most} are tried"


def _gathering_fault(problem: Problem, p: Params) -> str | None:
    """The shares of a part lie where the buffers were."""
    (along_x, along_y), (_, name) = sides(p), operand_names(p)
    q_along_k = runs_along_k(p, problem, name)
    room = p["stages"] * stage_bytes(p, problem.element_bytes, q_along_k=q_along_k)
    needed = 4 * along_x * along_y * inner_shares(p) // summers(p)
    if inner_shares(p) == 1 or needed <= room:
        return None
    return f"shares of {needed} bytes; the buffers have {room}"
