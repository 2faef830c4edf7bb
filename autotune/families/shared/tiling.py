"""How tiles cover C, in which order blocks take them, and how blocks share K."""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import NamedTuple

from autotune.device import Device
from autotune.problem import Problem
from autotune.problem.integers import ceil_div


def tile_count(problem: Problem, rows: int, columns: int) -> int:
    """How many tiles of rows x columns cover one C of the batch."""
    return ceil_div(problem.m, rows) * ceil_div(problem.n, columns)


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


LAST_BLOCK_BYTES = 2**19
"""The most bytes that the last block of a tile may read alone: one SM takes about 5 us for them."""


def fill(blocks: int, sms: int) -> float:
    """The share of the SMs' time that is used if each wave gives every SM one block."""
    return blocks / (ceil_div(blocks, sms) * sms)


def longest_split(iterations: int, splits: int) -> int:
    """The k-iterations of the longest of `splits` parts, or 0 if a part would have none."""
    longest = ceil_div(iterations, splits)
    return longest if ceil_div(iterations, longest) == splits else 0


def fuller(blocks: int, splits: int, sms: int, margin: float = 1.0) -> bool:
    """Whether `splits` parts of each block fill waves better than any smaller number."""
    reached = fill(blocks * splits, sms)
    return all(reached > margin * fill(blocks * less, sms) for less in range(1, splits))


def split_waves_fault(
    tiles: int, splits: int, sms: int, waves: int, margin: float = 1.0
) -> str | None:
    """Why splitting K does not fill waves better; None if it does.

    At most `waves` blocks an SM are worth it.
    """
    if tiles * splits <= waves * sms and fuller(tiles, splits, sms, margin):
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


class WorkerShare(NamedTuple):
    """The mean work of one stream-K worker.

    Attributes:
        iterations: k-iterations.
        parts: tiles that it computes at least a part of.
    """

    iterations: float
    parts: float


def worker_share(tiles: int, workers: int, iterations: int) -> WorkerShare:
    """The mean work of a worker on tiles of so many k-iterations."""
    whole = (tiles - streamed_tiles(tiles, workers)) / workers
    parts = whole + 1 + (tiles / workers - whole)
    return WorkerShare(iterations * tiles / workers, parts)


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
