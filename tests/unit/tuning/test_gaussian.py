"""The Gaussian process behind the default search."""

from __future__ import annotations

import numpy as np
import pytest
from support.blas_threads import one_thread as one_thread

from autotune.tuning.search import gaussian
from autotune.tuning.search.gaussian import Floats, GaussianProcess

pytestmark = pytest.mark.usefixtures("one_thread")

POINTS = np.random.default_rng(3).random((12, 3))
VALUES = np.sin(6 * POINTS).sum(1)


def conditioned(points: Floats = POINTS, values: Floats = VALUES) -> GaussianProcess:
    """With the prior's scales, which leave a tenth of a standard deviation to noise."""
    process = GaussianProcess(points.shape[1])
    process.condition(points, values)
    return process


def a_grid(seed: int, count: int) -> tuple[Floats, Floats]:
    """Points of which some are equal, and values that follow from them alone, without noise."""
    points = np.random.default_rng(seed).integers(0, 5, (count, 6)) / 4
    values = points @ np.arange(1.0, 7.0)
    return points, (values - values.mean()) / values.std()


def test_the_slope_of_the_loss_is_that_of_its_differences() -> None:
    process = GaussianProcess(3)
    squares = np.square(POINTS[:, None] - POINTS[None])
    chosen = np.array([-1.0, -0.3, 0.4, 0.2, -3.0])
    _, slope = process._loss(chosen, squares, VALUES)
    steps = 1e-5 * np.eye(5)
    differences = [
        process._loss(chosen + step, squares, VALUES)[0]
        - process._loss(chosen - step, squares, VALUES)[0]
        for step in steps
    ]
    assert slope == pytest.approx(np.array(differences) / 2e-5, rel=1e-4, abs=1e-6)


def test_the_loss_is_the_density_of_the_values_under_the_covariance() -> None:
    process = GaussianProcess(3)
    squares = np.square(POINTS[:, None] - POINTS[None])
    loss, _ = process._loss(process._prior, squares, VALUES)
    distances = np.sqrt(squares.sum(2)) * np.sqrt(5) / gaussian.LENGTH
    covariance = (1 + distances + np.square(distances) / 3) * np.exp(-distances)
    covariance += (gaussian.NOISE + gaussian.JITTER) * np.eye(12)
    fit = VALUES @ np.linalg.solve(covariance, VALUES) / 2
    assert loss == pytest.approx(fit + np.linalg.slogdet(covariance)[1] / 2)


def test_without_noise_it_goes_through_the_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaussian, "NOISE", 1e-12)
    mean, _ = conditioned().predict(POINTS)
    assert mean == pytest.approx(VALUES, abs=1e-3)


def test_it_knows_less_the_farther_from_the_points() -> None:
    line = np.array([[0.0], [0.5], [1.0], [2.0], [9.0]])
    _, deviation = conditioned(line[:1], np.ones(1)).predict(line)
    assert np.all(np.diff(deviation) > 0)
    assert deviation[-1] == pytest.approx(np.sqrt(gaussian.SIGNAL), rel=1e-3)


def test_far_from_the_points_it_expects_the_mean() -> None:
    mean, _ = conditioned().predict(np.full((1, 3), 50.0))
    assert mean == pytest.approx([0.0], abs=1e-6)


def test_draws_have_the_mean_and_the_deviation_that_are_predicted() -> None:
    process, others = conditioned(), POINTS[:5] * 2
    mean, deviation = process.predict(others)
    drawn = process.draws(others, 20_000, np.random.default_rng(0))
    assert drawn.mean(0) == pytest.approx(mean, abs=0.03)
    assert drawn.std(0) == pytest.approx(deviation, rel=0.05)


def test_draws_at_neighbours_go_together() -> None:
    drawn = conditioned().draws(
        np.array([[3.0, 3, 3], [3.0, 3, 3.01], [-3, 0, 0]]), 500, np.random.default_rng(0)
    )
    together = np.corrcoef(drawn.T)
    assert together[0, 1] > 0.99
    assert abs(together[0, 2]) < 0.2


def test_a_dimension_that_does_not_matter_is_found_out() -> None:
    random = np.random.default_rng(5)
    points = random.random((60, 2))
    values = np.sin(8 * points[:, 0])
    process = GaussianProcess(2)
    for _ in range(3):
        process.fit(points, (values - values.mean()) / values.std())
    process.condition(points, values)
    moved = np.array([[0.2, 0.1], [0.2, 0.9], [0.6, 0.1]])
    mean, _ = process.predict(moved)
    assert abs(mean[0] - mean[1]) < 0.05
    assert abs(mean[0] - mean[2]) > 1


def test_fitting_never_makes_it_worse() -> None:
    process = GaussianProcess(3)
    squares = np.square(POINTS[:, None] - POINTS[None])
    losses = []
    for _ in range(4):
        losses.append(process._loss(process._chosen, squares, VALUES)[0])
        process.fit(POINTS, VALUES)
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0]


def test_equal_points_with_different_values_are_averaged() -> None:
    mean, _ = conditioned(np.zeros((2, 1)), np.array([-1.0, 1.0])).predict(np.zeros((1, 1)))
    assert mean == pytest.approx([0.0], abs=1e-9)


def test_more_than_a_thousand_values_without_noise_can_be_known() -> None:
    points, values = a_grid(0, 1100)
    process = GaussianProcess(6)
    for _ in range(20):
        process.fit(points[:60], values[:60])
    process.condition(points, values)
    mean, _ = process.predict(points)
    assert mean == pytest.approx(values, abs=0.01)


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_what_is_predicted_does_not_depend_on_how_many_are_asked_for(noise: float) -> None:
    points, values = a_grid(1, 100)
    others, _ = a_grid(2, 1500)
    values = values + np.random.default_rng(3).normal(0, noise, 100)
    process = GaussianProcess(6)
    for _ in range(20):
        process.fit(points, values)
    process.condition(points, values)
    at_once, singly = process.predict(others), process.predict(others[:500])
    assert at_once[0][:500] == pytest.approx(singly[0], abs=1e-3)
    assert at_once[1][:500] == pytest.approx(singly[1], rel=0.01)
