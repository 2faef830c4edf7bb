"""A Gaussian process's posterior at many points, kept up to date one observation at a time.

With L the Cholesky factor of the observations' covariance, an observation adds a row to L, to its
inverse, and to V = L^-1 K of their covariances K with the queries. The values come in afterwards:
the mean is V' L^-1 y. So an observation costs as many operations as V has elements, where a
solution from scratch costs as many times more as there are observations.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.candidates.gaussian_process import JITTER, LEAST, Covariance, Floats

Indices = npt.NDArray[np.intp]

# Single precision is twice as fast. It is accurate enough where the noise exceeds this share of the
# signal; below, its rounding would exceed the differences of the values.
SINGLE = 1e-4
# Entries of a block of covariances: they stay in a core's own cache.
BLOCK_ENTRIES = 100_000
# Observations that there is room for beyond the first ones.
ROOM = 64


class Posterior:
    """A function of mean 0, conditioned on noisy values at points, seen at a set of queries.

    Single precision is used where it is accurate to a thousandth of the signal.

    Args:
        covariance: of the function.
        points: where values are observed, one a row; may be empty.
        queries: where the function is asked for, one a row.
    """

    def __init__(self, covariance: Covariance, points: Floats, queries: Floats) -> None:
        self.covariance = covariance
        noise = covariance.noise + covariance.jitter
        self._kind: type[np.floating[Any]] = (
            np.float32 if noise > SINGLE * covariance.signal else np.float64
        )
        self._points, self.queries = points, queries
        self._scaled = covariance.scaled(queries, self._kind)
        self._count = len(points)
        root = np.linalg.cholesky(covariance.noisy(points)) if len(points) else np.empty((0, 0))
        room = len(points) + ROOM
        self._inverse = np.zeros((room, room))
        self._inverse[: len(points), : len(points)] = np.linalg.inv(root)
        self._explained = np.empty((room, len(queries)), self._kind)
        self._explained[: len(points)] = self._solved(self._scaled)
        self.variance = self._variance(self._explained[: len(points)])

    def __len__(self) -> int:
        return self._count

    def observe(self, points: Floats) -> None:
        """Adds observations, whose values come with the next `weights`."""
        covariance = self.covariance
        for point in points:
            self._grow()
            count, at = self._count, point[None]
            row = self._inverse[:count, :count] @ covariance.between(self._points, at)[:, 0]
            left = covariance.signal + covariance.noise + covariance.jitter
            deviation = math.sqrt(max(float(left - row @ row), JITTER))
            self._inverse[count, :count] = row @ self._inverse[:count, :count] / -deviation
            self._inverse[count, count] = 1 / deviation
            across = covariance.apart(covariance.scaled(at, self._kind), self._scaled)[0]
            across -= row.astype(self._kind) @ self._explained[:count]
            across /= self._kind(deviation)
            self._explained[count] = across
            self.variance = np.maximum(self.variance - np.square(across), LEAST)
            self._points = np.vstack([self._points, at])
            self._count += 1

    def extend(self, queries: Floats) -> None:
        """Adds queries."""
        explained = np.empty((len(self._explained), len(queries)), self._kind)
        scaled = self.covariance.scaled(queries, self._kind)
        explained[: self._count] = self._solved(scaled)
        self.queries = np.vstack([self.queries, queries])
        self._scaled = np.vstack([self._scaled, scaled])
        self._explained = np.hstack([self._explained, explained])
        variance = self._variance(explained[: self._count])
        self.variance = np.append(self.variance, variance)

    def keep(self, among: Indices) -> None:
        """Drops all queries but these."""
        self.queries, self._scaled = self.queries[among], self._scaled[among]
        self._explained, self.variance = self._explained[:, among], self.variance[among]

    def weights(self, values: Floats, timed: npt.NDArray[np.bool_]) -> Floats:
        """The values in the basis of `mean`; one that is not timed counts as predicted."""
        inverse = self._inverse[: self._count, : self._count]
        weights = np.asarray(inverse[:, timed] @ values[timed])
        if not timed.all():
            free = inverse[:, ~timed]
            weights -= free @ np.linalg.solve(free.T @ free, free.T @ weights)
        return weights

    def mean(self, weights: Floats) -> Floats:
        """The mean at the queries."""
        return np.asarray(weights.astype(self._kind) @ self._explained[: self._count])

    def left_out(self, weights: Floats) -> tuple[Floats, Floats]:
        """Each observation's value less its prediction by the others, and that one's deviation.

        Rasmussen and Williams, equations 5.10 to 5.12; the deviation includes the noise.
        """
        inverse = self._inverse[: self._count, : self._count]
        precision = np.square(inverse).sum(0)
        return np.asarray(weights @ inverse) / precision, 1 / np.sqrt(precision)

    def draws(
        self, weights: Floats, among: Indices, count: int, random: np.random.Generator
    ) -> Floats:
        """`count` functions drawn from the posterior, at some of the queries: (count, among)."""
        explained = self._explained[: self._count, among].astype(float)
        points = self.queries[among]
        covariance = self.covariance.between(points, points) - explained.T @ explained
        noise = random.standard_normal((count, len(among)))
        return np.asarray(weights @ explained + noise @ _root(covariance).T)

    def _solved(self, scaled: Floats) -> Floats:
        """L^-1 K for scaled queries."""
        points = self.covariance.scaled(self._points, self._kind)
        inverse = self._inverse[: self._count, : self._count].astype(self._kind)
        solved = np.empty((self._count, len(scaled)), self._kind)
        step = max(1, BLOCK_ENTRIES // max(1, self._count))
        for start in range(0, len(scaled), step):
            block = slice(start, start + step)
            solved[:, block] = inverse @ self.covariance.apart(points, scaled[block])
        return solved

    def _variance(self, explained: Floats) -> Floats:
        squares = np.einsum("ij,ij->j", explained, explained)
        return np.asarray(np.maximum(self.covariance.signal - squares, LEAST))

    def _grow(self) -> None:
        """Makes room for another observation."""
        room = len(self._inverse)
        if self._count < room:
            return
        inverse = np.zeros((room + ROOM, room + ROOM))
        inverse[:room, :room] = self._inverse
        more = np.empty((ROOM, self._explained.shape[1]), self._kind)
        self._inverse, self._explained = inverse, np.vstack([self._explained, more])


def _root(covariance: Floats) -> Floats:
    """R with R R' = `covariance`, as far as rounding leaves it a covariance.

    Between points that are nearly the same, single precision may leave negative eigenvalues; they
    count as 0.
    """
    covariance[np.diag_indices_from(covariance)] += 10 * JITTER
    try:
        return np.asarray(np.linalg.cholesky(covariance), covariance.dtype)
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(covariance)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))
