"""Gaussian process regression, and its posterior that grows with observations."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.model import gaussian_process
from autotune.model.gaussian_process import (
    CHUNK,
    Covariance,
    Floats,
    GaussianProcess,
    Posterior,
    fit,
    posterior_loss,
)

POINTS = np.random.default_rng(3).random((12, 3))
VALUES = np.sin(6 * POINTS).sum(1)
# Of the posteriors: observations and queries.
RANDOM = np.random.default_rng(2)
SEEN, QUERIES = RANDOM.random((90, 4)), RANDOM.random((300, 4))
OBSERVED = np.sin(5 * SEEN).sum(1)


def conditioned(points: Floats = POINTS, values: Floats = VALUES) -> GaussianProcess:
    """A process with the prior's covariance; the noise has a tenth of the signal's deviation."""
    return GaussianProcess(Covariance.prior(points.shape[1]), points, values)


def fitted(times: int, points: Floats, values: Floats) -> Covariance:
    """The covariance after `times` fits."""
    covariance = Covariance.prior(points.shape[1])
    for _ in range(times):
        covariance = fit(covariance, points, values)
    return covariance


def grid_of(seed: int, count: int) -> tuple[Floats, Floats]:
    """Grid points, some of them equal, and noiseless values that are a function of them."""
    points = np.random.default_rng(seed).integers(0, 5, (count, 6)) / 4
    values = points @ np.arange(1.0, 7.0)
    return points, (values - values.mean()) / values.std()


@pytest.mark.parametrize("size", [2, 100, CHUNK + 1])
def test_predictions_are_those_of_a_linear_solve(size: int) -> None:
    points, values = grid_of(size, size)
    moved, covariance = points + 0.1, Covariance.prior(points.shape[1])
    mean, deviation = GaussianProcess(covariance, points, values).predict(moved)
    across = covariance.between(points, moved)
    solved = np.linalg.solve(covariance.noisy(points), across)
    assert mean == pytest.approx(values @ solved)
    explained = (across * solved).sum(0)
    assert deviation**2 == pytest.approx(covariance.signal - explained, abs=1e-9)


def test_gradient_of_the_loss_matches_differences() -> None:
    squares = np.square(POINTS[:, None] - POINTS[None])
    logs = np.array([-1.0, -0.3, 0.4, 0.2, -3.0])
    _, slope = posterior_loss(logs, squares, VALUES)
    steps = 1e-5 * np.eye(5)
    differences = [
        posterior_loss(logs + step, squares, VALUES)[0]
        - posterior_loss(logs - step, squares, VALUES)[0]
        for step in steps
    ]
    assert slope == pytest.approx(np.array(differences) / 2e-5, rel=1e-4, abs=1e-6)


def test_loss_is_the_density_of_the_values() -> None:
    squares = np.square(POINTS[:, None] - POINTS[None])
    loss, _ = posterior_loss(Covariance.prior(3).logs, squares, VALUES)
    distances = np.sqrt(squares.sum(2)) * np.sqrt(5) / gaussian_process.LENGTH
    covariance = (1 + distances + np.square(distances) / 3) * np.exp(-distances)
    covariance += (gaussian_process.NOISE + gaussian_process.JITTER) * np.eye(12)
    misfit = VALUES @ np.linalg.solve(covariance, VALUES) / 2
    assert loss == pytest.approx(misfit + np.linalg.slogdet(covariance)[1] / 2)


def test_noiseless_process_interpolates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaussian_process, "NOISE", 1e-12)
    mean, _ = conditioned().predict(POINTS)
    assert mean == pytest.approx(VALUES, abs=1e-3)


def test_deviation_grows_with_distance_from_the_points() -> None:
    line = np.array([[0.0], [0.5], [1.0], [2.0], [9.0]])
    _, deviation = conditioned(line[:1], np.ones(1)).predict(line)
    assert np.all(np.diff(deviation) > 0)
    assert deviation[-1] == pytest.approx(np.sqrt(gaussian_process.SIGNAL), rel=1e-3)


def test_prediction_far_from_points_is_the_mean() -> None:
    mean, _ = conditioned().predict(np.full((1, 3), 50.0))
    assert mean == pytest.approx([0.0], abs=1e-6)


def test_fit_ignores_a_dimension_that_does_not_matter() -> None:
    random = np.random.default_rng(5)
    points = random.random((60, 2))
    values = np.sin(8 * points[:, 0])
    covariance = fitted(3, points, (values - values.mean()) / values.std())
    moved = np.array([[0.2, 0.1], [0.2, 0.9], [0.6, 0.1]])
    mean, _ = GaussianProcess(covariance, points, values).predict(moved)
    assert abs(mean[0] - mean[1]) < 0.05
    assert abs(mean[0] - mean[2]) > 1


def test_fit_never_raises_the_loss() -> None:
    squares = np.square(POINTS[:, None] - POINTS[None])
    losses = [
        posterior_loss(fitted(times, POINTS, VALUES).logs, squares, VALUES)[0] for times in range(4)
    ]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


def test_different_values_at_one_point_are_averaged() -> None:
    mean, _ = conditioned(np.zeros((2, 1)), np.array([-1.0, 1.0])).predict(np.zeros((1, 1)))
    assert mean == pytest.approx([0.0], abs=1e-9)


def test_thousand_noiseless_values_are_reproduced() -> None:
    points, values = grid_of(0, 1100)
    process = GaussianProcess(fitted(20, points[:60], values[:60]), points, values)
    mean, _ = process.predict(points)
    assert mean == pytest.approx(values, abs=0.01)


def test_dimensions_of_a_group_share_a_length() -> None:
    random = np.random.default_rng(5)
    points = random.random((60, 4))
    values = np.sin(8 * points[:, 0])
    covariance = Covariance.prior(4)
    for _ in range(4):
        covariance = fit(covariance, points, (values - values.mean()) / values.std(), [2, 1, 1])
    assert covariance.lengths[0] == covariance.lengths[1]
    assert covariance.lengths[0] < 0.7 * covariance.lengths[2]
    assert covariance.lengths[2] != covariance.lengths[3]


def covariance(noise: float = 0.01) -> Covariance:
    return Covariance(np.array([0.7, 1.0, 1.5, 3.0]), 1.2, noise)


def grown(first: int, queries: Floats = QUERIES, noise: float = 0.01) -> Posterior:
    """A posterior that got all points but the first few one at a time."""
    made = Posterior(covariance(noise), SEEN[:first], queries)
    for point in SEEN[first:]:
        made.observe(point[None])
    return made


@pytest.mark.parametrize(("first", "noise"), [(0, 0.01), (1, 0.01), (10, 0.01), (60, 1e-5)])
def test_one_at_a_time_is_as_exact_as_all_at_once(first: int, noise: float) -> None:
    made = grown(first, noise=noise)
    mean, deviation = GaussianProcess(covariance(noise), SEEN, OBSERVED).predict(QUERIES)
    assert made.mean(made.weights(OBSERVED)) == pytest.approx(mean, abs=1e-6)
    assert np.sqrt(made.variance) == pytest.approx(deviation, abs=1e-6)
    assert len(made) == len(SEEN)


def test_more_queries_are_seen_like_the_first_ones() -> None:
    made, whole = grown(10, QUERIES[:200]), grown(10)
    made.extend(QUERIES[200:])
    made.observe(SEEN[:1])
    whole.observe(SEEN[:1])
    values = np.append(OBSERVED, OBSERVED[0])
    assert made.mean(made.weights(values)) == pytest.approx(whole.mean(whole.weights(values)))
    assert made.variance == pytest.approx(whole.variance)


def test_queries_that_are_kept_are_seen_as_before() -> None:
    made, whole, among = grown(10), grown(10), np.array([3, 17, 250])
    made.keep(among)
    made.observe(SEEN[:1])
    whole.observe(SEEN[:1])
    assert made.queries == pytest.approx(QUERIES[among])
    assert made.variance == pytest.approx(whole.variance[among], abs=1e-6)


def test_unknown_value_counts_as_predicted() -> None:
    timed = np.ones(len(SEEN), bool)
    timed[[0, 40, 89]] = False
    made = grown(10)
    without = GaussianProcess(covariance(), SEEN[timed], OBSERVED[timed])
    weights = made.weights(np.where(timed, OBSERVED, np.nan))
    assert made.mean(weights) == pytest.approx(without.predict(QUERIES)[0], abs=1e-6)
    both, _ = GaussianProcess(covariance(), SEEN, OBSERVED).predict(QUERIES)
    assert np.abs(both - without.predict(QUERIES)[0]).max() > 0.01


def test_deviation_shrinks_at_an_observation_without_value() -> None:
    made = Posterior(covariance(), SEEN[:5], QUERIES)
    before = made.variance.copy()
    made.observe(QUERIES[7:8])
    assert made.variance[7] < 0.1 * before[7]
    assert np.all(made.variance <= before + 1e-6)


def test_left_out_error_is_that_of_the_other_observations() -> None:
    made = grown(10)
    errors = made.left_out(made.weights(OBSERVED))
    for place in (0, 33, 89):
        others = np.arange(len(SEEN)) != place
        process = GaussianProcess(covariance(), SEEN[others], OBSERVED[others])
        mean, _ = process.predict(SEEN[place : place + 1])
        assert errors[place] == pytest.approx(OBSERVED[place] - mean[0], abs=1e-6)


def test_draws_have_the_deviation_of_the_posterior() -> None:
    made, among = grown(10), np.array([5, 6, 200])
    drawn = made.draws(among, 20_000, np.random.default_rng(0))
    assert drawn.mean(0) == pytest.approx(np.zeros(3), abs=0.02)
    assert drawn.std(0) == pytest.approx(np.sqrt(made.variance[among]), rel=0.05)


def test_draws_at_neighbouring_points_are_correlated() -> None:
    queries = np.array([[3.0, 3, 3, 3], [3.0, 3, 3, 3.01], [-3, 0, 0, 0]])
    made = Posterior(covariance(), SEEN, queries)
    together = np.corrcoef(made.draws(np.arange(3), 500, np.random.default_rng(0)).T)
    assert together[0, 1] > 0.99
    assert abs(together[0, 2]) < 0.2


def test_draws_close_to_repeated_points_survive_rounding() -> None:
    near = np.random.default_rng(3).normal(scale=1e-3, size=(360, 4))
    made = Posterior(
        covariance(1e-9), np.repeat(SEEN, 8, axis=0), np.repeat(SEEN, 4, axis=0) + near
    )
    drawn = made.draws(np.arange(360), 50, np.random.default_rng(0))
    assert drawn == pytest.approx(np.zeros((50, 360)), abs=0.05)


def test_noiseless_values_on_a_grid_are_reproduced() -> None:
    points = np.random.default_rng(0).integers(0, 5, (500, 4)) / 4
    values = points @ np.arange(1.0, 5.0)
    values = (values - values.mean()) / values.std()
    made = Posterior(covariance(1e-7), points, points)
    assert made.mean(made.weights(values)) == pytest.approx(values, abs=0.01)
