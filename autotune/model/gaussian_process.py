"""Gaussian process regression with a Matérn 5/2 covariance: for look-ups and for the search.

A process keeps the precision matrix, the inverse of the observations' covariance. An observation
adds a row to it by its Schur complement. Leave-one-out errors, values that are not known yet and
the posterior at queries follow from it by products.

Formulas: C. E. Rasmussen and C. K. I. Williams, Gaussian Processes for Machine Learning (2006),
equations 2.23, 2.24, 5.9, 5.12 and A.12.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from threading import Thread
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.intp]
Real = TypeVar("Real", bound=np.floating[Any])

# The prior's medians. A step across a whole dimension changes little until the values say
# otherwise: 0.8 to 2.0 do about equally well as the length on seven recorded and computed spaces.
LENGTH, SIGNAL, NOISE = 1.5, 1.0, 0.01
# The prior's standard deviations of their logarithms.
LENGTH_SPREAD, SIGNAL_SPREAD, NOISE_SPREAD = 1.0, 1.0, 1.5
# Iterations of one fit, and how many standard deviations of the prior it searches to either side.
STEPS, BOUND = 10, 4.0
# Added to the noise so that the covariance of equal points can be inverted.
JITTER = 1e-6
# The least variance of a prediction.
LEAST = 1e-9
# Points predicted at a time: their covariances stay in the cache.
CHUNK = 512


@dataclass(frozen=True)
class Covariance:
    """A Matérn 5/2 covariance with noise.

    Attributes:
        lengths: the length scale of each dimension.
        signal: variance of the function.
        noise: variance of an observation.
        jitter: added to the noise.
    """

    lengths: Floats
    signal: float
    noise: float
    jitter: float = JITTER

    @classmethod
    def prior(cls, dimensions: int) -> Covariance:
        """The medians of the prior under which `fit` searches."""
        return cls(np.full(dimensions, LENGTH), SIGNAL, NOISE)

    @classmethod
    def of_logs(cls, logs: Floats) -> Covariance:
        """The inverse of `logs`."""
        return cls(np.exp(logs[:-2]), math.exp(logs[-2]), math.exp(logs[-1]))

    @property
    def logs(self) -> Floats:
        """Logarithms of the length scales, the signal and the noise."""
        return np.log([*self.lengths, self.signal, self.noise])

    @property
    def observed(self) -> float:
        """Variance of an observed value."""
        return self.signal + self.noise + self.jitter

    def between(self, left: npt.NDArray[Real], right: npt.NDArray[Real]) -> npt.NDArray[Real]:
        """The covariance of the function at points, without noise: (left, right).

        It has the points' precision.
        """
        scales = (1 / self.lengths).astype(left.dtype)
        left, right = left * scales, right * scales
        squares = (-2 * left) @ right.T
        squares += np.square(left).sum(1)[:, None]
        squares += np.square(right).sum(1)
        return _matern(np.maximum(squares, 0, out=squares), self.signal)

    def noisy(self, points: Floats) -> Floats:
        """The covariance of observations at points."""
        covariance = self.between(points, points)
        np.fill_diagonal(covariance, self.observed)
        return covariance

    def precision(self, points: Floats) -> Floats:
        """The inverse of `noisy`."""
        return np.asarray(np.linalg.inv(self.noisy(points)), float)


class GaussianProcess:
    """A function of mean 0, conditioned on noisy values at some points.

    Args:
        covariance: covariance of the function.
        points: observed points, one a row.
        values: one a point.
    """

    def __init__(self, covariance: Covariance, points: Floats, values: Floats) -> None:
        self._covariance, self._points = covariance, points
        self._precision = covariance.precision(points)
        self._weights = self._precision @ values

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the function, without noise, at other points."""
        mean, variance = np.empty(len(points)), np.empty(len(points))
        for start in range(0, len(points), CHUNK):
            chunk = slice(start, start + CHUNK)
            across = self._covariance.between(self._points, points[chunk])
            mean[chunk] = self._weights @ across
            variance[chunk] = _variance(self._covariance, self._precision, across)
        return mean, np.sqrt(variance)


class Posterior:
    """A function of mean 0, conditioned on observations that are added, seen at a set of queries.

    The values of the observations come with each question, so that they can change.

    Attributes:
        covariance: covariance of the function.
        queries: points to predict, one a row.

    Args:
        covariance: covariance of the function.
        points: where values are observed, one a row; may be empty.
        queries: points to predict, one a row.
    """

    def __init__(self, covariance: Covariance, points: Floats, queries: Floats) -> None:
        self.covariance, self.queries = covariance, queries
        self._points = points
        self._precision = covariance.precision(points)
        self._across = covariance.between(points, queries)
        # Only once it is asked for.
        self._variance: Floats | None = None

    def __len__(self) -> int:
        return len(self._points)

    @property
    def variance(self) -> Floats:
        """The variance of the function, without noise, at the queries."""
        if self._variance is None:
            self._variance = _variance(self.covariance, self._precision, self._across)
        return self._variance

    def observe(self, points: Floats) -> None:
        """Adds observations, whose values come with the next `weights`."""
        covariance = self.covariance
        for point in points[:, None]:
            near = covariance.between(self._points, point)[:, 0]
            column = np.append(-self._precision @ near, 1.0)
            left = covariance.observed + float(near @ column[:-1])
            column /= math.sqrt(max(left, JITTER))
            self._precision = np.pad(self._precision, (0, 1)) + np.outer(column, column)
            self._points = np.vstack([self._points, point])
            self._across = np.vstack([self._across, covariance.between(point, self.queries)])
            if self._variance is not None:
                explained = np.square(column @ self._across)
                self._variance = np.maximum(self._variance - explained, LEAST)

    def extend(self, queries: Floats) -> None:
        """Adds queries."""
        across = self.covariance.between(self._points, queries)
        self.queries = np.vstack([self.queries, queries])
        self._across = np.hstack([self._across, across])
        if self._variance is not None:
            variance = _variance(self.covariance, self._precision, across)
            self._variance = np.append(self._variance, variance)

    def keep(self, among: Indices) -> None:
        """Drops all queries but these."""
        self.queries, self._across = self.queries[among], self._across[:, among]
        if self._variance is not None:
            self._variance = self._variance[among]

    def weights(self, values: Floats) -> Floats:
        """The weights of the observations in the mean; a value that is NaN counts as predicted."""
        unknown = np.isnan(values)
        filled = np.where(unknown, 0.0, values)
        if unknown.any():
            among = self._precision[unknown]
            filled[unknown] = -np.linalg.solve(among[:, unknown], among @ filled)
        return np.asarray(self._precision @ filled)

    def mean(self, weights: Floats) -> Floats:
        """The mean at the queries."""
        return np.asarray(weights @ self._across)

    def left_out(self, weights: Floats) -> Floats:
        """Each observation's value less its prediction from the others."""
        return np.asarray(weights / np.diag(self._precision))

    def draws(self, among: Indices, count: int, random: np.random.Generator) -> Floats:
        """`count` functions drawn from the posterior, less its mean, at some of the queries:
        (count, among)."""
        points, across = self.queries[among], self._across[:, among]
        covariance = self.covariance.between(points, points) - across.T @ self._precision @ across
        nothing = np.zeros(len(among))
        # Rounding may leave negative eigenvalues between points that are nearly the same.
        return random.multivariate_normal(
            nothing, covariance, count, check_valid="ignore", method="eigh"
        )


def import_ahead() -> None:
    """Imports what `fit` takes in a thread, for instance while a worker starts: it takes 0.3 s."""
    Thread(target=import_module, args=("scipy.optimize",), daemon=True).start()


def fit(
    start: Covariance, points: Floats, values: Floats, groups: Sequence[int] | None = None
) -> Covariance:
    """The covariance of the largest posterior density, under log-normal priors, near `start`.

    The density of the result is at least that of `start`.

    Args:
        start: the covariance to begin with.
        points: observed points, one a row.
        values: one a point.
        groups: numbers of consecutive dimensions that share a length scale; None shares none.
    """
    from scipy.optimize import minimize  # takes as long to import as a look-up may

    sizes = [1] * points.shape[1] if groups is None else groups
    first = np.cumsum([0, *sizes[:-1]])
    squares = np.add.reduceat(np.square(points[:, None, :] - points[None, :, :]), first, axis=2)
    begun = replace(start, lengths=start.lengths[first]).logs
    medians, spreads = _prior(len(first))
    optimum = minimize(
        posterior_loss,
        begun,
        (squares, values),
        jac=True,
        method="L-BFGS-B",
        bounds=[*zip(medians - BOUND * spreads, medians + BOUND * spreads, strict=True)],
        options={"maxiter": STEPS},
    )
    fitted = Covariance.of_logs(optimum.x)
    return replace(fitted, lengths=np.repeat(fitted.lengths, sizes))


def posterior_loss(logs: Floats, squares: Floats, values: Floats) -> tuple[float, Floats]:
    """Minus the log of the posterior density of a covariance, up to a constant, and its gradient.

    Args:
        logs: `Covariance.logs`.
        squares: squared differences of the points in each dimension.
        values: observed at the points.
    """
    scales = np.exp(-2 * logs[:-2])
    signal, noise = np.exp(logs[-2:])
    covariance, slopes = _matern_slopes(squares @ scales, signal)
    noisy = covariance + (noise + JITTER) * np.eye(len(values))
    root, precision = np.linalg.cholesky(noisy), np.asarray(np.linalg.inv(noisy), float)
    weights = precision @ values
    medians, spreads = _prior(len(scales))
    off = logs - medians
    gradient = off / np.square(spreads)
    loss = 0.5 * (values @ weights + gradient @ off) + np.log(np.diag(root)).sum()
    outer = 0.5 * (precision - np.outer(weights, weights))
    gradient[:-2] += np.tensordot(outer * slopes, squares, 2) * scales
    gradient[-2] += (outer * covariance).sum()
    gradient[-1] += np.trace(outer) * noise
    return float(loss), gradient


def _prior(lengths: int) -> tuple[Floats, Floats]:
    """The medians of `Covariance.logs` and their standard deviations."""
    medians = Covariance.prior(lengths).logs
    return medians, np.array([*[LENGTH_SPREAD] * lengths, SIGNAL_SPREAD, NOISE_SPREAD])


def _variance(covariance: Covariance, precision: Floats, across: Floats) -> Floats:
    """The variance at queries whose covariances with the observations are `across`."""
    explained = np.einsum("ij,ij->j", across, precision @ across)
    return np.asarray(np.maximum(covariance.signal - explained, LEAST))


def _matern(squares: npt.NDArray[Real], signal: float) -> npt.NDArray[Real]:
    """Covariance at squared distances, in their place."""
    squares *= 5
    falling = np.sqrt(squares)
    squares /= 3
    squares += falling
    squares += 1
    np.exp(np.negative(falling, out=falling), out=falling)
    squares *= falling
    squares *= signal
    return squares


def _matern_slopes(squares: Floats, signal: float) -> tuple[Floats, Floats]:
    """Covariance at squared distances, and minus twice its derivative by them."""
    scaled = np.sqrt(5 * squares)
    falling = np.exp(-scaled) * signal
    slopes = (5 / 3) * (1 + scaled) * falling
    return (1 + scaled + (5 / 3) * squares) * falling, slopes
