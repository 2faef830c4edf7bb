"""Rules of `wgmma` on tiles, operands, registers and buffers, and the list of all its rules."""

from __future__ import annotations

from autotune.device import Device
from autotune.families.family import Rule, accuracy_rule
from autotune.families.plan import Alignment
from autotune.families.shared.limits import capability_fault, grid_fault
from autotune.families.wgmma import k_sharing, tiles
from autotune.families.wgmma.k_sharing import CLUSTER_TILE, RING, SPLIT_TILE, TILE, WARPGROUPS
from autotune.families.wgmma.parameters import (
    MOST_STAGES,
    RESIDENT,
    WgmmaParams,
    epilogue_registers,
)
from autotune.families.wgmma.tiles import (
    INSTRUCTION_ROWS,
    LINE_BYTES,
    across_k,
    kernel_operands,
    readable,
    unaligned_rows,
)
from autotune.problem import GATE_SPAN, SCALE_BLOCK, Problem
from autotune.problem.integers import ceil_div, round_up

TRANSPOSED_USES, SPLIT_USES = 2048, 1024
"""The least reads for which a packed copy pays: a transposed copy of A, and one with a low part."""
LINE_USES = 4096
"""The least reads for which a copy in whole lines pays: at 3000 cubed the GEMM gained 13 % and the
copies cost 20 % of its time (bf16, H100)."""
STREAMED_READS, STREAMED_BYTES = 2, 2**22
"""The most reads of an A that L2 drops first, and its least bytes: at 16x4096x4096 in bf16 the GEMM
took 15.1 us cold instead of 16.9, and 6.9 hot instead of 6.8 (H200)."""
LEAST_PART = 8
"""The unit of columns in a part of a tile that is promoted on its own."""
PROMOTED, UNPROMOTED = 128, 256
"""Terms of K after which the tensor cores' sums, which truncate, must be added up in fp32 to come
near it; and the longest K that needs no promotion."""


def _uses(problem: Problem, operand: str) -> int:
    """The number of multiplications of each element of an operand."""
    return problem.n if operand == "a" else problem.m


def _source_fault(p: WgmmaParams, problem: Problem, _device: Device) -> str | None:
    """A passes through registers to be split, or if it is not K-contiguous."""
    operand, _ = kernel_operands(p.swap)
    if problem.element_bytes != 4:
        bits = 8 * problem.element_bytes
        return (
            None if p.source != "registers" else f"{bits}-bit operands are read from shared memory"
        )
    if problem.products > 1:
        return None if p.source == "registers" else "operands are split in registers"
    transposed = across_k(problem, operand)
    in_place = readable(problem, Alignment.dense(problem), operand)
    if p.source == "registers":
        shared = not in_place or not transposed
        return f"{operand} is best read from shared memory" if shared else None
    uses = _uses(problem, operand)
    if not transposed or uses >= TRANSPOSED_USES or not in_place:
        return None
    return (
        f"a transposed copy of {operand} would be read for {uses} rows; {TRANSPOSED_USES} at least"
    )


def _streamed_fault(p: WgmmaParams, problem: Problem, device: Device) -> str | None:
    """An A that is read once or twice need not stay in L2, and cannot if it is larger."""
    m, _ = p.extents(problem)
    operand, _ = kernel_operands(p.swap)
    size = m * problem.k * problem.element_bytes * problem.batch
    reads = p.cluster_grid(problem)[1] // p.shape.n
    pays = reads <= STREAMED_READS and size >= STREAMED_BYTES
    if p.source == "streamed" and not pays:
        return f"{operand} of {size} bytes is read {reads} times; it may stay in L2"
    if p.source == "shared" and pays and size > device.l2_bytes:
        return f"{operand} of {size} bytes does not stay in an L2 of {device.l2_bytes}"
    return None


def _low_fault(p: WgmmaParams, problem: Problem, _device: Device) -> str | None:
    _, operand = kernel_operands(p.swap)
    if (problem.products > 1) == (p.low == "none"):
        return f"{problem.compute} has {problem.products} products"
    if p.low == "none":
        return None
    in_place = readable(problem, Alignment.dense(problem), operand)
    in_place = in_place and not across_k(problem, operand)
    if p.low == "kernel":
        return None if in_place else f"{operand} is packed anyway, which may as well split it"
    uses = _uses(problem, operand)
    if not in_place or uses >= SPLIT_USES:
        return None
    return f"a copy of {operand} would be read for {uses} rows; {SPLIT_USES} at least"


def _pack_fault(p: WgmmaParams, problem: Problem, _device: Device) -> str | None:
    if p.pack == "needed":
        return None
    dense = Alignment.dense(problem)
    gains = any(
        unaligned_rows(problem, operand)
        and _uses(problem, operand) >= LINE_USES
        and not p.must_pack(problem, dense, operand)
        for operand in ("a", "b")
    )
    return None if gains else "no operand would gain from a copy in whole lines"


def _promote_fault(p: WgmmaParams, problem: Problem, _device: Device) -> str | None:
    if problem.element_bytes == 1:
        return None
    terms = p.promote * p.bk
    if problem.products == 1:
        return f"sums of {problem.compute} need no promotion" if terms else None
    if terms == 0:
        if problem.k <= UNPROMOTED:
            return None
        return f"sums of K={problem.k} terms are truncated too often; {UNPROMOTED} at most"
    if terms <= PROMOTED and terms < problem.k:
        return None
    return f"sums of K={problem.k} terms are promoted after {terms}; {PROMOTED} at most, below K"


def _block_promotion_fault(p: WgmmaParams, problem: Problem, _device: Device) -> str | None:
    """Exact sums of fp8, and sums of blocks of K with scales of their own, are promoted."""
    if problem.element_bytes != 1:
        return None
    blocks = problem.scale == "block"
    exact = problem.accumulate == "exact" and not problem.precision.operand.integer
    promoted = blocks or (exact and problem.k > SCALE_BLOCK)
    if promoted != (p.promote > 0):
        sums = f"{problem.accumulate} sums of {problem.compute} over K={problem.k}"
        return f"{sums}, scale={problem.scale}, with promote={p.promote}"
    if p.promote > 1 and p.tile_n % (LEAST_PART * p.promote):
        return f"{p.tile_n} columns have no {p.promote} parts of multiples of {LEAST_PART}"
    return None


OPERAND_RULES = (
    Rule("source", _source_fault, ("swap", "source")),
    Rule("low part", _low_fault, ("swap", "low")),
    Rule("packing", _pack_fault, ("swap", "source", "low", "pack")),
    Rule("promotion", _promote_fault, ("bk", "promote")),
    Rule("promotion", _block_promotion_fault, (*TILE, "promote")),
    Rule("source", _streamed_fault, (*CLUSTER_TILE, "source"), for_speed=True),
)

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


def _architecture_fault(_p: WgmmaParams, _problem: Problem, device: Device) -> str | None:
    return capability_fault("wgmma", ARCHITECTURE, device, alone=True)


def _tile_fault(p: WgmmaParams, problem: Problem, _device: Device) -> str | None:
    tile_m, tile_n = p.tile_m, p.tile_n
    if tile_m in tiles.TILE_ROWS and tiles.has_columns(problem, p.swap, tile_n):
        return None
    return f"no kernel has tile_m={tile_m} with tile_n={tile_n}; swap={p.swap}"


def _tried_fault(p: WgmmaParams, problem: Problem, device: Device) -> str | None:
    if p.tile_n in tiles.tile_columns(problem, device, p.swap):
        return None
    return f"tile_n={p.tile_n} is not tried; swap={p.swap}"


def _gates_fault(p: WgmmaParams, problem: Problem, _device: Device) -> str | None:
    """A block stores whole pairs of columns."""
    columns = p.tile_n // p.reducers
    if not problem.gated or p.swap or columns % (2 * GATE_SPAN) == 0:
        return None
    return f"a block stores {columns} columns; pairs of them come in multiples of {2 * GATE_SPAN}"


def _size_fault(p: WgmmaParams, problem: Problem, _device: Device) -> str | None:
    m, _ = p.extents(problem)
    if p.tile_m <= round_up(m, INSTRUCTION_ROWS):
        return None
    return f"{p.tile_m} rows for {m}"


def _small_fault(p: WgmmaParams, problem: Problem, device: Device) -> str | None:
    """Larger tiles reuse operands more."""
    (m, n), count = p.extents(problem), p.count(problem)
    plain = min(PLAIN_SIDE, round_up(m, INSTRUCTION_ROWS)) * min(PLAIN_SIDE, round_up(n, 8))
    if count <= MANY_TILES * device.sms or p.elements >= plain:
        return None
    return f"{count} tiles of {p.tile_m}x{p.tile_n}; larger ones keep {device.sms} SMs busy"


def _consumers_fault(p: WgmmaParams, _problem: Problem, _device: Device) -> str | None:
    tile_m, consumers = p.tile_m, p.consumers
    if p.schedule == "pingpong":
        if consumers == 2 and tile_m in (64, 128):
            return None
        return f"{consumers} consumers alternate tiles of {tile_m} rows; 2 with 64 or 128"
    if tile_m in (consumers * 64, consumers * 128):
        return None
    return f"{consumers} consumers share {tile_m} rows; each has 64 or 128"


def _residency_fault(p: WgmmaParams, _problem: Problem, _device: Device) -> str | None:
    consumers = p.consumers
    if (consumers, p.min_blocks) not in RESIDENT:
        return f"there is no kernel of {consumers} consumers for {p.min_blocks} blocks an SM"
    if p.min_blocks > 1 and p.schedule == "pingpong":
        return f"{p.min_blocks} blocks an SM overlap without pingpong"
    return None


def _hiding_fault(p: WgmmaParams, problem: Problem, device: Device) -> str | None:
    """Several blocks an SM hide each other's epilogues; nothing hides that of a lone consumer."""
    lines = problem.k * problem.element_bytes // LINE_BYTES
    if p.min_blocks > 1 and lines > FEW_LINES:
        return f"a K of {lines} lines hides what several blocks an SM would; {FEW_LINES} at most"
    count = p.count(problem)
    if (p.consumers, p.min_blocks) == (1, 1) and count > 2 * device.sms:
        return f"{count} tiles, each with the epilogue of an SM's only consumer"
    return None


def _registers_fault(p: WgmmaParams, problem: Problem, _device: Device) -> str | None:
    available = p.consumer_registers(problem)
    needed = p.register_estimate + p.fragment_registers
    needed += p.scale_registers(problem)
    needed += epilogue_registers(problem, p.promoted_accumulators)
    if needed > available:
        sums = p.promoted_accumulators
        return f"{sums} accumulators make about {needed} registers; a consumer has {available}"
    entry, least = p.entry_registers, p.instruction_registers
    if least > entry:
        return f"an instruction needs {least} registers; a thread has {entry} at the entry"
    return None


def _transposing_registers_fault(p: WgmmaParams, problem: Problem, _device: Device) -> str | None:
    needed, available = p.transposing_registers, p.consumer_registers(problem)
    if needed <= available:
        return None
    step = f"staging {p.rows} transposed rows"
    return f"{step} takes about {needed} registers; a consumer has {available}"


def _gathering_registers_fault(p: WgmmaParams, problem: Problem, _device: Device) -> str | None:
    needed, available = p.gathering_registers, p.consumer_registers(problem)
    if needed <= available:
        return None
    return f"adding up in a cluster takes about {needed} registers; a consumer has {available}"


def _coordinates_fault(p: WgmmaParams, problem: Problem, _device: Device) -> str | None:
    along_m, along_n = p.cluster_grid(problem)
    largest = max(along_m * p.tile_m, along_n * p.tile_n, round_up(problem.k, p.bk))
    if largest <= LARGEST_COORDINATE:
        return None
    return f"tiles end at {largest}; TMA reaches {LARGEST_COORDINATE}"


def _store_fault(p: WgmmaParams, problem: Problem, _device: Device) -> str | None:
    if problem.output_bytes == 4 and p.store == "staged":
        return "32-bit results fill whole sectors without staging"
    return None


def _lines_fault(p: WgmmaParams, problem: Problem, _device: Device) -> str | None:
    """Threads hold 32 bytes of a row of 32-bit elements side by side, but 16 of 16-bit elements."""
    if problem.output_bytes == 4:
        return None
    width = p.rows if p.swap else p.tile_n
    width //= 2 if problem.gated else 1
    narrow = 2 * width * problem.output_bytes < LINE_BYTES
    if p.store == "staged":
        return f"rows of {width} elements fill no line" if narrow else None
    return None if narrow else f"rows of {width} elements should be stored in lines"


def _fit_fault(p: WgmmaParams, problem: Problem, device: Device) -> str | None:
    fitting = p.fitting_stages(problem, device)
    if fitting >= LEAST_STAGES:
        return None
    return f"{fitting} of {p.stage_bytes(problem)} bytes fit; {LEAST_STAGES} at least"


def _stages_fault(p: WgmmaParams, problem: Problem, device: Device) -> str | None:
    """The rule for stages: as many as fit; resident workers may take one or two fewer, which leaves
    L2 and the copies more room."""
    most = min(p.fitting_stages(problem, device), MOST_STAGES)
    if p.workers == 0:
        iterations = ceil_div(ceil_div(problem.k, p.bk), p.split_k)
        most = min(most, max(iterations, LEAST_STAGES))
    fewer = max(LEAST_STAGES, most - (1 if most < 6 else 2)) if p.workers else most
    if p.stages in (most, fewer):
        return None
    stage = p.stage_bytes(problem)
    tried = f"{fewer} and {most} are" if fewer < most else f"{most} is"
    return f"{p.stages} buffers of {stage} bytes; {tried} tried"


def _most_stages_fault(p: WgmmaParams, problem: Problem, device: Device) -> str | None:
    fitting = p.fitting_stages(problem, device)
    if p.stages <= fitting:
        return None
    return f"{p.stages} buffers of {p.stage_bytes(problem)} bytes; {fitting} fit"


def _gathering_fault(p: WgmmaParams, problem: Problem, _device: Device) -> str | None:
    """Partial sums of a cluster overlay the buffers."""
    splits = p.shape.k
    if splits == 1:
        return None
    room = p.stages * p.stage_bytes(problem)
    needed = 4 * p.elements * splits // p.reducers
    return None if needed <= room else f"partial sums of {needed} bytes; the buffers have {room}"


RULES = (
    Rule("architecture", _architecture_fault),
    Rule("tile", _tile_fault, TILE),
    Rule("tile", _tried_fault, TILE, for_speed=True),
    Rule("larger than the matrix", _size_fault, TILE, for_speed=True),
    Rule("small tiles", _small_fault, TILE, for_speed=True),
    Rule("consumers", _consumers_fault, WARPGROUPS),
    Rule("residency", _residency_fault, (*WARPGROUPS, "min_blocks")),
    Rule("residency", _hiding_fault, (*WARPGROUPS, "min_blocks"), for_speed=True),
    *OPERAND_RULES,
    Rule("registers", _registers_fault, (*WARPGROUPS, "low", "promote", "min_blocks", "source")),
    Rule("registers", _transposing_registers_fault, (*WARPGROUPS, "min_blocks", "store")),
    *k_sharing.SHARING_RULES,
    Rule("registers", _gathering_registers_fault, (*WARPGROUPS, "cluster", "min_blocks")),
    Rule("gates", _gates_fault, CLUSTER_TILE),
    Rule("coordinates", _coordinates_fault, (*CLUSTER_TILE, "bk")),
    Rule("grid", lambda p, problem, _: grid_fault(p.units(problem)), SPLIT_TILE),
    Rule("store", _store_fault, ("store",)),
    Rule("store", _lines_fault, (*WARPGROUPS, "store"), for_speed=True),
    Rule("stages", _fit_fault, RING),
    Rule("stages", _most_stages_fault, (*RING, "stages")),
    Rule("stages", _stages_fault, (*RING, "split_k", "workers", "stages"), for_speed=True),
    Rule("gathering", _gathering_fault, (*TILE, "low", "bk", "cluster", "stages")),
    accuracy_rule(k_sharing.SUMMATION),
)
"""The rules of `wgmma`, cheapest first."""
