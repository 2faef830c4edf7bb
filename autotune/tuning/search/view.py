"""Predicted times and chances of a search's candidates, given the results so far."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from autotune.candidates.gaussian_process import Covariance, Floats, fit
from autotune.candidates.posterior import ROOM, Posterior
from autotune.tuning.search.chances import Chances
from autotune.tuning.search.history import Mask
from autotune.tuning.search.improvement import expected_improvement

Indices = npt.NDArray[np.intp]

# Covariances of the most promising candidates with the observations that are kept up to date until
# the next fit.
KEPT, LEAST_KEPT = 500_000, 1000


@dataclass(frozen=True)
class Values:
    """The values of observations, as the process sees them.

    Attributes:
        explained: what the cost model does not explain, less `center`, in units of `spread`.
        timed: whether an observation has a value; others count as predicted.
        center: mean of what the cost model does not explain.
        spread: its standard deviation.
    """

    explained: Floats
    timed: Mask
    center: float
    spread: float

    def weights(self, posterior: Posterior) -> Floats:
        """The values in the basis of the posterior's mean."""
        return posterior.weights(self.explained, self.timed)

    def times(self, posterior: Posterior, expected: Floats) -> Floats:
        """The predicted time of each query, where the cost model expects `expected`."""
        return posterior.mean(self.weights(posterior)) * self.spread + self.center + expected

    def gains(self, posterior: Posterior, times: Floats) -> Floats:
        """The expected improvement of each query, whose `times` are predicted."""
        return expected_improvement(-times, np.sqrt(posterior.variance) * self.spread)


@dataclass
class View:
    """The posterior at a pool of configurations.

    Attributes:
        posterior: conditioned on the configurations of `rows`.
        pool: the configurations it is seen at.
        rows: indices of configurations, told or running, in the order of its observations.
        chances: of the pool to run; None if nothing has failed.
        told: the number of results that the chances know.
    """

    posterior: Posterior
    pool: Indices
    rows: list[int]
    chances: Chances | None
    told: int
    members: set[int] = field(init=False)

    def __post_init__(self) -> None:
        self.members = set(self.rows)

    def observe(self, indices: Sequence[int], points: Floats) -> None:
        """Adds configurations, told or running."""
        self.posterior.observe(points)
        self.rows += indices
        self.members.update(indices)

    def extend(self, indices: Indices, points: Floats) -> None:
        """Adds configurations to the pool."""
        self.posterior.extend(points)
        self.pool = np.append(self.pool, indices)
        if self.chances is not None:
            self.chances.extend(points)


@dataclass(frozen=True)
class Plan:
    """All that a view is made of.

    Attributes:
        starts: the covariances of the times and of the chances to start fitting from.
        rows: indices of the configurations observed.
        pool: indices of the configurations to rank.
        points: those observed.
        queries: those to rank.
        values: of `rows`.
        expected: the cost model's part of the times of `pool`.
        telling: places of the rows to fit to.
        ran: of every configuration told whether it ran.
        tried: those configurations.
        judging: places of `tried` to fit to.
        groups: numbers of consecutive columns that share a length scale.
    """

    starts: tuple[Covariance, Covariance]
    rows: list[int]
    pool: Indices
    points: Floats
    queries: Floats
    values: Values
    expected: Floats
    telling: Indices
    ran: Mask
    tried: Floats
    judging: Indices
    groups: Sequence[int]

    def view(self) -> View:
        """Fits the covariances, conditions on the rows and keeps the most promising of the pool."""
        few, values, pool, chances = self.telling, self.values, self.pool, None
        covariance = fit(self.starts[0], self.points[few], values.explained[few], self.groups)
        posterior = Posterior(covariance, self.points, self.queries)
        gains = values.gains(posterior, values.times(posterior, self.expected))
        if not self.ran.all():
            chances = Chances(
                *(
                    self.starts[1],
                    self.tried,
                    self.ran,
                    self.queries,
                    self.groups,
                    self.judging,
                )
            )
            gains = chances.weighted(gains)
        most = max(LEAST_KEPT, KEPT // (len(self.rows) + ROOM))
        if most < len(pool):
            front = np.sort(np.argpartition(-gains, most)[:most])
            posterior.keep(front)
            pool = pool[front]
            if chances is not None:
                chances.keep(front)
        return View(posterior, pool, self.rows, chances, len(self.ran))


@dataclass(frozen=True)
class Ranking:
    """How promising the candidates of a view are.

    Attributes:
        view: the candidates.
        values: of its observations.
        times: predicted for the pool, as warped logarithms over the best.
        gains: the expected improvement of the pool, -inf for those that are not left.
    """

    view: View
    values: Values
    times: Floats
    gains: Floats
