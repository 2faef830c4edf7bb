"""The parameters of `wgmma`, and the threads, registers and shared memory that they take."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, get_args

from autotune.device import Device
from autotune.families.family import parameter, parameter_from
from autotune.families.plan import Alignment
from autotune.families.shared import packing, tiling
from autotune.families.shared.arguments import along_k
from autotune.families.shared.cuda_enums import WGMMA_REDUCTION, WgmmaReduction
from autotune.families.shared.limits import LARGEST_THREAD_REGISTERS
from autotune.families.wgmma import tiles
from autotune.families.wgmma.tiles import (
    CLUSTERS,
    INSTRUCTION_ROWS,
    LINE_BYTES,
    SplitTile,
    across_k,
    kernel_operands,
    readable,
    unaligned_rows,
)
from autotune.problem import SCALE_BLOCK, Problem
from autotune.problem.integers import ceil_div, round_up

Schedule = Literal["cooperative", "pingpong"]
"""Consumers share each tile, or alternate tiles."""
Staging = Literal["direct", "staged"]
"""C is stored from registers, or through shared memory in whole lines."""
Source = Literal["shared", "streamed", "registers"]
"""The memory from which tensor cores read A: `streamed` is shared memory too, but L2 drops A
first."""
Low = Literal["none", "kernel", "pass"]
"""The place where the low part of B is made: none, the kernel, or a packing pass before it."""
PackPolicy = Literal["needed", "lines"]
"""Operands to pack: those TMA cannot read, or also those whose rows start within cache lines."""
PART_BYTES = 256
"""Each part of the workspace starts at a multiple of this."""

WARPGROUP = 128
"""Threads of a warpgroup."""
FIXED_SHARED = 2048
"""Bytes besides the buffers: barriers, and the alignment of the buffers."""
FLOAT_BYTES = 4
SM_REGISTERS = 65536
MOST_STAGES = 16
"""Stages of the ring; more of small tiles wait for nothing."""

RESIDENT = ((1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (3, 1))
"""Consumers and resident blocks for which there are kernels."""
PRODUCER_REGISTERS, LEAN_PRODUCER_REGISTERS, FEW_ENTRY_REGISTERS = 56, 40, 80
"""Registers that a producer's thread keeps: 8 fewer if it has at most 80 at the entry; those that
it keeps for 8-bit operands, whose sums take the most, unless it loads scales; and that 80."""
OTHER_REGISTERS, MANY_ACCUMULATORS, STORE_REGISTERS = 40, 128, 8
"""Registers besides the accumulators: addresses and counters; above 128 accumulators also the
registers that store them."""
TRANSPOSING_REGISTERS = 44
"""Registers where 128 rows or more of a transposed tile are staged: the lines to store (NVRTC
13)."""
PROMOTING_REGISTERS = 32
"""Registers besides the fp8 accumulators while parts of them are promoted."""
ACTIVATION_REGISTERS = 16, 24
"""Registers for an activation other than ReLU: up to `MANY_ACCUMULATORS`, and above (NVRTC 13)."""
RESIDUAL_REGISTERS = 32
"""Registers for a residual: two parts of a tile, one of them in flight."""
GATHERING_REGISTERS = 32
"""Registers while a cluster adds up its partial sums, besides the sums and a block's part of
them."""
SPLIT_REGISTERS = 8
"""Registers for the low part of 64 rows of A; promotion leaves room for the second 64 rows."""
INSTRUCTION_REGISTERS, FRAGMENT_REGISTERS = 26, 4
"""Registers besides the accumulators of one instruction, which must fit what a thread has at the
kernel's entry (ptxas C7602); and for A's fragment of each instruction, if that comes through
registers."""


def epilogue_registers(problem: Problem, accumulators: int) -> int:
    """Registers of a consumer's thread for a residual, an activation or SwiGLU."""
    if problem.has_residual:
        return RESIDUAL_REGISTERS
    if problem.activation in (None, "relu") and not problem.gated:
        return 0
    return ACTIVATION_REGISTERS[accumulators > MANY_ACCUMULATORS]


def _store_registers(accumulators: int) -> int:
    return STORE_REGISTERS if accumulators > MANY_ACCUMULATORS else 0


def _sources(problem: Problem, _device: Device) -> tuple[Source, ...]:
    if problem.element_bytes == 4:
        return "shared", "streamed", "registers"
    return "shared", "streamed"


def _workers(_problem: Problem, device: Device) -> tuple[int, ...]:
    sizes = {cluster.blocks for cluster in CLUSTERS.values()}
    resident = {device.cluster_sms(size) for size in sizes} if device.has_clusters else set()
    return tuple(sorted({0} | resident | {blocks * device.sms for blocks in (1, 2, 3)}))


def copies_end(copies: Sequence[packing.Copy]) -> int:
    """The offset of the next part of the workspace, in bytes."""
    return round_up(copies[-1].start + copies[-1].bytes, PART_BYTES) if copies else 0


@dataclass
class WgmmaParams(SplitTile):
    """Parameters of the warp-specialised Hopper kernel.

    Attributes:
        swap: 1 computes the transpose of C (swap-AB), for short or awkwardly stored operands.
        bm, bn: rows and columns of C that a block computes at a time.
        consumers: consumer warpgroups, fed by one producer warpgroup.
        schedule: consumers share each tile (`cooperative`) or alternate tiles (`pingpong`).
        min_blocks: resident blocks an SM.
        source: where the tensor cores read the kernel's A: `shared` memory, `streamed` through it
            so that L2 drops it first, or `registers`, which 32-bit operands that are not
            K-contiguous go through.
        low: what makes B's low part of `tf32x3`: the `kernel` or a packing `pass` before it.
        pack: which operands are packed first: those TMA cannot read (`needed`), or also those whose
            rows start within cache lines (`lines`).
        bk: K elements of a stage.
        promote: stages after which accumulators are added up in fp32 registers; 0 is never. Of fp8
            they are after each 128 of K, in so many parts of a tile's columns.
        cluster: blocks of a cluster along M x N, or along M x N x K.
        split_k: splits of the K of a tile.
        reduction: how partial sums of different blocks become C: `none` has no such sums, `fused`
            adds them up in the last block, `stream` is stream-K over `workers` blocks.
        workers: blocks that stay resident and take one work unit after the other; 0 launches a
            block for each unit.
        store: accumulators are stored `direct`, or `staged` through shared memory in whole lines.
        stages: stages of the ring in shared memory.
        group: rows of tiles whose tiles are computed together, for reuse in L2.
    """

    swap: int = parameter_from(lambda problem, _: tiles.swaps(problem))
    bm: int = parameter_from(partial(tiles.sides, upright=0), for_speed=True)
    bn: int = parameter_from(partial(tiles.sides, upright=1), for_speed=True)
    consumers: int = parameter(1, 2, 3)
    schedule: Schedule = parameter(*get_args(Schedule))
    min_blocks: int = parameter(1, 2, 3)
    source: Source = parameter_from(_sources)
    low: Low = parameter_from(
        lambda problem, _: ("none", "kernel", "pass") if problem.products > 1 else ("none",)
    )
    pack: PackPolicy = parameter(*get_args(PackPolicy))
    bk: int = parameter_from(
        lambda problem, _: tuple(lines * LINE_BYTES // problem.element_bytes for lines in (1, 2))
    )
    promote: int = parameter_from(
        lambda problem, _: (
            (0, 1, 2, 4) if problem.products > 1 or problem.element_bytes == 1 else (0,)
        )
    )
    cluster: str = parameter(*CLUSTERS)
    split_k: int = parameter(1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 48, 64, 128)
    reduction: WgmmaReduction = parameter(*WGMMA_REDUCTION)
    workers: int = parameter_from(_workers, for_speed=True)
    store: Staging = parameter(*get_args(Staging))
    stages: int = parameter(*range(3, MOST_STAGES + 1))
    group: int = parameter(1, 2, 4, 8, 16)

    def transposes(self, problem: Problem, operand: str) -> bool:
        """Whether the kernel reads a transposed copy of the operand."""
        if not across_k(problem, operand):
            return False
        return self.source != "registers" or operand == kernel_operands(self.swap)[1]

    def k_contiguous(self, problem: Problem, operand: str) -> bool:
        """Whether the rows that the kernel reads run along K."""
        return along_k(problem, operand) or self.transposes(problem, operand)

    def splits(self, operand: str) -> bool:
        """Whether packing also writes the operand's low part."""
        return self.low == "pass" and operand == kernel_operands(self.swap)[1]

    def must_pack(self, problem: Problem, alignment: Alignment, operand: str) -> bool:
        """Whether the kernel cannot read the operand where it is."""
        return (
            self.transposes(problem, operand)
            or self.splits(operand)
            or not readable(problem, alignment, operand)
        )

    def packs(self, problem: Problem, alignment: Alignment, operand: str) -> bool:
        """Whether the operand is packed, because it has to be or for the sake of whole lines."""
        lines = self.pack == "lines" and unaligned_rows(problem, operand)
        return lines or self.must_pack(problem, alignment, operand)

    def copies(self, problem: Problem, alignment: Alignment) -> tuple[packing.Copy, ...]:
        """The packed copies of the operands, one after the other in the workspace."""
        copies: list[packing.Copy] = []
        for operand in ("a", "b"):
            if self.packs(problem, alignment, operand):
                copies.append(
                    packing.copy(
                        problem,
                        operand,
                        transposed=self.transposes(problem, operand),
                        low=self.splits(operand),
                        start=copies_end(copies),
                        line=LINE_BYTES,
                    )
                )
        return tuple(copies)

    def packed_bytes(self, problem: Problem) -> int:
        """Bytes of the packed copies of dense operands, without the gaps between them."""
        return sum(copy.bytes for copy in self.copies(problem, Alignment.dense(problem)))

    def streamed(self, problem: Problem) -> int:
        """Tiles, of a whole cluster each, whose K the stream-K workers share."""
        if self.reduction != "stream":
            return 0
        size = self.shape.blocks
        return tiling.streamed_tiles(self.tiles(problem) // size, self.workers // size)

    def blocks(self, problem: Problem) -> int:
        """Blocks of the launch, in whole clusters.

        Workers are the fewest that take no more work units each: SMs that idle anyway leave the
        others more power and bandwidth.
        """
        size = self.shape.blocks
        units, workers = self.units(problem) // size, self.workers // size
        if self.workers == 0:
            return units * size
        if self.reduction == "stream":
            return workers * size
        return ceil_div(units, ceil_div(units, workers)) * size

    def launch_grid(self, problem: Problem) -> tuple[int, int, int]:
        """Blocks of the launch: persistent ones, or of a tile, a split of its K and a matrix."""
        if self.workers:
            return self.blocks(problem), 1, 1
        return self.tiles(problem) * self.shape.k, self.grid_splits, problem.batch

    def partial_floats(self, problem: Problem) -> int:
        """Floats of workspace that hold partial sums until they are added up."""
        match self.reduction:
            case "fused":
                count = problem.batch * self.tiles(problem) * self.grid_splits
                return count * self.elements
            case "stream":
                return 2 * self.workers * self.elements
        return 0

    def counters(self, problem: Problem) -> int:
        """Counters of finished splits: one for each tile, or for each reducer's part of it."""
        if self.reduction == "none":
            return 0
        return problem.batch * self.tiles(problem) * self.reducers

    @property
    def threads(self) -> int:
        """Threads a block: the producer's warpgroup and the consumers'."""
        return WARPGROUP * (self.consumers + 1)

    @property
    def entry_registers(self) -> int:
        """Registers of a thread at the kernel's entry: the SM's, shared evenly in steps of 8."""
        even = SM_REGISTERS // self.min_blocks // self.threads // 8 * 8
        return min(LARGEST_THREAD_REGISTERS, even)

    @property
    def launch_registers(self) -> int:
        """Registers a thread that a block is launched with.

        Where the producer gives registers to the consumers it is all that there are; a lone
        consumer of a lone block leaves the registers as they are.
        """
        if (self.consumers, self.min_blocks) != (1, 1):
            return self.entry_registers
        return min(LARGEST_THREAD_REGISTERS, max(self.register_estimate, self.gathering_registers))

    def consumer_registers(self, problem: Problem) -> int:
        """Registers of a consumer's thread, after the producer has given its own away."""
        entry, consumers = self.entry_registers, self.consumers
        if (consumers, self.min_blocks) == (1, 1):
            return entry
        kept = PRODUCER_REGISTERS - (8 if entry <= FEW_ENTRY_REGISTERS else 0)
        if problem.element_bytes == 1 and problem.scale != "block":
            kept = LEAN_PRODUCER_REGISTERS
        return (entry * (consumers + 1) - kept) // consumers // 8 * 8

    @property
    def instruction_registers(self) -> int:
        """Registers that one instruction needs to compile."""
        fragment = FRAGMENT_REGISTERS if self.source == "registers" else 0
        return self.tile_n // 2 + INSTRUCTION_REGISTERS + fragment

    @cached_property
    def rows(self) -> int:
        """Rows of tile_m that a consumer computes."""
        return self.tile_m if self.schedule == "pingpong" else self.tile_m // self.consumers

    @cached_property
    def instructions(self) -> int:
        """Instructions of 64 rows that cover a consumer's rows."""
        return self.rows // INSTRUCTION_ROWS

    @cached_property
    def accumulators(self) -> int:
        """Accumulator registers of a consumer's thread."""
        return self.instructions * self.tile_n // 2

    @property
    def transposing_registers(self) -> int:
        """Registers of a consumer's thread while it stages a transposed tile."""
        if not self.swap or self.store == "direct" or self.instructions == 1:
            return 0
        sums = self.accumulators
        return sums + OTHER_REGISTERS + _store_registers(sums) + TRANSPOSING_REGISTERS

    @cached_property
    def gathering_registers(self) -> int:
        """Registers of a consumer's thread while the blocks of a cluster add up their splits."""
        if self.shape.k == 1:
            return 0
        sums = self.accumulators
        return sums + sums // self.reducers + _store_registers(sums) + GATHERING_REGISTERS

    @cached_property
    def promoted_accumulators(self) -> int:
        """Accumulators of a consumer's thread, with those whose sums are promoted: as many again
        for split operands, else two sets for parts of an instruction's columns."""
        if not self.promote:
            return self.accumulators
        promoted = 2 * (self.tile_n // 2 // self.promote)
        return self.accumulators + (promoted if self.low == "none" else self.accumulators)

    @cached_property
    def register_estimate(self) -> int:
        """Registers of a consumer's thread in the main loop and the epilogue (NVRTC 13)."""
        sums = self.promoted_accumulators
        halves = 1 if self.promote else self.instructions
        split = SPLIT_REGISTERS * halves if self.low != "none" else 0
        stored = self.accumulators if self.low == "none" else sums
        promoting = self.promote and self.low == "none"
        addresses = PROMOTING_REGISTERS if promoting else OTHER_REGISTERS
        return sums + addresses + _store_registers(stored) + split

    @property
    def fragment_registers(self) -> int:
        """Registers of a consumer's thread for the fragments of A; parts of split ones are counted
        by `register_estimate`."""
        plain = self.source == "registers" and self.low == "none"
        return FRAGMENT_REGISTERS * self.instructions if plain else 0

    def scale_registers(self, problem: Problem) -> int:
        """Registers of a consumer's thread for the scales of the rows of A in two parts of a
        transposed tile."""
        if problem.scale != "block" or not self.swap:
            return 0
        return 2 * (self.tile_n // 4 // self.promote)

    def b_rows(self, problem: Problem) -> int:
        """Rows of B that a block loads: whole spans of 64 unless B is K-contiguous as it is read,
        which 16-bit operands may not be."""
        if problem.element_bytes != 2 or along_k(problem, kernel_operands(self.swap)[1]):
            return self.tile_n
        return round_up(self.tile_n, INSTRUCTION_ROWS)

    def stage_bytes(self, problem: Problem) -> int:
        """Shared memory of one stage."""
        low_rows = self.tile_n if self.low != "none" else 0
        rows = self.tile_m + self.b_rows(problem) + low_rows
        return self.bk * problem.element_bytes * rows

    def scale_bytes(self, problem: Problem) -> int:
        """Shared memory, at most, of the scales of a stage's blocks of K: of the rows of A and of
        the blocks of columns of B."""
        if problem.scale != "block":
            return 0
        rows, columns = self.bm, self.bn // INSTRUCTION_ROWS + 1
        return FLOAT_BYTES * self.bk // SCALE_BLOCK * round_up(rows + columns, 4)

    def store_bytes(self, output_bytes: int) -> int:
        """Shared memory in which the consumers arrange their results in lines before storing them.

        Each consumer has room for two parts: one line of 128 bytes of each row of C that an
        instruction computes.
        """
        if self.store == "direct":
            return 0
        lines = 1 if self.swap else ceil_div(self.tile_n * output_bytes, LINE_BYTES)
        rows = self.tile_n if self.swap else INSTRUCTION_ROWS
        parts = min(2, self.instructions * lines)
        return self.consumers * parts * rows * LINE_BYTES

    def shared_bytes(self, stages: int, problem: Problem) -> int:
        """Shared memory of a block with a number of stages."""
        fixed = FIXED_SHARED + self.store_bytes(problem.output_bytes)
        return fixed + stages * (self.stage_bytes(problem) + self.scale_bytes(problem))

    def fitting_stages(self, problem: Problem, device: Device) -> int:
        """Stages that fit if `min_blocks` blocks are resident on an SM."""
        resident = device.shared_per_sm // self.min_blocks - device.reserved_shared_per_block
        room = min(device.shared_per_block_optin, resident) - self.shared_bytes(0, problem)
        return room // (self.stage_bytes(problem) + self.scale_bytes(problem))
