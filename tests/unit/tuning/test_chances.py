"""The chance of configurations to run, beside those that failed."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.candidates.gaussian_process import Covariance, Floats
from autotune.tuning.search.chances import DOUBTFUL, Chances

RANDOM = np.random.default_rng(6)
POOL = RANDOM.random((200, 3))


def learnt(tried: Floats, fits: int = 5) -> Chances:
    """Chances where all beyond 0.6 of the first dimension fail."""
    chances, start = None, Covariance.prior(3)
    for _ in range(fits):
        everything = np.arange(len(tried))
        chances = Chances(start, tried, tried[:, 0] < 0.6, POOL, [1, 1, 1], everything)
        start = chances.covariance
    assert chances is not None
    return chances


def test_neighbourhood_of_failures_has_little_chance() -> None:
    values = learnt(RANDOM.random((60, 3))).values
    assert values[POOL[:, 0] > 0.75].max() < 0.2
    assert values[POOL[:, 0] < 0.45].min() > 0.8
    assert (values.min() >= 0) & (values.max() <= 1)


def test_doubtful_members_come_last() -> None:
    chances = learnt(RANDOM.random((60, 3)))
    weighted = chances.weighted(np.where(POOL[:, 0] > 0.75, 1.0, 1e-200))
    ranked = np.argsort(-weighted, kind="stable")
    doubtful = chances.values < DOUBTFUL
    assert 0 < doubtful.sum() < len(POOL)
    assert doubtful[ranked].tolist() == sorted(doubtful.tolist())


def test_result_moves_the_chances_around_it_at_once() -> None:
    tried = np.array([[0.1, 0.5, 0.5], [0.2, 0.2, 0.2], [0.9, 0.5, 0.5]])
    chances = learnt(tried, fits=1)
    before = chances.values
    chances.learn(POOL[:1], np.array([False]))
    nearest = np.argsort(np.abs(POOL - POOL[0]).sum(1))
    assert chances.values[0] < 0.2 * before[0]
    fall = before - chances.values
    assert fall[nearest[:10]].mean() > fall[nearest[-10:]].mean()


def test_members_of_the_pool_come_and_go() -> None:
    chances = learnt(RANDOM.random((30, 3)))
    before = chances.values
    chances.keep(np.array([4, 9]))
    chances.extend(POOL[11:13])
    assert chances.values == pytest.approx(before[[4, 9, 11, 12]])
