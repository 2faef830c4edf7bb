"""What a block of `wgmma` takes of an SM: threads, registers and shared memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from autotune.families.shared.launch_limits import LARGEST_THREAD_REGISTERS
from autotune.families.wgmma.operands import LINE_BYTES, Low, Source, b_is_k_contiguous
from autotune.families.wgmma.tiles import ClusterTile, Tile
from autotune.problem import Problem
from autotune.problem.integers import ceil_div, round_up

Schedule = Literal["cooperative", "pingpong"]
"""Consumers share each tile, or alternate tiles."""
Staging = Literal["direct", "staged"]
"""C is stored from registers, or through shared memory in whole lines."""

WARPGROUP, INSTRUCTION_ROWS = 128, 64
"""Threads of a warpgroup, and the rows of tile_m that one instruction of it computes."""
FIXED_SHARED = 2048
"""Bytes besides the buffers: barriers, and the alignment of the buffers."""
SM_REGISTERS = 65536

CONSUMER_REGISTERS = {
    (1, 1): 255,
    (1, 2): 200,
    (1, 3): 112,
    (2, 1): 224,
    (2, 2): 96,
    (3, 1): 152,
}
"""Registers of a consumer's thread by consumers and resident blocks, after the producer has given
its own away. There are kernels for these pairs only."""
OTHER_REGISTERS, MANY_ACCUMULATORS, STORE_REGISTERS = 40, 128, 8
"""Besides the accumulators: addresses and counters; and above 128 accumulators, those that store
them."""
GELU_REGISTERS = 24
"""For the error function of the epilogue."""
GATHERING_REGISTERS = 32
"""While a cluster adds up its partial sums, besides the sums and a block's part of them."""
SPLIT_REGISTERS = 8
"""For the low part of 64 rows of A; promotion leaves room for the second 64 rows."""
INSTRUCTION_REGISTERS, FRAGMENT_REGISTERS = 26, 4
"""Besides the accumulators of one instruction, which must fit what a thread has at the kernel's
entry (ptxas C7602); and for A's fragment, if that comes through registers."""


def thread_count(consumers: int) -> int:
    """Threads a block: the producer's warpgroup and the consumers'."""
    return WARPGROUP * (consumers + 1)


@dataclass(frozen=True)
class Warpgroups(Tile):
    """The consumers of a tile: each computes a part of it, or with pingpong a whole one."""

    consumers: int
    schedule: Schedule

    @property
    def rows(self) -> int:
        """Rows of tile_m that a consumer computes."""
        return self.tile_m if self.schedule == "pingpong" else self.tile_m // self.consumers

    @property
    def instructions(self) -> int:
        """Instructions of 64 rows that cover a consumer's rows."""
        return self.rows // INSTRUCTION_ROWS

    @property
    def accumulators(self) -> int:
        """Accumulator registers of a consumer's thread."""
        return self.instructions * self.tile_n // 2


@dataclass(frozen=True)
class ClusterWarpgroups(ClusterTile, Warpgroups):
    """The consumers of a tile in a cluster, which may add up splits of K."""

    @property
    def gathering_registers(self) -> int:
        """Registers of a consumer's thread while the blocks of a cluster add up their splits."""
        if self.shape.k == 1:
            return 0
        sums = self.accumulators
        return sums + sums // self.reducers + _store_registers(sums) + GATHERING_REGISTERS


@dataclass(frozen=True)
class Accumulation(Warpgroups):
    """The registers of the main loop."""

    low: Low
    promote: int

    @property
    def promoted_accumulators(self) -> int:
        """Accumulators of a consumer's thread, counting the fp32 sums that promotion keeps."""
        return self.accumulators * (2 if self.promote else 1)

    @property
    def register_estimate(self) -> int:
        """Registers of a consumer's thread in the main loop and the epilogue (NVRTC 13)."""
        sums = self.promoted_accumulators
        halves = 1 if self.promote else self.instructions
        split = SPLIT_REGISTERS * halves if self.low != "none" else 0
        return sums + OTHER_REGISTERS + _store_registers(sums) + split


def _store_registers(accumulators: int) -> int:
    return STORE_REGISTERS if accumulators > MANY_ACCUMULATORS else 0


def instruction_registers(tile_n: int, source: Source) -> int:
    """Registers that one instruction needs to compile."""
    fragment = FRAGMENT_REGISTERS if source == "registers" else 0
    return tile_n // 2 + INSTRUCTION_REGISTERS + fragment


def entry_registers(consumers: int, min_blocks: int) -> int:
    """Registers of a thread at the kernel's entry: the SM's, shared evenly in steps of 8."""
    even = SM_REGISTERS // min_blocks // thread_count(consumers) // 8 * 8
    return min(LARGEST_THREAD_REGISTERS, even)


def launch_registers(consumers: int, min_blocks: int, needed: int) -> int:
    """Registers a thread that a block is launched with, if its consumers need `needed`.

    Where the producer gives registers to the consumers it is all that there are; a lone consumer of
    a lone block leaves the registers as they are.
    """
    if (consumers, min_blocks) == (1, 1):
        return min(LARGEST_THREAD_REGISTERS, needed)
    return entry_registers(consumers, min_blocks)


def b_rows(tile: Tile, problem: Problem) -> int:
    """Rows of B that a block loads: whole spans of 64 unless B is K-contiguous."""
    contiguous = b_is_k_contiguous(problem, tile.swap)
    return tile.tile_n if contiguous else round_up(tile.tile_n, INSTRUCTION_ROWS)


def stage_bytes(tile: Tile, low: Low, row_bytes: int, b_rows: int) -> int:
    """Shared memory of one stage: bk elements of A, of B and of B's low part."""
    low_rows = tile.tile_n if low != "none" else 0
    return row_bytes * (tile.tile_m + b_rows + low_rows)


def store_bytes(groups: Warpgroups, store: Staging, output_bytes: int) -> int:
    """Shared memory in which the consumers arrange their results in lines before storing them.

    Each consumer has room for two parts: one line of 128 bytes of each row of C that an instruction
    computes.
    """
    if store == "direct":
        return 0
    lines = 1 if groups.swap else ceil_div(groups.tile_n * output_bytes, LINE_BYTES)
    rows = groups.tile_n if groups.swap else INSTRUCTION_ROWS
    parts = min(2, groups.instructions * lines)
    return groups.consumers * parts * rows * LINE_BYTES


def shared_bytes(
    groups: Warpgroups, low: Low, bk: int, store: Staging, stages: int, problem: Problem
) -> int:
    """Shared memory of a block."""
    stage = stage_bytes(groups, low, bk * problem.element_bytes, b_rows(groups, problem))
    return FIXED_SHARED + stages * stage + store_bytes(groups, store, problem.output_bytes)
