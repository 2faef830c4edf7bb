"""Stream-K: workers share the K of the last tiles, and compute the tiles before them whole."""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import NamedTuple


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
