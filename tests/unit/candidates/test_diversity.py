"""Diverse selection from ranked configurations."""

from collections import Counter
from functools import cache

from autotune.candidates import cost, space
from autotune.candidates.diversity import SAME_TILE, SAME_WORK, diverse
from autotune.device import find
from autotune.families import registry
from autotune.families.config import Config
from autotune.problem import Problem

H100 = find("h100")
PROBLEM = Problem(37, 53, 20)


@cache
def ranked(*families: str) -> list[Config]:
    """All legal configurations of the families, the best predicted first."""
    legal = [config for name in families for config in space.feasible(PROBLEM, H100, name).configs]
    return [config for _, config in cost.rank(legal, PROBLEM, H100)]


def test_few_configurations_share_a_tile_or_work() -> None:
    chosen = diverse(ranked("simt"), PROBLEM, 10)
    works = [registry.find("simt").work(config, PROBLEM) for config in chosen]
    assert chosen[0] == ranked("simt")[0]
    assert max(Counter(work.tile for work in works).values()) <= SAME_TILE
    same = Counter((work.tile, work.iterations, work.copies) for work in works)
    assert max(same.values()) <= SAME_WORK


def test_family_ranked_last_is_chosen_too() -> None:
    by_family = sorted(ranked("simt", "tiled"), key=lambda config: config.family)
    chosen = diverse(by_family, PROBLEM, 4)
    assert [config.family for config in chosen] == ["simt"] * 2 + ["tiled"] * 2


def test_family_of_one_configuration_leaves_room() -> None:
    configs = [*ranked("simt"), ranked("tiled")[0]]
    chosen = diverse(configs, PROBLEM, 4)
    assert [config.family for config in chosen] == ["simt"] * 3 + ["tiled"]


def test_best_are_chosen_if_all_tiles_are_equal() -> None:
    one_tile = [
        config
        for config in ranked("simt")
        if (config.integer("bm"), config.integer("bn")) == (64, 64)
    ]
    chosen = diverse(one_tile, PROBLEM, 8)
    assert len(chosen) == 8
    assert chosen[0] == one_tile[0]
