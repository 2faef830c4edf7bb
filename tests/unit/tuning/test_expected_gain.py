"""A search's expectation of the configurations it has not tried, and the stop rule."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from support.sample_search import (
    result,
    searched,
    space,
    time_us,
)

from autotune.measure.measurement import Failure, Measurement
from autotune.tuning.proposals import ENOUGH, EVERY, LOOKS, Patience
from autotune.tuning.search.proposer import GAIN_AFTER, Proposer
from autotune.tuning.search.surrogate import CALM, GAIN, NEAR, SHARE, margin
from autotune.tuning.trials import Trial

LOW = 0.9 * ENOUGH


def test_gain_is_unknown_at_first() -> None:
    assert searched(space(), GAIN_AFTER - 1).expected_gain() is None


def test_other_samplers_have_no_gain() -> None:
    configs = space()
    told = map(result, configs[: 2 * GAIN_AFTER])
    assert Proposer(configs, sampler="tpe", told=told).expected_gain() is None


def test_gain_without_times_is_infinite() -> None:
    configs = space()
    told = [Trial(config, Failure("launch", "no")) for config in configs[:GAIN_AFTER]]
    assert Proposer(configs, told=told).expected_gain() == math.inf


def test_gain_is_large_far_from_the_optimum() -> None:
    configs = sorted(space(), key=time_us)
    gain = Proposer(configs, told=map(result, configs[-GAIN_AFTER * 20 :: 20])).expected_gain()
    assert gain is not None
    assert gain > 0.02


def test_gain_is_small_once_all_good_are_tried() -> None:
    configs = sorted(space(), key=time_us)
    gain = Proposer(configs, told=map(result, [*configs[:100], *configs[100::40]])).expected_gain()
    assert gain is not None
    assert gain < 0.005


@pytest.mark.parametrize("told", [50, 49], ids=["all are told", "one is pending"])
def test_gain_of_an_exhausted_space_is_zero(told: int) -> None:
    search = searched(space()[:50], told)
    search.ask()
    assert search.expected_gain() == 0


def test_errors_near_the_best_count() -> None:
    logs = np.array([2.0, 2 + 0.9 * NEAR, 2 + 1.1 * NEAR, math.inf, math.nan])
    errors = np.array([3.0, 4, 50, 60, 70])
    assert margin(logs[:1], logs, errors) == pytest.approx(SHARE * math.sqrt(12.5))


def after(*logs: float) -> float:
    """The margin after results whose times have these logarithms, and an error of 0.1 of each."""
    told = np.array([1.0, *logs])
    return margin(told, told, np.full(len(told), 0.1))


@pytest.mark.parametrize(
    "log", [1.0, 1.2, 1 - 0.9 * GAIN, math.inf], ids=["equal", "slower", "little", "failed"]
)
def test_margin_shrinks_while_results_bring_no_gain(log: float) -> None:
    assert after(*[log] * CALM) == pytest.approx(after() / 2)


def test_gain_brings_the_margin_back() -> None:
    assert after(*[1.0] * CALM, 1 - 1.1 * GAIN) == pytest.approx(after())


def test_gain_stays_high_where_nothing_can_be_foreseen() -> None:
    random = np.random.default_rng(1)
    tried = space()[::41]
    told = [Trial(config, Measurement(100 * random.lognormal(0, 0.1))) for config in tried]
    gain = Proposer(space(), told=told).expected_gain()
    assert gain is not None
    assert gain > ENOUGH


# The stop rule.


def patience(*gains: float | None) -> Patience:
    """A stop rule that has seen these gains, each when a look was due."""
    made = Patience()
    for number, gain in enumerate(gains, 1):
        made.look(number * EVERY, gain)
    return made


@pytest.mark.parametrize(
    ("gains", "over"),
    [
        ([LOW] * LOOKS, True),
        ([LOW] * (LOOKS - 1), False),
        ([*[LOW] * (LOOKS - 1), ENOUGH, *[LOW] * (LOOKS - 1)], False),
        ([*[LOW] * (LOOKS - 1), None, LOW], False),
        ([0.2, *[LOW] * LOOKS], True),
        ([None] * 9, False),
        ([], False),
    ],
    ids=["low", "too few", "once worth it", "once unknown", "at last", "never known", "unlooked"],
)
def test_it_ends_after_low_gains_in_a_row(gains: Sequence[float | None], over: bool) -> None:
    assert patience(*gains).over is over


@pytest.mark.parametrize(("trials", "due"), [(0, False), (EVERY - 1, False), (EVERY, True)])
def test_look_is_due_after_some_trials(trials: int, due: bool) -> None:
    assert Patience().due(trials) is due


def test_next_look_is_due_after_as_many() -> None:
    made = Patience()
    made.look(EVERY + 3, 0.1)  # several trials came back at once
    assert [made.due(trials) for trials in (2 * EVERY, 2 * EVERY + 3)] == [False, True]


def test_nothing_is_due_once_the_search_is_over() -> None:
    assert not patience(*[LOW] * LOOKS).due(10**6)


def test_stop_rule_keeps_the_last_gain() -> None:
    assert patience(0.3, 0.2).gain == 0.2
