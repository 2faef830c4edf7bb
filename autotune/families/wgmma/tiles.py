"""The tile of a `wgmma` block, the cluster it belongs to and how blocks share its K.

The kernel multiplies its operands A and B into tiles of tile_m x tile_n. With swap=0 they are tiles
of C. With swap=1 (swap-AB) they are tiles of the transpose of C: the kernel's A is the problem's B,
tile_m is bn and tile_n is bm.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import NamedTuple

from autotune.families.shared import stream_k
from autotune.families.shared.cuda_enums import WgmmaReduction
from autotune.problem import Problem
from autotune.problem.integers import ceil_div


class Cluster(NamedTuple):
    """Blocks of a cluster along M, N and K of the tiles that the kernel computes."""

    m: int
    n: int
    k: int

    @property
    def blocks(self) -> int:
        """Blocks of a cluster."""
        return prod(self)


def _clusters() -> dict[str, Cluster]:
    """The clusters of up to 8 blocks by their texts, which leave out one share of K."""
    sides = (1, 2, 4, 8)
    clusters = [Cluster(m, n, k) for k in sides for m in sides for n in sides]
    texts = (("x".join(map(str, c[: 2 if c.k == 1 else 3])), c) for c in clusters)
    return {
        text: c
        for text, c in texts
        if c.blocks <= LARGEST_CLUSTER and max(c.m, c.n) <= 4 and (c.k == 1 or c.m * c.n <= 2)
    }


LARGEST_CLUSTER = 8
"""Blocks of the largest cluster that every launch may ask for."""
CLUSTERS = _clusters()
INSTRUCTION_COLUMNS = 8
"""The columns of an instruction's tile are a multiple of this."""


@dataclass(frozen=True)
class WgmmaTile:
    """The tile of a block: bm x bn of C, computed transposed if `swap` is 1."""

    swap: int
    bm: int
    bn: int

    @property
    def tile_m(self) -> int:
        """Rows of the tile as the kernel computes it, which run over its operand A."""
        return self.bn if self.swap else self.bm

    @property
    def tile_n(self) -> int:
        """Columns of the tile as the kernel computes it, which run over its operand B."""
        return self.bm if self.swap else self.bn

    @property
    def elements(self) -> int:
        """Elements of the tile."""
        return self.bm * self.bn

    def extents(self, problem: Problem) -> tuple[int, int]:
        """M and N as the kernel computes them: the rows of its operands A and B."""
        return (problem.n, problem.m) if self.swap else (problem.m, problem.n)

    def grid(self, problem: Problem) -> tuple[int, int]:
        """Tiles along M and N as the kernel computes them."""
        m, n = self.extents(problem)
        return ceil_div(m, self.tile_m), ceil_div(n, self.tile_n)

    def count(self, problem: Problem) -> int:
        """Tiles that cover C for the whole batch."""
        rows, columns = self.grid(problem)
        return rows * columns * problem.batch


@dataclass(frozen=True)
class ClusterTile(WgmmaTile):
    """A tile and the cluster whose blocks work together on neighbouring tiles or on one tile."""

    cluster: str

    @property
    def shape(self) -> Cluster:
        """Blocks of the cluster along M, N and K."""
        return CLUSTERS[self.cluster]

    @cached_property
    def reducers(self) -> int:
        """Blocks of a cluster that each add up and store a part of the columns of its one tile.

        A part has whole instructions of 8 columns.
        """
        reducers = self.shape.k
        while self.tile_n % (INSTRUCTION_COLUMNS * reducers):
            reducers //= 2
        return reducers

    def cluster_grid(self, problem: Problem) -> tuple[int, int]:
        """Tiles along M and N, rounded up to whole clusters."""
        (m, n), shape = self.extents(problem), self.shape
        along_m = ceil_div(m, self.tile_m * shape.m) * shape.m
        return along_m, ceil_div(n, self.tile_n * shape.n) * shape.n

    def l2_rate(self, problem: Problem, tensor_rate: float, m: int, n: int) -> float:
        """Bytes a cycle that a block of a cluster of m x n reads to keep its tensor cores busy.

        Of each operand it reads the part that it loads for its cluster. The tensor cores multiply
        and add `tensor_rate` numbers a cycle.
        """
        read = (self.tile_m / n + self.tile_n / m) * problem.element_bytes
        return read * tensor_rate / (self.elements * problem.products)

    @property
    def blocks_down(self) -> int:
        """Blocks of a cluster along the rows of C."""
        return self.shape.n if self.swap else self.shape.m

    def cluster_rows_and_columns(self, problem: Problem) -> tuple[int, int]:
        """Clusters that cover the rows and the columns of one C of the batch."""
        along_m, along_n = self.cluster_grid(problem)
        clusters = along_m // self.shape.m, along_n // self.shape.n
        return clusters[::-1] if self.swap else clusters

    def tiles(self, problem: Problem) -> int:
        """Tiles of one C of the batch, rounded up to whole clusters."""
        along_m, along_n = self.cluster_grid(problem)
        return along_m * along_n


@dataclass(frozen=True)
class SplitTile(ClusterTile):
    """A clustered tile whose K is split `split_k` ways."""

    split_k: int

    @property
    def cluster_splits(self) -> int:
        """Splits of K that the blocks of one cluster compute and add up in shared memory."""
        return self.shape.k

    @property
    def grid_splits(self) -> int:
        """Splits of K that different blocks or clusters compute and add up in the workspace."""
        return self.split_k // self.shape.k

    def units(self, problem: Problem) -> int:
        """Work units of the whole batch: tiles, or splits of tiles."""
        return self.tiles(problem) * self.split_k * problem.batch


@dataclass(frozen=True)
class WgmmaKSharing(SplitTile):
    """How blocks share the K of tiles, and the workspace that it takes."""

    reduction: WgmmaReduction
    workers: int

    def streamed(self, problem: Problem) -> int:
        """Tiles, of a whole cluster each, whose K the stream-K workers share."""
        if self.reduction != "stream":
            return 0
        size = self.shape.blocks
        return stream_k.streamed_tiles(self.tiles(problem) // size, self.workers // size)

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
