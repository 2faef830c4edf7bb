"""The parameters of `simt`, and what follows from them: threads, tiles, bytes."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal, get_args

from autotune.families.family import parameter, parameter_from
from autotune.families.shared import tiling
from autotune.families.shared.arguments import along_k
from autotune.families.shared.cuda_enums import ORDERS, REDUCTION, Order, Reduction
from autotune.families.shared.packing import PACKS, Pack, pitch
from autotune.problem import Problem

CopyPath = Literal["staged", "async"]
"""Operands reach shared memory through registers, or by cp.async."""
FLOAT_BYTES = 4
PADDING = 4
"""Floats that a K-contiguous operand pads each buffer row with."""
OTHER_REGISTERS = 26
"""Registers besides accumulators and fragments: addresses, counters, predicates."""


def reduction_rows(splits: int) -> int:
    """Threads that share the splits of an element in the launch that adds them up."""
    return min(8, 1 << (splits.bit_length() - 1))


@dataclass
class SimtParams(tiling.WarpTiles):
    """Parameters of the register-tiled kernel, in the order of a configuration.

    Attributes:
        bm, bn: rows and columns of C of a block tile.
        wm, wn: rows and columns of a warp tile.
        tm, tn: rows and columns of a thread tile.
        slices: groups of warps that share the K of each buffer.
        bk: K elements of a buffer.
        copy: operands reach shared memory by cp.async (`async`) or through registers (`staged`).
        stages: buffers in shared memory.
        fragments: register sets of fragments; 2 loads one while the other is multiplied.
        min_blocks: resident blocks an SM, which bound the registers.
        split_k: blocks that share the K of a tile.
        reduction: how their partial sums become C: in a `separate` launch, in the last block
            (`fused`), or by stream-K over `workers` blocks (`stream`).
        workers: blocks that share the K of the tiles of the last waves; 0 without stream-K.
        chunks: parts of a block's K that are summed apart, for accuracy.
        pack: operands that are packed into an aligned workspace first.
        group: rows of tiles whose tiles are computed together, for reuse in L2.
        fence: 1 keeps the loads of fragments ahead of the multiplications.
        order: path of a thread over its accumulators.
    """

    bm: int = parameter(16, 32, 64, 128)
    bn: int = parameter(16, 32, 64, 128, 256)
    wm: int = parameter(16, 32, 64, 128)
    wn: int = parameter(16, 32, 64)
    tm: int = parameter(4, 8, 16)
    tn: int = parameter(4, 8)
    slices: int = parameter(1, 2, 4, 8)
    bk: int = parameter(8, 16, 32, 64)
    copy: CopyPath = parameter(*get_args(CopyPath))
    stages: int = parameter(2, 3, 4, 5)
    fragments: int = parameter(1, 2)
    min_blocks: int = parameter(1, 2)
    split_k: int = parameter(1, 2, 3, 4, 8, 16, 32, 64, 128)
    reduction: Reduction = parameter(*REDUCTION)
    workers: int = parameter_from(lambda _, device: (0, device.sms, 2 * device.sms))
    chunks: int = parameter(1, 2)
    pack: Pack = parameter(*PACKS)
    group: int = parameter(1, 8)
    fence: int = parameter(0, 1)
    order: Order = parameter(*ORDERS)

    @property
    def sums(self) -> int:
        """Accumulators of a thread."""
        return self.tm * self.tn

    @property
    def register_estimate(self) -> int:
        """Registers a thread: accumulators, fragments, staged operands and the rest."""
        fragments = self.fragments * (self.tm + self.tn)
        staged = 0
        if self.copy == "staged":
            staged = self.bk * (self.bm + self.bn) // self.threads
        return self.sums + fragments + staged + OTHER_REGISTERS

    def shared_bytes(self, padded: int = 2) -> int:
        """Shared memory of a block if `padded` of the operands are K-contiguous.

        The partial sums of slices overlay the buffers; those of finished chunks lie beside them.
        """
        row = self.bm + self.bn + PADDING * padded
        buffers = self.stages * self.bk * row
        partial = (self.slices - 1) * self.elements
        chunked = self.slices * self.elements if self.chunks > 1 else 0
        return 4 * (chunked + max(buffers, partial))

    def streamed(self, problem: Problem) -> int:
        """Tiles whose K the stream-K workers share."""
        if self.workers == 0:
            return 0
        return tiling.streamed_tiles(self.tiles(problem), self.workers)

    def grid(self, problem: Problem) -> tuple[int, int, int]:
        """The grid: tiles and workers by splits of K by the batch."""
        along_c = self.tiles(problem) - self.streamed(problem) + self.workers
        return along_c, self.split_k, problem.batch

    def blocks(self, problem: Problem) -> int:
        """Blocks of the GEMM launch, over the whole batch."""
        return prod(self.grid(problem))

    def partial_floats(self, problem: Problem) -> int:
        """Floats of workspace that hold partial sums until they are added up."""
        match self.reduction:
            case "separate":
                return problem.batch * self.split_k * problem.m * pitch(problem.n, FLOAT_BYTES)
            case "fused":
                return self.blocks(problem) * self.elements
            case "stream":
                return 2 * self.workers * self.elements
        return 0

    def reads_along_k(self, problem: Problem, operand: str) -> bool:
        """Whether the rows that the kernel reads run along K; those of a packed copy do not."""
        return along_k(problem, operand) and not self.packs(operand)

    def packed_floats(self, problem: Problem) -> int:
        """Floats of workspace that packed operands take."""
        extents = (("a", problem.m), ("b", problem.n))
        rows = sum(pitch(extent, FLOAT_BYTES) for name, extent in extents if self.packs(name))
        return problem.batch * problem.k * rows
