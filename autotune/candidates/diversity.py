"""Good configurations that differ: in their tiles, in the work of a block, in their family."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from autotune.families import registry
from autotune.families.config import Config
from autotune.problem import Problem

SAME_TILE, SAME_WORK, EACH_FAMILY = 4, 2, 2
"""Most with one block tile, most that also do the same work, least of each family."""


def diverse(ranked: Sequence[Config], problem: Problem, count: int) -> list[Config]:
    """The first `count` of `ranked`, without those too similar to better ones.

    At most `SAME_TILE` have the same block tile and at most `SAME_WORK` also do the same work: the
    cost model is often blind to what else differs. As it is most likely wrong about a whole family,
    at least `EACH_FAMILY` of each are among them.
    """
    tiles, works = Counter[object](), Counter[object]()
    places: dict[str, list[int]] = {config.family: [] for config in ranked}
    for place, config in enumerate(ranked):
        if len(places[config.family]) == count:
            continue
        work = registry.find(config.family).work(config, problem)
        tile = (config.family, work.tile)
        same_work = (*tile, work.iterations, work.copies)
        if tiles[tile] < SAME_TILE and works[same_work] < SAME_WORK:
            places[config.family].append(place)
            tiles[tile] += 1
            works[same_work] += 1
    first = [place for family in places.values() for place in family[:EACH_FAMILY]]
    rest = sorted(place for family in places.values() for place in family[EACH_FAMILY:])
    chosen = dict.fromkeys((*first, *rest, *range(len(ranked))))
    return [ranked[place] for place in sorted(islice(chosen, max(count, len(first))))]
