"""A search's expectation of the configurations it has not tried."""

from __future__ import annotations

import math

import pytest
from support.sample_search import (
    result,
    searched,
    space,
    time_us,
)

from autotune.runners.base import Failure
from autotune.tuning.evaluate import Trial
from autotune.tuning.search import OUTLOOK, Proposer


def test_outlook_is_unknown_at_first() -> None:
    assert searched(space(), OUTLOOK - 1).outlook() is None


def test_other_samplers_have_no_outlook() -> None:
    configs = space()
    told = map(result, configs[: 2 * OUTLOOK])
    assert Proposer(configs, sampler="tpe", told=told).outlook() is None


def test_outlook_without_times_is_infinite() -> None:
    configs = space()
    told = [Trial(config, Failure("launch", "no")) for config in configs[:OUTLOOK]]
    assert Proposer(configs, told=told).outlook() == math.inf


def test_outlook_is_large_far_from_the_optimum() -> None:
    configs = sorted(space(), key=time_us)
    outlook = Proposer(configs, told=map(result, configs[-OUTLOOK * 20 :: 20])).outlook()
    assert outlook is not None
    assert outlook > 0.02


def test_outlook_is_small_once_all_good_are_tried() -> None:
    configs = sorted(space(), key=time_us)
    outlook = Proposer(configs, told=map(result, [*configs[:100], *configs[100::40]])).outlook()
    assert outlook is not None
    assert outlook < 0.005


@pytest.mark.parametrize("told", [50, 49], ids=["all are told", "one is pending"])
def test_outlook_of_an_exhausted_space_is_zero(told: int) -> None:
    search = searched(space()[:50], told)
    search.ask()
    assert search.outlook() == 0
