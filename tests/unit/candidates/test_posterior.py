"""The posterior that is kept up to date, against one that is computed from scratch."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.candidates.gaussian_process import JITTER, Covariance, Floats, GaussianProcess
from autotune.candidates.posterior import Posterior

RANDOM = np.random.default_rng(2)
POINTS, QUERIES = RANDOM.random((90, 4)), RANDOM.random((300, 4))
VALUES = np.sin(5 * POINTS).sum(1)
ALL = np.ones(len(POINTS), bool)


def covariance(noise: float = 0.01) -> Covariance:
    return Covariance(np.array([0.7, 1.0, 1.5, 3.0]), 1.2, noise)


def grown(first: int, queries: Floats = QUERIES, noise: float = 0.01) -> Posterior:
    """A posterior that got all points but the first few one at a time."""
    made = Posterior(covariance(noise), POINTS[:first], queries)
    for point in POINTS[first:]:
        made.observe(point[None])
    return made


# Beyond `ROOM` observations the arrays grow; little noise takes double precision.
@pytest.mark.parametrize(("first", "noise"), [(0, 0.01), (1, 0.01), (10, 0.01), (60, 1e-5)])
def test_one_at_a_time_is_as_exact_as_all_at_once(first: int, noise: float) -> None:
    made = grown(first, noise=noise)
    mean, deviation = GaussianProcess(covariance(noise), POINTS, VALUES).predict(QUERIES)
    assert made.mean(made.weights(VALUES, ALL)) == pytest.approx(mean, abs=2e-3)
    assert np.sqrt(made.variance) == pytest.approx(deviation, abs=2e-3)
    assert len(made) == len(POINTS)


def test_more_queries_are_seen_like_the_first_ones() -> None:
    made, whole = grown(10, QUERIES[:200]), grown(10)
    made.extend(QUERIES[200:])
    made.observe(POINTS[:1])
    whole.observe(POINTS[:1])
    values = np.append(VALUES, VALUES[0])
    timed = np.ones(len(values), bool)
    assert made.mean(made.weights(values, timed)) == pytest.approx(
        whole.mean(whole.weights(values, timed)), abs=1e-3
    )
    assert made.variance == pytest.approx(whole.variance, abs=1e-3)


def test_queries_that_are_kept_are_seen_as_before() -> None:
    made, whole, among = grown(10), grown(10), np.array([3, 17, 250])
    made.keep(among)
    made.observe(POINTS[:1])
    whole.observe(POINTS[:1])
    assert made.queries == pytest.approx(QUERIES[among])
    assert made.variance == pytest.approx(whole.variance[among], abs=1e-6)


def test_unknown_value_counts_as_predicted() -> None:
    timed = ALL.copy()
    timed[[0, 40, 89]] = False
    made = grown(10)
    without = GaussianProcess(covariance(), POINTS[timed], VALUES[timed])
    assert made.mean(made.weights(VALUES, timed)) == pytest.approx(
        without.predict(QUERIES)[0], abs=1e-3
    )
    both, _ = GaussianProcess(covariance(), POINTS, VALUES).predict(QUERIES)
    assert np.abs(both - without.predict(QUERIES)[0]).max() > 0.01


def test_deviation_shrinks_at_an_observation_without_value() -> None:
    made = Posterior(covariance(), POINTS[:5], QUERIES)
    before = made.variance.copy()
    made.observe(QUERIES[7:8])
    assert made.variance[7] < 0.1 * before[7]
    assert np.all(made.variance <= before + 1e-6)


def test_left_out_error_is_that_of_the_other_observations() -> None:
    made = grown(10)
    errors, deviations = made.left_out(made.weights(VALUES, ALL))
    for place in (0, 33, 89):
        others = ALL.copy()
        others[place] = False
        process = GaussianProcess(covariance(), POINTS[others], VALUES[others])
        mean, deviation = process.predict(POINTS[place : place + 1])
        noisy = np.hypot(deviation[0], np.sqrt(covariance().noise + JITTER))
        assert errors[place] == pytest.approx(VALUES[place] - mean[0], abs=1e-6)
        assert deviations[place] == pytest.approx(noisy, rel=1e-4)


def test_draws_have_the_mean_and_deviation_of_the_posterior() -> None:
    made, among = grown(10), np.array([5, 6, 200])
    weights = made.weights(VALUES, ALL)
    drawn = made.draws(weights, among, 20_000, np.random.default_rng(0))
    assert drawn.mean(0) == pytest.approx(made.mean(weights)[among], abs=0.02)
    assert drawn.std(0) == pytest.approx(np.sqrt(made.variance[among]), rel=0.05)


def test_observation_costs_no_solution_from_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    made = grown(10)

    def refused(*_: object) -> Floats:
        raise AssertionError("factored again")

    monkeypatch.setattr(np.linalg, "cholesky", refused)
    monkeypatch.setattr(np.linalg, "inv", refused)
    made.observe(POINTS[:3])
    assert len(made) == 93


def test_draws_at_neighbouring_points_are_correlated() -> None:
    queries = np.array([[3.0, 3, 3, 3], [3.0, 3, 3, 3.01], [-3, 0, 0, 0]])
    made = Posterior(covariance(), POINTS, queries)
    weights = made.weights(VALUES, ALL)
    together = np.corrcoef(made.draws(weights, np.arange(3), 500, np.random.default_rng(0)).T)
    assert together[0, 1] > 0.99
    assert abs(together[0, 2]) < 0.2


def test_draws_close_to_repeated_points_survive_rounding() -> None:
    # Single precision leaves less of the variance there than it rounds away.
    near = np.random.default_rng(3).normal(scale=1e-3, size=(360, 4))
    made = Posterior(
        covariance(2e-4), np.repeat(POINTS, 8, axis=0), np.repeat(POINTS, 4, axis=0) + near
    )
    weights = made.weights(np.repeat(VALUES, 8), np.ones(8 * len(POINTS), bool))
    drawn = made.draws(weights, np.arange(360), 50, np.random.default_rng(0))
    assert drawn.mean(0) == pytest.approx(made.mean(weights), abs=0.05)


def test_noiseless_values_on_a_grid_are_reproduced() -> None:
    points = np.random.default_rng(0).integers(0, 5, (500, 4)) / 4
    values = points @ np.arange(1.0, 5.0)
    values = (values - values.mean()) / values.std()
    made = Posterior(covariance(1e-7), points, points)
    weights = made.weights(values, np.ones(len(points), bool))
    assert made.mean(weights) == pytest.approx(values, abs=0.01)
