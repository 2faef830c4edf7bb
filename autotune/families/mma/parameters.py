"""Parameters of `mma`, and what follows from them: tiles, registers, bytes."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd, prod
from typing import Literal

from autotune.device import Device
from autotune.families.family import parameter, parameter_from
from autotune.families.plan import Alignment
from autotune.families.shared.arguments import along_k, transposed
from autotune.families.shared.limits import has_cp_async
from autotune.families.shared.packing import PACKS, Pack
from autotune.families.shared.tiling import WarpTiles, buffer_bytes
from autotune.problem import PRECISIONS, Precision, Problem
from autotune.problem.integers import ceil_div


def converts(problem: Problem, device: Device) -> bool:
    """Whether 8-bit floats are multiplied as fp16: everywhere but on compute capability 8.9 and
    12.x, whose `mma.sync` takes them."""
    if not problem.precision.eight_bit or problem.precision.operand.integer:
        return False
    return device.compute_capability != (8, 9) and device.compute_capability < (12, 0)


CopyPath = Literal["async", "ahead", "staged"]
Store = Literal["direct", "staged"]

STEP_BYTES = 32
"""Bytes of K that one MMA instruction of a warp takes (mma/fragments.cuh)."""
COPY_BYTES = 4
"""The least that cp.async copies; narrower vectors go through registers."""
STRIP_ROWS, STRIP_PADDING = 16, 8
"""Rows of C that a warp stores through shared memory at a time; floats between them (mma.cu)."""
OTHER_REGISTERS = 38
"""Registers besides accumulators and fragments: addresses, counters, predicates."""
AHEAD_BYTES = 256
"""The most bytes of K of a tile that is one of a column of them."""
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


def _copy_paths(problem: Problem, device: Device) -> tuple[CopyPath, ...]:
    if not has_cp_async(device):
        return ("staged",)
    if problem.precision.eight_bit:
        return ("async",)
    short = problem.k * problem.element_bytes <= AHEAD_BYTES
    return ("async", "ahead") if short else ("async",)


@dataclass
class MmaParams(WarpTiles):
    """Parameters of `mma`.

    Attributes:
        compute: the precision, that of the problem.
        swap: 1 computes C^T, so that 8 rows of C are the narrow side of an MMA instruction.
        bm, bn: the tile of a block, of C or C^T.
        wm, wn: the tile of a warp.
        slices: groups of warps that share the bk steps of a buffer.
        bk: steps of K of a buffer.
        copy: `async` fills buffers by cp.async, `staged` through registers. `ahead` is for a K of
            one buffer: a block keeps B and computes `group` tiles of a column, one after the other,
            while cp.async loads A for the next ones.
        pack: operands that are copied into an aligned workspace first; 8-bit ones transposed to run
            along K.
        stages: buffers.
        split_k: blocks that share the K of a tile; the last of them adds up their sums.
        promote: buffers after which accumulators are added up in fp32 outside of the tensor cores;
            0 never.
        min_blocks: blocks an SM that the compiler leaves registers for; warps hold two sets of
            fragments with 1 and one set with 2.
        store: `direct` stores C from registers, `staged` through shared memory in whole rows.
        group: rows of tiles that blocks take together; with `ahead`, tiles of a block.
    """

    compute: str = parameter_from(lambda problem, _: (problem.compute,))
    swap: int = parameter(0, 1)
    bm: int = parameter(16, 32, 64, 128, 256)
    bn: int = parameter(8, 16, 32, 64, 128, 256)
    wm: int = parameter(16, 32, 64)
    wn: int = parameter(8, 16, 32, 64)
    slices: int = parameter(1, 2, 4)
    bk: int = parameter_from(
        lambda problem, _: (64, 128, 256) if problem.precision.eight_bit else (16, 32, 64, 128)
    )
    copy: CopyPath = parameter_from(_copy_paths)
    pack: Pack = parameter(*PACKS)
    stages: int = parameter(2, 3, 4, 5, 6)
    split_k: int = parameter(*SPLITS)
    promote: int = parameter_from(
        lambda problem, _: (0, 1, 2, 4, 8) if problem.precision.eight_bit else (0, 2, 4, 8)
    )
    min_blocks: int = parameter(1, 2)
    store: Store = parameter("direct", "staged")
    group: int = parameter(1, 2, 3, 4, 6, 8, 12, 16, 24)

    @property
    def operand_rows(self) -> tuple[tuple[str, int], tuple[str, int]]:
        """The rows of `a` and of `b` in the tile: along M and N of the caller's problem."""
        rows_a, rows_b = (self.bn, self.bm) if self.swap else (self.bm, self.bn)
        return ("a", rows_a), ("b", rows_b)

    def oriented(self, problem: Problem) -> Problem:
        """The problem that is computed: that of C or of C^T."""
        return transposed(problem) if self.swap else problem

    def tiles(self, problem: Problem) -> int:
        """Tiles that cover one C of the batch."""
        return super().tiles(self.oriented(problem))

    def neighbours(self, problem: Problem) -> int:
        """Elements of a row of C that a thread holds side by side (mma/fragments.cuh)."""
        apart = problem.element_bytes == 4 and not along_k(problem, "b")
        return min(8, self.wn // 4) if apart else 2

    @property
    def precision(self) -> Precision:
        """The row of the precision table."""
        return PRECISIONS[self.compute]

    @property
    def element_bytes(self) -> int:
        """Bytes of an element of A or B."""
        return self.precision.operand.bytes

    @property
    def is_split(self) -> bool:
        """Whether operands are split into high and low parts."""
        return self.precision.products > 1

    @property
    def row_bytes(self) -> int:
        """Bytes of K in a buffer."""
        return self.bk * self.element_bytes

    def iterations(self, problem: Problem) -> int:
        """K-iterations of a tile: buffers that its K fills."""
        return ceil_div(problem.k, self.bk)

    @property
    def steps(self) -> int:
        """MMA steps of a warp along K in a buffer."""
        return self.row_bytes // STEP_BYTES // self.slices

    @property
    def is_async(self) -> bool:
        """Whether cp.async copies them."""
        return self.copy != "staged"

    def width(self, problem: Problem, operand: str, alignment: int) -> int:
        """Elements of the vectors that an operand read in place is copied in.

        cp.async fills up what lies past the end of a row; registers take whole vectors only.
        """
        if self.is_async and alignment * problem.element_bytes >= COPY_BYTES:
            return alignment
        extent = problem.m if operand == "a" else problem.n
        return gcd(alignment, problem.k if along_k(problem, operand) else extent)

    def goes_through_registers(self, width: int, element_bytes: int) -> bool:
        """Whether vectors of `width` elements go through registers to shared memory."""
        return not self.is_async or width * element_bytes < COPY_BYTES

    @property
    def registers(self) -> int:
        """Estimated registers a thread, without those that operands pass through: accumulators,
        fragments, their low parts and others."""
        rows, columns = self.wm // 16, self.wn // 8
        sums = 4 * rows * columns * (2 if self.promote else 1)
        sets = 2 if self.min_blocks == 1 else 1
        fragments = sets * (4 * rows + 2 * columns)
        low = 4 * rows + 8 if self.is_split else 0
        return sums + fragments + low + OTHER_REGISTERS

    def extra_registers(self, problem: Problem) -> int:
        """Registers a thread that depend on the problem: those that dense operands pass through on
        their way to shared memory; for scales of blocks of K, of its rows of A and where they are.
        """
        dense, size, registers = Alignment.dense(problem), problem.element_bytes, 0
        if problem.scale == "block":
            registers = 6 + (self.wn // 4 if self.swap else self.wm // 8)
        for (operand, rows), alignment in zip(self.operand_rows, (dense.a, dense.b), strict=True):
            width = self.width(problem, operand, alignment)
            if self.packs(operand) or not self.goes_through_registers(width, size):
                continue
            vectors = self.bk * rows // width // self.threads
            registers += max(1, vectors) * max(1, width * size // 4)
        return registers

    @property
    def shared_bytes(self) -> int:
        """Bytes of the buffers, or of the sums of slices and the rows that warps store through
        shared memory, if these are more. Blocks that compute a column have both."""
        slices = (self.slices - 1) * self.bm * self.bn
        strips = 0
        if self.store == "staged":
            strips = STRIP_ROWS * (self.wn + STRIP_PADDING) * self.warps_a_slice
        if self.copy == "ahead":
            return self.bk * (self.stages * self.bm + self.bn) * self.element_bytes + 4 * strips
        buffers = buffer_bytes(self.bm, self.bn, self.bk, self.element_bytes, self.stages)
        return max(buffers, 4 * (slices + strips))

    def columns(self, problem: Problem) -> int:
        """Columns of `group` tiles that cover one C of the batch."""
        return ceil_div(problem.m, self.bm * self.group) * ceil_div(problem.n, self.bn)

    def grid(self, problem: Problem) -> tuple[int, int, int]:
        """The grid of the main launch: tiles or columns of them by splits of K by the batch."""
        along_c = self.tiles(problem)
        if self.copy == "ahead":
            along_c = self.columns(problem)
        return along_c, self.split_k, problem.batch

    def blocks(self, problem: Problem) -> int:
        """Blocks of the main launch, over the whole batch."""
        return prod(self.grid(problem))

    def tiles_of_a_block(self, problem: Problem) -> int:
        """Tiles that a block computes one after the other."""
        return min(self.group, ceil_div(problem.m, self.bm)) if self.copy == "ahead" else 1

    def neighbours_in_c(self, problem: Problem) -> int:
        """Elements of a row of dense C that a thread holds side by side."""
        blocks = self.interleaved(self.oriented(problem), Alignment.dense(problem).c)
        return max(self.neighbours(problem), 2 * blocks)

    def interleaved(self, form: Problem, alignment: int) -> int:
        """Blocks of 8 columns whose pairs change places, so that a thread that computes a column
        holds whole vectors of C of an alignment."""
        if self.copy != "ahead" or self.store == "staged" or self.element_bytes != 2:
            return 1
        return max(1, min(4, gcd(alignment, form.n) // 2, self.wn // 8))

    def partial_bytes(self, problem: Problem) -> int:
        """Bytes of workspace for the partial sums of the blocks of each tile."""
        if self.split_k == 1:
            return 0
        return 4 * self.count(problem) * self.split_k * self.elements
