"""Gaussian process regression with a Matérn 5/2 covariance.

Formulas: C. E. Rasmussen and C. K. I. Williams, Gaussian Processes for Machine Learning (2006),
algorithm 2.1 and equations 4.17 and 5.9.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
# Of either precision.
_Reals = npt.NDArray[np.floating[Any]]

# The prior's medians. A step across a whole dimension changes little until the values say
# otherwise: 0.8 to 2.0 do about equally well as the length on seven recorded and computed spaces.
LENGTH, SIGNAL, NOISE = 1.5, 1.0, 0.01
# The prior's standard deviations of their logarithms.
LENGTH_SPREAD, SIGNAL_SPREAD, NOISE_SPREAD = 1.0, 1.0, 1.5
# Adam: steps of one fit, and learning rate.
STEPS, RATE = 25, 0.1
# Added to the noise so that the covariance of equal points can be factored.
JITTER = 1e-6
# The least variance of a prediction.
LEAST = 1e-9
# Rows a block of the triangular solve.
BLOCK = 32
# Entries of a covariance worked on at a time: the system maps larger arrays anew each time.
CACHED = 12_000
# Points predicted at a time: their covariances stay in the cache.
CHUNK = 2048
ROOT5 = math.sqrt(5.0)


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

    def between(
        self, left: Floats, right: Floats, kind: type[np.floating[Any]] = np.float64
    ) -> Floats:
        """The covariance of the function at points, without noise: (left, right)."""
        return self.apart(self.scaled(left, kind), self.scaled(right, kind))

    def scaled(self, points: Floats, kind: type[np.floating[Any]] = np.float64) -> Floats:
        """Points in units of the length scales."""
        return np.asarray((points / self.lengths).astype(kind))

    def apart(self, left: Floats, right: Floats) -> Floats:
        """The covariance of the function at scaled points: (left, right)."""
        squares = (-2 * left) @ right.T
        squares += np.square(left).sum(1)[:, None]
        squares += np.square(right).sum(1)[None, :]
        np.maximum(squares, 0, out=squares)
        return np.asarray(_matern(squares, self.signal))

    def noisy(self, points: Floats) -> Floats:
        """The covariance of observations at points."""
        covariance = self.between(points, points)
        covariance[np.diag_indices_from(covariance)] += self.noise + self.jitter
        return covariance


class GaussianProcess:
    """A function of mean 0, conditioned on noisy values at some points.

    Args:
        covariance: of the function.
        points: where values were observed, one a row.
        values: one a point.
    """

    def __init__(self, covariance: Covariance, points: Floats, values: Floats) -> None:
        self._covariance, self._points = covariance, points
        self._root, self._inverses = _factored(covariance.noisy(points))
        self._whitened = self._solved(values[:, None])[:, 0]

    def mean(self, points: Floats) -> Floats:
        """Mean of the function at other points."""
        return np.asarray(self._weights @ self._covariance.between(self._points, points))

    @cached_property
    def _weights(self) -> Floats:
        return np.asarray(solve_upper(self._root.T, self._whitened[:, None])[:, 0])

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the function, without noise, at other points."""
        covariance = self._covariance
        mean, deviation = np.empty(len(points)), np.empty(len(points))
        for start in range(0, len(points), CHUNK):
            chunk = slice(start, start + CHUNK)
            across = covariance.between(self._points, points[chunk])
            solved = self._solved(across)
            mean[chunk] = self._whitened @ solved
            explained = np.square(solved).sum(0)
            deviation[chunk] = np.sqrt(np.maximum(covariance.signal - explained, LEAST))
        return mean, deviation

    def _solved(self, right: Floats) -> Floats:
        return np.asarray(_substituted(self._root, self._inverses, right))


def fit(
    start: Covariance, points: Floats, values: Floats, groups: Sequence[int] | None = None
) -> Covariance:
    """The covariance of the largest posterior density, under log-normal priors, by Adam.

    The density of the result is at least that of `start`.

    Args:
        start: the covariance to begin with.
        points: where values were observed, one a row.
        values: one a point.
        groups: numbers of consecutive dimensions that share a length scale; None shares none.
    """
    sizes = [1] * points.shape[1] if groups is None else groups
    first = np.cumsum([0, *sizes[:-1]])
    squares = np.add.reduceat(np.square(points[:, None, :] - points[None, :, :]), first, axis=2)
    begun = Covariance(start.lengths[first], start.signal, start.noise)
    best = _steepest(begun.logs, squares, values)
    fitted = Covariance.of_logs(best)
    return replace(fitted, lengths=np.repeat(fitted.lengths, sizes))


def _steepest(logs: Floats, squares: Floats, values: Floats) -> Floats:
    """The logarithms of the least loss that `STEPS` steps of Adam meet."""
    best = math.inf, logs
    first, second = np.zeros_like(logs), np.zeros_like(logs)
    for step in range(1, STEPS + 1):
        loss, slope = posterior_loss(logs, squares, values)
        if loss < best[0]:
            best = loss, logs
        first = 0.9 * first + 0.1 * slope
        second = 0.99 * second + 0.01 * np.square(slope)
        scale = np.sqrt(second / (1 - 0.99**step)) + 1e-8
        logs = logs - RATE * first / (1 - 0.9**step) / scale
    return best[1]


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
    root = np.linalg.cholesky(covariance + (noise + JITTER) * np.eye(len(values)))
    # The trace in equation 5.9 needs every element of the precision matrix.
    half = solve_lower(root, np.eye(len(values)))
    precision = half.T @ half
    weights = precision @ values
    off, spreads = logs - math.log(LENGTH), np.full(len(logs), LENGTH_SPREAD)
    off[-2:] = logs[-2:] - np.log((SIGNAL, NOISE))
    spreads[-2:] = SIGNAL_SPREAD, NOISE_SPREAD
    pull = off / np.square(spreads)
    loss = 0.5 * (values @ weights + pull @ off) + np.log(np.diag(root)).sum()
    outer = 0.5 * (precision - np.outer(weights, weights))
    gradient = pull
    gradient[:-2] += np.tensordot(outer * slopes, squares, 2) * scales
    gradient[-2] += (outer * covariance).sum()
    gradient[-1] += np.trace(outer) * noise
    return float(loss), gradient


def solve_lower(root: _Reals, right: _Reals) -> _Reals:
    """X of `root @ X = right`, by forward substitution a block of rows at a time.

    numpy has no triangular solve; this one takes half the operations of a product with the inverse.
    """
    return _substituted(root, _inverse_blocks(root), right)


def _factored(matrix: Floats) -> tuple[Floats, list[Floats]]:
    """The Cholesky factor of a matrix, which it overwrites up to the diagonal, and the inverses of
    the blocks on that.

    In numpy's own one thread does a third of the operations that it does in products.
    """
    inverses: list[Floats] = []
    for start in range(0, len(matrix), BLOCK):
        rows, below = slice(start, start + BLOCK), slice(start + BLOCK, None)
        if start:
            matrix[start:, rows] -= matrix[start:, :start] @ matrix[rows, :start].T
        matrix[rows, rows] = np.linalg.cholesky(matrix[rows, rows])
        inverses.append(np.asarray(np.linalg.inv(matrix[rows, rows]), float))
        matrix[below, rows] = matrix[below, rows] @ inverses[-1].T
    return matrix, inverses


def _inverse_blocks(root: _Reals) -> list[_Reals]:
    """The inverses of the blocks on the diagonal."""
    whole = len(root) // BLOCK * BLOCK
    blocks = np.array([root[at : at + BLOCK, at : at + BLOCK] for at in range(0, whole, BLOCK)])
    inverses = [*np.linalg.inv(blocks)] if whole else []
    return [*inverses, np.linalg.inv(root[whole:, whole:])] if whole < len(root) else inverses


def _substituted(root: _Reals, inverses: Sequence[_Reals], right: _Reals) -> _Reals:
    """X of `root @ X = right`, with the inverses of the blocks on the diagonal of `root`."""
    solved = np.empty_like(right)
    for place, inverse in enumerate(inverses):
        rows = slice(start := place * BLOCK, start + BLOCK)
        rest = right[rows] - root[rows, :start] @ solved[:start] if start else right[rows]
        solved[rows] = inverse @ rest
    return solved


def solve_upper(root: _Reals, right: _Reals) -> _Reals:
    """X of `root @ X = right`, by backward substitution."""
    return solve_lower(root[::-1, ::-1], right[::-1])[::-1]


def _matern(squares: _Reals, signal: float) -> _Reals:
    """Covariance at squared distances, which it overwrites, a few rows at a time."""
    step = max(1, CACHED // max(1, squares.shape[-1]))
    for start in range(0, len(squares), step):
        part = squares[start : start + step]
        scaled = np.sqrt(5 * part)
        falling = np.exp(-scaled)
        falling *= signal
        scaled += 1
        part *= 5 / 3
        scaled += part
        np.multiply(falling, scaled, out=part)
    return squares


def _matern_slopes(squares: Floats, signal: float) -> tuple[Floats, Floats]:
    """Covariance at squared distances, and minus twice its derivative by them."""
    scaled = np.sqrt(5 * squares)
    falling = np.exp(-scaled) * signal
    slopes = (5 / 3) * (1 + scaled) * falling
    return (1 + scaled + (5 / 3) * squares) * falling, slopes
