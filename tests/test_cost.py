import math
from functools import lru_cache

import pytest

from autotune import cost, space
from autotune.config import Config
from autotune.device import find
from autotune.plan import Resources
from autotune.problem import Problem
from autotune.roofline import least_seconds

H100 = find("h100")
feasible = lru_cache(space.feasible)
BIG = Config.parse(
    "simt:bm=128,bn=256,wm=64,wn=64,tm=8,tn=16,bk=8,split_k=1,group=8,copy=async,stages=3,"
    "fragments=2,min_blocks=1,order=snake"
)


@pytest.mark.parametrize("shape", ["4096x4096x4096", "64x4096x4096", "37x53x71"])
@pytest.mark.parametrize("family", ["naive", "tiled", "simt"])
def test_no_prediction_beats_the_roofline(shape: str, family: str) -> None:
    problem = Problem.parse(shape)
    configs = feasible(problem, H100, family).configs[::53]
    fastest = min(cost.predict(config, problem, H100) for config in configs)
    assert fastest >= 1e6 * least_seconds(problem, H100)


def test_the_ladder_of_the_texts_is_predicted_in_order() -> None:
    problem = Problem(4096, 4096, 4096)
    rungs = [
        "naive:mapping=uncoalesced,block=32",
        "naive:mapping=coalesced,block=32",
        "tiled:tile_width=16,specialized=1",
        str(BIG),
    ]
    times = [cost.predict(Config.parse(rung), problem, H100) for rung in rungs]
    assert times == sorted(times, reverse=True)


def test_deep_and_narrow_wants_k_split() -> None:
    problem = Problem(64, 64, 65536)
    _, best = cost.rank(feasible(problem, H100).configs, problem, H100)[0]
    assert best.integer("split_k") >= 16


def test_a_large_square_wants_large_tiles() -> None:
    problem = Problem(4096, 4096, 4096)
    _, best = cost.rank(feasible(problem, H100).configs, problem, H100)[0]
    assert best.integer("bm") * best.integer("bn") >= 128 * 128


def test_compiled_registers_overrule_the_estimate() -> None:
    problem = Problem(4096, 4096, 4096)
    taken = Resources(threads=256, registers=255, shared=200_000)
    assert cost.predict(BIG, problem, H100, taken) >= cost.predict(BIG, problem, H100)


def test_what_does_not_fit_takes_for_ever() -> None:
    taken = Resources(threads=1024, registers=255, shared=0)
    assert math.isinf(cost.predict(BIG, Problem(64, 64, 64), H100, taken))


def test_ranking_does_not_depend_on_the_order_of_the_candidates() -> None:
    problem = Problem(37, 53, 71)
    configs = feasible(problem, H100).configs[:300]
    assert cost.rank(configs, problem, H100) == cost.rank(configs[::-1], problem, H100)
