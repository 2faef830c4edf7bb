"""A Gaussian process over points in a unit cube: Matérn 5/2, a length scale for each dimension.

Formulas: C. E. Rasmussen and C. K. I. Williams, Gaussian Processes for Machine Learning (2006),
algorithm 2.1 and equations 4.17 and 5.9.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

# A step across a whole dimension changes little at first, until the values say otherwise: a prior
# in the middle of 0.8 to 2.0, which do about as well on seven recorded and computed spaces.
LENGTH, SIGNAL, NOISE = 1.5, 1.0, 0.01
# Standard deviations of their logarithms.
LENGTH_SPREAD, SIGNAL_SPREAD, NOISE_SPREAD = 1.0, 1.0, 1.5
STEPS, RATE = 25, 0.1
# Beside the noise, so that a matrix of equal points can still be factored.
JITTER = 1e-6
# Of so many points single precision is twice as fast, and it is enough where the noise is more than
# such a share of the variance; else its rounding would be larger than what the values differ by.
MANY, SINGLE = 1000, 1e-4
ROOT5 = math.sqrt(5.0)


class GaussianProcess:
    """Values of mean 0 and variance 1 or so at points of some dimensions.

    Scales, variance and noise are those of the largest posterior density, under log-normal priors.
    """

    def __init__(self, dimensions: int) -> None:
        self._prior = np.log([LENGTH] * dimensions + [SIGNAL, NOISE])
        spreads = [LENGTH_SPREAD] * dimensions + [SIGNAL_SPREAD, NOISE_SPREAD]
        self._precision = 1.0 / np.square(spreads)
        self._chosen = self._prior.copy()
        self._points: Floats = np.empty((0, dimensions))
        self._weights: Floats = np.empty(0)
        self._inverse: Floats = np.empty((0, 0))

    def fit(self, points: Floats, values: Floats) -> None:
        """Chooses scales, variance and noise anew, from where they are, by Adam."""
        squares = np.square(points[:, None, :] - points[None, :, :])
        chosen, best = self._chosen.copy(), (math.inf, self._chosen)
        first, second = np.zeros_like(chosen), np.zeros_like(chosen)
        for step in range(1, STEPS + 1):
            loss, slope = self._loss(chosen, squares, values)
            if loss < best[0]:
                best = loss, chosen
            first = 0.9 * first + 0.1 * slope
            second = 0.99 * second + 0.01 * np.square(slope)
            scale = np.sqrt(second / (1 - 0.99**step)) + 1e-8
            chosen = chosen - RATE * first / (1 - 0.9**step) / scale
        self._chosen = best[1]

    def condition(self, points: Floats, values: Floats) -> None:
        """Takes the values at the points as known."""
        self._points = points
        covariance = self._covariance(points, points)
        covariance[np.diag_indices_from(covariance)] += self._noise
        # The root of the precision: what is known has few points, what is asked many.
        self._inverse = np.linalg.inv(np.linalg.cholesky(covariance))
        self._weights = self._inverse.T @ (self._inverse @ values)

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the values, without noise, at other points."""
        single = len(points) > MANY and self._noise > SINGLE * math.exp(self._chosen[-2])
        across = self._covariance(points, self._points, np.float32 if single else np.float64)
        explained = np.square(across @ self._inverse.T.astype(across.dtype)).sum(1)
        variance = np.maximum(math.exp(self._chosen[-2]) - explained, 1e-9)
        return across @ self._weights, np.sqrt(variance)

    def draws(self, points: Floats, count: int, random: np.random.Generator) -> Floats:
        """`count` functions drawn from the posterior, at the points: (count, points)."""
        across = self._covariance(points, self._points)
        explained = across @ self._inverse.T
        covariance = self._covariance(points, points) - explained @ explained.T
        covariance[np.diag_indices_from(covariance)] += 10 * JITTER
        root = np.linalg.cholesky(covariance)
        noise = random.standard_normal((count, len(points)))
        return np.asarray(across @ self._weights + noise @ root.T)

    @property
    def _noise(self) -> float:
        return float(np.exp(self._chosen[-1])) + JITTER

    def _covariance(
        self, ones: Floats, others: Floats, kind: type[np.floating[Any]] = np.float64
    ) -> Floats:
        scales = np.exp(-self._chosen[:-2])
        left, right = (ones * scales).astype(kind), (others * scales).astype(kind)
        squares = np.square(left).sum(1)[:, None] + np.square(right).sum(1)[None, :]
        squares -= 2 * left @ right.T
        np.maximum(squares, 0, out=squares)
        return np.asarray(_matern(squares, math.exp(self._chosen[-2]))[0])

    def _loss(self, chosen: Floats, squares: Floats, values: Floats) -> tuple[float, Floats]:
        """Minus the log of the posterior density, but for a constant, and its gradient."""
        scales = np.exp(-2 * chosen[:-2])
        signal, noise = np.exp(chosen[-2:])
        covariance, slopes = _matern(squares @ scales, signal)
        noisy = covariance + (noise + JITTER) * np.eye(len(values))
        root = np.linalg.cholesky(noisy)
        inverse = np.linalg.inv(root)
        precision = inverse.T @ inverse
        weights = precision @ values
        off = chosen - self._prior
        loss = 0.5 * values @ weights + np.log(np.diag(root)).sum()
        loss += 0.5 * (self._precision * np.square(off)).sum()
        outer = 0.5 * (precision - np.outer(weights, weights))
        gradient = self._precision * off
        gradient[:-2] += np.tensordot(outer * slopes, squares, 2) * scales
        gradient[-2] += (outer * covariance).sum()
        gradient[-1] += np.trace(outer) * noise
        return float(loss), gradient


def _matern(squares: Floats, signal: float) -> tuple[Floats, Floats]:
    """Covariance at squared distances, and minus twice its derivative by those."""
    distances = np.sqrt(squares)
    falling = np.exp(-ROOT5 * distances) * signal
    slopes = (5 / 3) * (1 + ROOT5 * distances) * falling
    return (1 + ROOT5 * distances + (5 / 3) * squares) * falling, slopes
