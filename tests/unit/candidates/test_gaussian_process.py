"""Gaussian process regression."""

from __future__ import annotations

import numpy as np
import pytest

from autotune.candidates import gaussian_process
from autotune.candidates.gaussian_process import (
    Covariance,
    Floats,
    GaussianProcess,
    fit,
    posterior_loss,
    solve_lower,
    solve_upper,
)

POINTS = np.random.default_rng(3).random((12, 3))
VALUES = np.sin(6 * POINTS).sum(1)


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


@pytest.mark.parametrize("size", [1, 31, 32, 33, 100])
def test_triangular_solves_agree_with_numpy(size: int) -> None:
    random = np.random.default_rng(size)
    root = np.tril(random.random((size, size))) + size * np.eye(size)
    right = random.random((size, 7))
    assert root @ solve_lower(root, right) == pytest.approx(right)
    assert root.T @ solve_upper(root.T, right) == pytest.approx(right)


@pytest.mark.parametrize("size", [2, 31, 32, 33, 100])
def test_predictions_are_those_of_the_whole_inverse(size: int) -> None:
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
