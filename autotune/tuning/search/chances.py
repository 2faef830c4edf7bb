"""The chance of configurations to run, learnt from those that failed."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from autotune.candidates.gaussian_process import Covariance, Floats, GaussianProcess, fit
from autotune.tuning.search.history import Mask

Indices = npt.NDArray[np.intp]

# Configurations with less of a chance come after all others: nobody saw a time there, so their
# improvement is a guess, and the largest of all where everything else is known.
DOUBTFUL = 0.01
# More than any improvement of the logarithm of a time.
BEHIND = 100.0


class Chances:
    """The chance to run of the members of a pool.

    A Gaussian process of 1 for a configuration that ran and 0 for one that failed, around their
    mean. Its length scales are its own: what decides whether a kernel runs is mostly not what
    decides how long it takes.

    Attributes:
        covariance: of the process.

    Args:
        start: the covariance to begin fitting with.
        points: the configurations that ran or failed.
        ran: which of them ran; at least one did and one did not.
        queries: the pool.
        groups: numbers of consecutive columns that share a length scale.
        telling: places of the points to fit to.
    """

    def __init__(
        self,
        start: Covariance,
        points: Floats,
        ran: Mask,
        queries: Floats,
        groups: Sequence[int],
        telling: Indices,
    ) -> None:
        self._share = float(ran.mean())
        self._spread = math.sqrt(self._share * (1 - self._share))
        values = (ran.astype(float) - self._share) / self._spread
        self.covariance = fit(start, points[telling], values[telling], groups)
        self._process = GaussianProcess(self.covariance, points, values)
        self._queries = queries
        self._values = self._at(queries)

    @property
    def values(self) -> Floats:
        """One chance a member of the pool, 0 to 1."""
        return np.clip(self._values, 0.0, 1.0)

    def weighted(self, gains: Floats) -> Floats:
        """The improvements that are expected given the chances, those of doubtful members last."""
        chances = self.values
        return np.where(chances < DOUBTFUL, gains - BEHIND, gains * chances)

    def extend(self, queries: Floats) -> None:
        """Adds members to the pool."""
        self._queries = np.vstack([self._queries, queries])
        self._values = np.append(self._values, self._at(queries))

    def keep(self, among: Indices) -> None:
        """Drops all members but these."""
        self._queries, self._values = self._queries[among], self._values[among]

    def learn(self, points: Floats, ran: Mask) -> None:
        """Moves the chances near points by what was not expected of them.

        Each counts by itself until the next fit takes all of them together.
        """
        covariance = self.covariance
        if len(points):
            near = covariance.between(points, self._queries)
            near /= covariance.signal + covariance.noise
            self._values = self._values + (ran - self._at(points)) @ near

    def _at(self, points: Floats) -> Floats:
        return self._share + self._spread * self._process.mean(points)
