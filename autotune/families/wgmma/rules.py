"""Rules of `wgmma` on tiles, warpgroups, registers and buffers, and the list of all its rules."""

from __future__ import annotations

from autotune.device import Device
from autotune.families.rules import Rule
from autotune.families.shared.launch_limits import grid_fault
from autotune.families.wgmma import k_sharing, operand_rules, summation, tile_choice
from autotune.families.wgmma.operands import LINE_BYTES, Source
from autotune.families.wgmma.resources import (
    INSTRUCTION_ROWS,
    MOST_STAGES,
    RESIDENT,
    Accumulation,
    ClusterWarpgroups,
    Ring,
    Stage,
    Staging,
    Warpgroups,
    consumer_registers,
    entry_registers,
    epilogue_registers,
    instruction_registers,
)
from autotune.families.wgmma.tiles import ClusterTile, SplitTile, WgmmaTile
from autotune.problem import GATE_SPAN, Problem
from autotune.problem.integers import ceil_div, round_up

ARCHITECTURE = (9, 0)
LARGEST_COORDINATE = 2**31 - 1
"""The largest row or column that TMA takes."""
MANY_TILES = 12
"""Tiles an SM above which small tiles have no advantage."""
PLAIN_SIDE = 128
"""The side from which a tile is not small."""
FEW_LINES = 4
"""Lines of K up to which a block ends so soon that another on the same SM pays."""
LEAST_STAGES = 3


def _architecture_fault(device: Device) -> str | None:
    if device.compute_capability == ARCHITECTURE:
        return None
    major, minor = device.compute_capability
    return f"wgmma is of compute capability 9.0 alone; {device.name} has {major}.{minor}"


def _tile_fault(tile: WgmmaTile, problem: Problem) -> str | None:
    tile_m, tile_n = tile.tile_m, tile.tile_n
    if tile_m in tile_choice.TILE_ROWS and tile_choice.has_columns(problem, tile.swap, tile_n):
        return None
    return f"no kernel has tile_m={tile_m} with tile_n={tile_n}; swap={tile.swap}"


def _tried_fault(tile: WgmmaTile, problem: Problem, device: Device) -> str | None:
    if tile.tile_n in tile_choice.tile_columns(problem, device, tile.swap):
        return None
    return f"tile_n={tile.tile_n} is not tried; swap={tile.swap}"


def _gates_fault(tile: ClusterTile, problem: Problem) -> str | None:
    """A block stores whole pairs of columns."""
    columns = tile.tile_n // tile.reducers
    if not problem.gated or tile.swap or columns % (2 * GATE_SPAN) == 0:
        return None
    return f"a block stores {columns} columns; pairs of them come in multiples of {2 * GATE_SPAN}"


def _size_fault(tile: WgmmaTile, problem: Problem) -> str | None:
    m, _ = tile.extents(problem)
    if tile.tile_m <= round_up(m, INSTRUCTION_ROWS):
        return None
    return f"{tile.tile_m} rows for {m}"


def _small_fault(tile: WgmmaTile, problem: Problem, device: Device) -> str | None:
    """Larger tiles reuse operands more."""
    (m, n), count = tile.extents(problem), tile.count(problem)
    plain = min(PLAIN_SIDE, round_up(m, INSTRUCTION_ROWS)) * min(PLAIN_SIDE, round_up(n, 8))
    if count <= MANY_TILES * device.sms or tile.elements >= plain:
        return None
    return f"{count} tiles of {tile.tile_m}x{tile.tile_n}; larger ones keep {device.sms} SMs busy"


def _consumers_fault(groups: Warpgroups) -> str | None:
    tile_m, consumers = groups.tile_m, groups.consumers
    if groups.schedule == "pingpong":
        if consumers == 2 and tile_m in (64, 128):
            return None
        return f"{consumers} consumers alternate tiles of {tile_m} rows; 2 with 64 or 128"
    if tile_m in (consumers * 64, consumers * 128):
        return None
    return f"{consumers} consumers share {tile_m} rows; each has 64 or 128"


def _residency_fault(groups: Warpgroups, min_blocks: int) -> str | None:
    consumers = groups.consumers
    if (consumers, min_blocks) not in RESIDENT:
        return f"there is no kernel of {consumers} consumers for {min_blocks} blocks an SM"
    if min_blocks > 1 and groups.schedule == "pingpong":
        return f"{min_blocks} blocks an SM overlap without pingpong"
    return None


def _hiding_fault(
    groups: Warpgroups, min_blocks: int, problem: Problem, device: Device
) -> str | None:
    """Several blocks an SM hide each other's epilogues; nothing hides that of a lone consumer."""
    lines = problem.k * problem.element_bytes // LINE_BYTES
    if min_blocks > 1 and lines > FEW_LINES:
        return f"a K of {lines} lines hides what several blocks an SM would; {FEW_LINES} at most"
    count = groups.count(problem)
    if (groups.consumers, min_blocks) == (1, 1) and count > 2 * device.sms:
        return f"{count} tiles, each with the epilogue of an SM's only consumer"
    return None


def _registers_fault(
    loop: Accumulation, min_blocks: int, source: Source, problem: Problem
) -> str | None:
    available = consumer_registers(loop.consumers, min_blocks, problem)
    needed = loop.register_estimate + loop.fragment_registers(source)
    needed += loop.scale_registers(problem)
    needed += epilogue_registers(problem, loop.promoted_accumulators)
    if needed > available:
        sums = loop.promoted_accumulators
        return f"{sums} accumulators make about {needed} registers; a consumer has {available}"
    entry = entry_registers(loop.consumers, min_blocks)
    least = instruction_registers(loop.tile_n, source)
    if least > entry:
        return f"an instruction needs {least} registers; a thread has {entry} at the entry"
    return None


def _transposing_registers_fault(
    groups: Warpgroups, min_blocks: int, store: Staging, problem: Problem
) -> str | None:
    needed = groups.transposing_registers(store)
    step = f"staging {groups.rows} transposed rows"
    return _step_fault(step, needed, groups, min_blocks, problem)


def _gathering_registers_fault(
    groups: ClusterWarpgroups, min_blocks: int, problem: Problem
) -> str | None:
    needed = groups.gathering_registers
    return _step_fault("adding up in a cluster", needed, groups, min_blocks, problem)


def _step_fault(
    step: str, needed: int, groups: Warpgroups, min_blocks: int, problem: Problem
) -> str | None:
    available = consumer_registers(groups.consumers, min_blocks, problem)
    if needed <= available:
        return None
    return f"{step} takes about {needed} registers; a consumer has {available}"


def _coordinates_fault(tile: ClusterTile, bk: int, problem: Problem) -> str | None:
    along_m, along_n = tile.cluster_grid(problem)
    largest = max(along_m * tile.tile_m, along_n * tile.tile_n, round_up(problem.k, bk))
    if largest <= LARGEST_COORDINATE:
        return None
    return f"tiles end at {largest}; TMA reaches {LARGEST_COORDINATE}"


def _grid_fault(tile: SplitTile, problem: Problem) -> str | None:
    return grid_fault(tile.units(problem))


def _store_fault(store: Staging, problem: Problem) -> str | None:
    if problem.output_bytes == 4 and store == "staged":
        return "32-bit results fill whole sectors without staging"
    return None


def _lines_fault(groups: Warpgroups, store: Staging, problem: Problem) -> str | None:
    """Threads hold 32 bytes of a row of 32-bit elements side by side, but 16 of 16-bit elements."""
    if problem.output_bytes == 4:
        return None
    width = groups.rows if groups.swap else groups.tile_n
    width //= 2 if problem.gated else 1
    narrow = 2 * width * problem.output_bytes < LINE_BYTES
    if store == "staged":
        return f"rows of {width} elements fill no line" if narrow else None
    return None if narrow else f"rows of {width} elements should be stored in lines"


def _fit_fault(ring: Ring, problem: Problem, device: Device) -> str | None:
    fitting = ring.fitting_stages(problem, device)
    if fitting >= LEAST_STAGES:
        return None
    return f"{fitting} of {ring.stage_bytes(problem)} bytes fit; {LEAST_STAGES} at least"


def _stages_fault(
    ring: Ring, split_k: int, workers: int, stages: int, problem: Problem, device: Device
) -> str | None:
    """As many stages as fit; of resident workers also one or two fewer, which leave L2 and the
    copies more room."""
    most = min(ring.fitting_stages(problem, device), MOST_STAGES)
    if workers == 0:
        iterations = ceil_div(ceil_div(problem.k, ring.bk), split_k)
        most = min(most, max(iterations, LEAST_STAGES))
    fewer = max(LEAST_STAGES, most - (1 if most < 6 else 2)) if workers else most
    if stages in (most, fewer):
        return None
    stage = ring.stage_bytes(problem)
    tried = f"{fewer} and {most} are" if fewer < most else f"{most} is"
    return f"{stages} buffers of {stage} bytes; {tried} tried"


def _most_stages_fault(ring: Ring, stages: int, problem: Problem, device: Device) -> str | None:
    fitting = ring.fitting_stages(problem, device)
    if stages <= fitting:
        return None
    return f"{stages} buffers of {ring.stage_bytes(problem)} bytes; {fitting} fit"


def _gathering_fault(stage: Stage, tile: ClusterTile, stages: int, problem: Problem) -> str | None:
    """Partial sums of a cluster overlay the buffers."""
    splits = tile.shape.k
    if splits == 1:
        return None
    room = stages * stage.stage_bytes(problem)
    needed = 4 * tile.elements * splits // tile.reducers
    return None if needed <= room else f"partial sums of {needed} bytes; the buffers have {room}"


RULES = (
    Rule("architecture", _architecture_fault),
    Rule("tile", _tile_fault),
    Rule("tile", _tried_fault, for_speed=True),
    Rule("larger than the matrix", _size_fault, for_speed=True),
    Rule("small tiles", _small_fault, for_speed=True),
    Rule("consumers", _consumers_fault),
    Rule("residency", _residency_fault),
    Rule("residency", _hiding_fault, for_speed=True),
    *operand_rules.RULES,
    Rule("registers", _registers_fault),
    Rule("registers", _transposing_registers_fault),
    *k_sharing.RULES,
    Rule("registers", _gathering_registers_fault),
    Rule("gates", _gates_fault),
    Rule("coordinates", _coordinates_fault),
    Rule("grid", _grid_fault),
    Rule("store", _store_fault),
    Rule("store", _lines_fault, for_speed=True),
    Rule("stages", _fit_fault),
    Rule("stages", _most_stages_fault),
    Rule("stages", _stages_fault, for_speed=True),
    Rule("gathering", _gathering_fault),
    *summation.RULES,
)
"""The rules of `wgmma`, cheapest first."""
