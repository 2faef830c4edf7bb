"""A search goes on while its results surprise its model."""

from __future__ import annotations

import math

import numpy as np
import pytest
from support.sample_search import result, space

from autotune.runners.base import Measurement
from autotune.tuning.evaluate import Trial
from autotune.tuning.search import Proposer
from autotune.tuning.search.foresight import CALM, GAIN, NEAR, RECENT, SHARE, Foresight
from autotune.tuning.search.patience import ENOUGH

NOTHING = np.empty(0), np.empty(0)


def surprised(*pairs: tuple[float, float]) -> float:
    """The doubt after results that were foreseen otherwise: logarithms of times."""
    foresight = Foresight()
    for index, (foreseen, log) in enumerate(pairs):
        foresight.propose(index, foreseen)
        foresight.learn(index, log)
    return foresight.doubt(0.0, *NOTHING)


def test_faster_than_predicted_is_a_surprise() -> None:
    assert surprised((0.3, 0.1)) == pytest.approx(SHARE * 0.2)


@pytest.mark.parametrize("log", [0.4, math.inf], ids=["slower", "failed"])
def test_slower_or_failed_is_no_surprise(log: float) -> None:
    assert surprised((0.3, log)) == 0


def test_old_surprises_are_forgotten() -> None:
    calm = [(0.1, 0.1)] * RECENT
    assert surprised((0.9, 0.1), *calm[1:]) > 0
    assert surprised((0.9, 0.1), *calm) == 0


def test_result_that_was_not_proposed_is_no_surprise() -> None:
    foresight = Foresight()
    foresight.learn(3, 0.1)
    assert foresight.doubt(0.0, *NOTHING) == 0


def test_errors_near_the_best_count() -> None:
    logs = np.array([2.0, 2 + 0.9 * NEAR, 2 + 1.1 * NEAR, math.inf, math.nan])
    errors = np.array([3.0, 4, 50, 60, 70])
    assert Foresight().doubt(2.0, logs, errors) == pytest.approx(SHARE * math.sqrt(12.5))


def test_surprise_far_from_the_best_does_not_count() -> None:
    assert surprised((2.0, 1.1 * NEAR)) == 0


def after(*logs: float) -> float:
    """The doubt after results whose times have these logarithms, and after an error of 0.1."""
    foresight = Foresight()
    for index, log in enumerate((1.0, *logs)):
        foresight.learn(index, log)
    return foresight.doubt(1.0, np.array([1.0]), np.array([0.1]))


@pytest.mark.parametrize(
    "log", [1.0, 1.2, 1 - 0.9 * GAIN, math.inf], ids=["equal", "slower", "little", "failed"]
)
def test_doubt_shrinks_while_results_bring_no_gain(log: float) -> None:
    assert after(*[log] * CALM) == pytest.approx(after() / 2)


def test_gain_brings_the_doubt_back() -> None:
    assert after(*[1.0] * CALM, 1 - 1.1 * GAIN) == pytest.approx(after())


def test_outlook_stays_high_where_nothing_can_be_foreseen() -> None:
    random = np.random.default_rng(1)
    configs = space()[::4]
    told = [Trial(config, Measurement(100 * random.lognormal(0, 0.1))) for config in configs[:100]]
    outlook = Proposer(configs, told=told).outlook()
    assert outlook is not None
    assert outlook > ENOUGH
    settled = Proposer(configs, told=map(result, configs[:100])).outlook()
    assert settled is not None
    assert settled < outlook
