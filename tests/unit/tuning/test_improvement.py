"""Expected improvement."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.tuning.search.improvement import expected_improvement, normal_cdf

SCORES = np.linspace(-30, 8, 2001)


def test_distribution_function_is_accurate_in_the_tail() -> None:
    exact = [0.5 * math.erfc(-score * math.sqrt(0.5)) for score in SCORES]
    assert normal_cdf(SCORES) == pytest.approx(exact, rel=1e-6)


def test_improvement_is_the_mean_of_the_positive_part() -> None:
    drawn = np.random.default_rng(1).normal(-0.3, 0.5, 2_000_000)
    exact = np.maximum(drawn, 0).mean()
    improvement = expected_improvement(np.array([-0.3]), np.array([0.5]))
    assert improvement == pytest.approx([exact], rel=0.01)


def test_improvement_grows_with_the_gain_and_the_deviation() -> None:
    gains = expected_improvement(np.linspace(-2, 2, 50), np.full(50, 0.1))
    deviations = expected_improvement(np.full(50, -0.2), np.linspace(0.02, 2, 50))
    assert np.all(np.diff(gains) > 0)
    assert np.all(np.diff(deviations) > 0)
