"""Tiling of C: the tiles, the order in which blocks take them, and the sharing of K."""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Protocol

from autotune.device import Device
from autotune.families.shared.limits import grid_fault
from autotune.families.shared.packing import Pack, packs
from autotune.problem import Problem
from autotune.problem.integers import ceil_div


def tile_count(problem: Problem, rows: int, columns: int) -> int:
    """The number of tiles of rows x columns that cover one C of the batch."""
    return ceil_div(problem.m, rows) * ceil_div(problem.n, columns)


def buffer_bytes(rows: int, columns: int, depth: int, element_bytes: int, stages: int = 1) -> int:
    """Shared memory of the stages of a tile of rows x columns: `depth` steps of K of A and B."""
    return stages * depth * (rows + columns) * element_bytes


def order_fault(rows: int, columns: int, group: int, few: int, device: Device) -> str | None:
    """Why `group` rows of tiles are not worth taking together; None if they are.

    Up to `few` tiles an SM, any order will do.
    """
    if group == 1:
        return None
    if rows * columns <= few * device.sms:
        return f"{rows * columns} tiles are few for {device.sms} SMs; their order is free"
    if columns == 1 or group > rows:
        return f"{rows}x{columns} tiles have no groups of {group} rows"
    return None


SPLIT_BLOCKS_A_SM = 2
"""Blocks an SM that hide each other's latency."""
LAST_BLOCK_BYTES = 2**19
"""The most bytes that the last block of a tile may read alone: one SM takes about 5 us for them."""


def fill(blocks: int, sms: int) -> float:
    """The share of the SMs' time that is used if each wave gives every SM one block."""
    return blocks / (ceil_div(blocks, sms) * sms)


def longest_split(iterations: int, splits: int) -> int:
    """The k-iterations of the longest of `splits` parts, or 0 if a part would have none."""
    longest = ceil_div(iterations, splits)
    return longest if ceil_div(iterations, longest) == splits else 0


WARP = 32
"""Threads of a warp."""


class WarpTiles:
    """The parameters of a kernel whose blocks compute bm x bn of C in wm x wn tiles of warps.

    `slices` groups of warps share the K of a buffer.
    """

    bm: int
    bn: int
    wm: int
    wn: int
    slices: int
    split_k: int
    min_blocks: int
    pack: Pack

    @property
    def elements(self) -> int:
        """Elements of the tile."""
        return self.bm * self.bn

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

    def tiles(self, problem: Problem) -> int:
        """Tiles that cover one C of the batch."""
        return tile_count(problem, self.bm, self.bn)

    def count(self, problem: Problem) -> int:
        """Tiles that cover C for the whole batch."""
        return self.tiles(problem) * problem.batch

    def packs(self, operand: str) -> bool:
        """Whether the kernel reads a packed copy of an operand, `a` or `b`."""
        return packs(self.pack, operand)


def warp_rows_fault(p: WarpTiles, _problem: Problem, _device: Device) -> str | None:
    """Why the rows of a block are not whole warp tiles; None if they are."""
    return None if p.bm % p.wm == 0 else f"wm={p.wm} does not divide bm={p.bm}"


def warp_columns_fault(p: WarpTiles, _problem: Problem, _device: Device) -> str | None:
    """Why the columns of a block are not whole warp tiles; None if they are."""
    return None if p.bn % p.wn == 0 else f"wn={p.wn} does not divide bn={p.bn}"


def tiles_fault(p: WarpTiles, problem: Problem, _device: Device) -> str | None:
    """Why a grid has no block for each tile; None if it has."""
    return grid_fault(p.tiles(problem))


def residency_fault(p: WarpTiles, _problem: Problem, device: Device) -> str | None:
    """Why an SM cannot hold the threads of the resident blocks; None if it can."""
    threads = p.min_blocks * p.threads
    if threads <= device.threads_per_sm:
        return None
    return f"{threads} resident threads; {device.name} holds {device.threads_per_sm} an SM"


def split_gain_fault(p: WarpTiles, problem: Problem, device: Device, waves: int) -> str | None:
    """Why splitting K gains nothing; None if it does.

    Blocks hide each other's latency whatever the waves they make, `SPLIT_BLOCKS_A_SM` an SM. K is
    split only to fill the last wave with at most `waves` blocks an SM.
    """
    count, sms = p.count(problem), device.sms
    if p.split_k == 1 or count * (p.split_k - 1) < SPLIT_BLOCKS_A_SM * sms:
        return None
    return split_waves_fault(count, p.split_k, sms, waves)


def split_waves_fault(
    tiles: int, splits: int, sms: int, waves: int, margin: float = 1.0
) -> str | None:
    """Why fewer splits of K fill waves as well; None if they do not.

    At most `waves` blocks an SM are worth it.
    """
    fewer = (margin * fill(tiles * less, sms) for less in range(1, splits))
    if tiles * splits <= waves * sms and all(fill(tiles * splits, sms) > used for used in fewer):
        return None
    return f"{tiles} tiles fill {sms} SMs as well with less than {splits} splits"


def last_block_fault(read: int) -> str | None:
    """Why the last block of a tile cannot read `read` bytes of partial sums; None if it can."""
    if read <= LAST_BLOCK_BYTES:
        return None
    return f"the last block of a tile would read {read} bytes; {LAST_BLOCK_BYTES} at most"


def streamed_tiles(tiles: int, workers: int) -> int:
    """Tiles whose K the workers share.

    These are the tiles of the last, partial wave and of the wave before it, so that each worker has
    at least one tile's K and few workers share a tile. With less than two waves it is all tiles.
    """
    return tiles if tiles < 2 * workers else tiles % workers + workers


class SharesTiles(Protocol):
    """Parameters of a kernel whose blocks share the K of tiles by splits or as stream-K workers."""

    bk: int
    split_k: int
    workers: int

    @property
    def reduction(self) -> str: ...

    def tiles(self, problem: Problem) -> int: ...


def block_shares(p: SharesTiles, problem: Problem, blocks: int) -> tuple[int, float, float]:
    """Blocks of a grid, and on average the k-iterations of each and the tiles that it computes at
    least a part of; `blocks` is the number without stream-K.

    Workers and the blocks of whole tiles that follow them have the same work on average.
    """
    iterations = ceil_div(problem.k, p.bk)
    if p.reduction != "stream":
        return blocks, ceil_div(iterations, p.split_k), 1
    tiles, workers = p.tiles(problem), p.workers
    whole = (tiles - streamed_tiles(tiles, workers)) / workers
    parts = whole + 1 + (tiles / workers - whole)
    return workers, iterations * tiles / workers, parts


def splits_of_a_tile(tiles: int, workers: int) -> float:
    """Partial sums of a shared tile that one block adds up, on average."""
    return workers / streamed_tiles(tiles, workers) + 1


@lru_cache(maxsize=4096)
def mean_part(tiles: int, workers: int) -> float:
    """The mean share of a tile's K that one worker adds up, weighted by the errors of the parts."""
    streamed = streamed_tiles(tiles, workers)
    cuts = {float(tile) for tile in range(streamed + 1)}
    cuts.update(streamed * worker / workers for worker in range(1, workers))
    edges = sorted(cuts)
    parts = sum((end - begin) ** 2 for begin, end in itertools.pairwise(edges))
    return (tiles - streamed + parts) / tiles
