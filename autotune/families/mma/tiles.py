"""The tiles of `mma`: of a block, of its warps, and columns of them."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.device import Device
from autotune.families.shared.layout import along_k, transposed
from autotune.families.shared.tiles import tile_count
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

WARP = 32


@dataclass(frozen=True)
class MmaTile:
    """The bm x bn tile that a block computes: of C, or of C^T if it is transposed (swap-AB)."""

    swap: int
    bm: int
    bn: int

    @property
    def elements(self) -> int:
        """Elements of the tile."""
        return self.bm * self.bn

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
        return tile_count(self.oriented(problem), self.bm, self.bn)

    def count(self, problem: Problem) -> int:
        """Tiles that cover C for the whole batch."""
        return self.tiles(problem) * problem.batch


@dataclass(frozen=True)
class MmaWarpTile:
    """The wm x wn part of a tile that a warp computes."""

    wm: int
    wn: int

    @property
    def accumulators(self) -> int:
        """Accumulators a thread."""
        return self.wm * self.wn // WARP

    def neighbours(self, problem: Problem) -> int:
        """Elements of a row of C that a thread holds side by side (mma/fragments.cuh)."""
        apart = problem.element_bytes == 4 and not along_k(problem, "b")
        return min(8, self.wn // 4) if apart else 2


@dataclass(frozen=True)
class MmaWarps(MmaWarpTile):
    """The warps of a block: `slices` groups, each with a warp for every warp tile."""

    bm: int
    bn: int
    slices: int

    @property
    def warps_a_slice(self) -> int:
        """Warps that compute the tile in each slice of a buffer."""
        return (self.bm // self.wm) * (self.bn // self.wn)

    @property
    def warps(self) -> int:
        """Warps a block."""
        return self.warps_a_slice * self.slices

    @property
    def threads(self) -> int:
        """Threads a block."""
        return WARP * self.warps


def converts(problem: Problem, device: Device) -> bool:
    """Whether 8-bit floats are multiplied as fp16: everywhere but on compute capability 8.9 and
    12.x, whose `mma.sync` takes them."""
    if not problem.precision.eight_bit or problem.precision.operand.integer:
        return False
    return device.compute_capability != (8, 9) and device.compute_capability < (12, 0)


def column_count(tile: MmaTile, group: int, problem: Problem) -> int:
    """Columns of `group` tiles that cover one C of the batch."""
    return ceil_div(problem.m, tile.bm * group) * ceil_div(problem.n, tile.bn)


def partial_bytes(tile: MmaTile, split_k: int, problem: Problem) -> int:
    """Bytes of workspace for the partial sums of `split_k` blocks a tile."""
    return 4 * tile.count(problem) * split_k * tile.elements if split_k > 1 else 0
