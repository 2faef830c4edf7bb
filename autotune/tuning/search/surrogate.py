"""The engine that models the times by a Gaussian process and tries the most promising."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from optuna import Study
from optuna.trial import FrozenTrial

from autotune.candidates.features import Describe, Floats
from autotune.candidates.gaussian_process import Covariance
from autotune.candidates.posterior import ROOM
from autotune.families.config import Config
from autotune.tuning.search.axes import SearchSpace
from autotune.tuning.search.described import DescribedSpace
from autotune.tuning.search.foresight import Foresight
from autotune.tuning.search.history import History, Mask
from autotune.tuning.search.view import Plan, Ranking, Values, View

Indices = npt.NDArray[np.intp]

# The process sees w log(1 + r / w), where r is the logarithm of the time over the best and w is
# WARP: times far behind the best need not be told apart.
WARP = 0.3
# The share of the cost model's prediction that is used as the mean; the process explains the rest.
# Models that rank well still err by a tenth among the best.
TRUST = 0.5
# The covariance is fitted again, in another thread, after a share of the results so far, a smaller
# one up to LATE of them. It is used once half as many more have come, so that proposals depend on
# the results alone and not on the speed of the thread.
EARLY_REFIT, LATE, LATE_REFIT = 30, 60, 10
# Values that it is fitted to.
FITTED = 150
# Covariances between candidates and observations that are computed for a fit.
ENTRIES = 2_000_000
LEAST_POOL, AROUND = 2000, 500
# In a large space the candidates are a sample beside the neighbours of the best: the first
# configurations, which a model prefers, and others at random. Describing one takes 40 us.
SAMPLE, FIRST = 8_000, 2_000
# The outlook: functions drawn, and how many of the most promising configurations they are drawn at.
DRAWS, PROMISING = 64, 256
# How many of the most promising `spare` checks.
LOOKED_AT = 64


@dataclass(frozen=True)
class _Task:
    """A view that is being made, and the number of results from which on it is used."""

    view: Future[View]
    due: int


class Surrogate:
    """Expected improvement over all configurations left, or over a large sample.

    A running configuration counts as having come out as predicted. One that failed has no time; it
    lowers the chance of its neighbourhood, by which the improvement is multiplied.

    Args:
        configs: all configurations.
        space: the same as points.
        history: of the search, up to date whenever a proposal is made.
        describe: features and predicted times; None searches blind, by the parameters alone.
        random: for samples.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        space: SearchSpace,
        history: History,
        describe: Describe | None,
        random: np.random.Generator,
    ) -> None:
        # A blind search may miss a basin, for lack of features that tell it from others.
        self.beside = 0.05 if describe is None else 0.0
        self._history, self._random = history, random
        self._space = DescribedSpace(configs, space, history, describe)
        self._sample = np.arange(len(configs))
        if len(configs) > SAMPLE:
            rest = random.permutation(self._sample[FIRST:])
            self._sample = np.append(self._sample[:FIRST], rest[: SAMPLE - FIRST])
        self._logs = np.full(len(configs), math.nan)
        self._read = 0
        self._thread = ThreadPoolExecutor(1, "fit")
        self._view: View | None = None
        self._task: _Task | None = None
        self._fitted = 0
        self._near: int | None = None
        self._neighbours: dict[int, Indices] = {}
        self._foresight = Foresight()

    def propose(self, left: Mask, study: Study, trial: FrozenTrial) -> int | None:
        """The most promising configuration left; None until one has a time."""
        del study, trial
        if self._history.best is None:
            return None
        ranking = self._ranked(left)
        return self._foreseen(ranking, int(ranking.gains.argmax()))

    def spare(self, left: Mask, fits: Callable[[int], bool]) -> int | None:
        """The most promising that fits; None if none of the best `LOOKED_AT` does."""
        if self._history.best is None:
            return None
        ranking = self._ranked(left)
        pool = ranking.view.pool
        places = (int(place) for place in _first(ranking.gains, LOOKED_AT))
        place = next((place for place in places if fits(int(pool[place]))), None)
        return None if place is None else self._foreseen(ranking, place)

    def outlook(self, left: Mask) -> float:
        """The share by which all that is left is expected to beat the best time, with a doubt."""
        if not left.any():
            return 0.0
        if self._history.best is None:
            return math.inf
        ranking = self._ranked(left)
        view, values = ranking.view, ranking.values
        promising = _first(ranking.gains, PROMISING)
        weights = values.weights(view.posterior)
        drawn = view.posterior.draws(weights, promising, DRAWS, self._random) * values.spread
        drawn += self._expected(view.pool[promising]) + values.center
        if view.chances is not None:
            fails = self._random.random(drawn.shape) > view.chances.values[promising]
            drawn[fails] = math.inf
        gain = float(np.maximum(-drawn.min(1), 0).mean())
        errors, _ = view.posterior.left_out(weights)
        best = float(self._logs[self._history.best])
        errors *= values.spread
        doubt = self._foresight.doubt(best, self._logs[view.rows], errors)
        return gain + doubt * float(left.mean())  # the chance that the best of all is left

    def _ranked(self, left: Mask) -> Ranking:
        """The view, up to date, and the expected improvement of its pool."""
        self._note()
        view = self._current(left)
        self._observe(view)
        values = self._standard(np.array(view.rows))
        times = values.times(view.posterior, self._expected(view.pool))
        gains = values.gains(view.posterior, times)
        if view.chances is not None:
            gains = view.chances.weighted(gains)
        gains[~left[view.pool]] = -math.inf
        return Ranking(view, values, times, gains)

    def _foreseen(self, ranking: Ranking, place: int) -> int:
        """The configuration at a place of the pool; notes the time that is predicted for it."""
        index, best = int(ranking.view.pool[place]), self._history.best
        assert best is not None
        self._foresight.propose(index, self._logs[best] + float(ranking.times[place]))
        return index

    def _note(self) -> None:
        """Takes over the results since the last call."""
        self._space.refresh()
        if not self._read:
            # The first described are the scale of features; the guesses are too much alike for it.
            self._space.ensure(self._sample)
        told = self._history.told[self._read :]
        self._logs[told] = self._history.values[self._read :]
        for index in told:
            self._foresight.learn(index, float(self._logs[index]))
        self._space.ensure(np.array(told, np.intp))
        self._read += len(told)

    def _current(self, left: Mask) -> View:
        """The view to choose by, made again or begun to be where that is due."""
        count = self._read
        step = count // (EARLY_REFIT if count <= LATE else LATE_REFIT)
        if self._task is None and (self._view is None or count > self._fitted + step):
            self._begin(left, count + step // 2)
        if self._task is not None and count >= self._task.due:
            self._view, self._task = self._task.view.result(), None
        if self._view is None or not left[self._view.pool].any():
            if self._task is None:
                self._begin(left, count)
            assert self._task is not None
            self._view, self._task = self._task.view.result(), None
            if not left[self._view.pool].any():
                return self._current(left)
        self._look_around(self._view, left)
        return self._view

    def _begin(self, left: Mask, due: int) -> None:
        """Has a view made by the other thread."""
        pool = self._pool(left)
        told = np.array(self._history.told)
        ran = np.isfinite(self._logs[told])
        rows = [*told[ran].tolist(), *self._history.pending]
        self._space.ensure(np.array(rows))
        values = self._standard(np.array(rows))
        points = self._space.points
        plan = Plan(
            self._starts(points.shape[1]),
            *(rows, pool, points[rows], points[pool]),
            *(values, self._expected(pool)),
            self._telling(values.explained[values.timed]),
            *(ran, points[told]),
            self._random.choice(len(told), min(len(told), FITTED), replace=False),
            [*self._space.groups],
        )
        self._fitted = self._read
        self._task = _Task(self._thread.submit(plan.view), due)

    def _starts(self, dimensions: int) -> tuple[Covariance, Covariance]:
        """The covariances to start fitting from: those found before."""
        prior, view = Covariance.prior(dimensions), self._view
        if view is None:
            return prior, prior
        return view.posterior.covariance, view.chances.covariance if view.chances else prior

    def _observe(self, view: View) -> None:
        """Adds what was told or begun since the view was made."""
        told = self._history.told
        recent = [*told[view.told :], *self._history.pending]
        fresh = [index for index in recent if index not in view.members]
        if fresh:
            self._space.ensure(np.array(fresh))
            view.observe(fresh, self._space.points[fresh])
        news = told[view.told :]
        if view.chances is not None:
            view.chances.learn(self._space.points[news], np.isfinite(self._logs[news]))
        view.told = len(told)

    def _standard(self, rows: Indices) -> Values:
        """The part of the times of `rows` left to the process, to mean 0 and deviation 1."""
        logs = self._logs[rows]
        timed = np.isfinite(logs)
        best = self._history.best
        assert best is not None
        rest = _warped(logs - self._logs[best]) - self._expected(rows)
        center, spread = float(rest[timed].mean()), float(rest[timed].std() + 1e-9)
        return Values((rest - center) / spread, timed, center, spread)

    def _expected(self, indices: Indices) -> Floats:
        """The part of the times that the cost model explains."""
        return TRUST * _warped(self._space.expected[indices] - self._space.least)

    def _telling(self, values: Floats) -> Indices:
        """The values to fit to: all, or the best ones and as many of the others at random."""
        if len(values) <= FITTED:
            return np.arange(len(values))
        ranked = np.argsort(values)
        best, rest = ranked[: FITTED // 2], ranked[FITTED // 2 :]
        return np.append(best, self._random.choice(rest, FITTED // 2, replace=False))

    def _pool(self, left: Mask) -> Indices:
        """The configurations left; of many a sample and the neighbours of the best."""
        most = max(LEAST_POOL, ENTRIES // (self._read + ROOM))
        free = self._sample[left[self._sample]]
        if len(free) > most:
            free = self._random.choice(free, most, replace=False)
        if len(free) < np.count_nonzero(left):
            near = self._around()
            free = np.union1d(free, near[left[near]])
        self._space.ensure(free)
        self._near = self._history.best
        return free

    def _look_around(self, view: View, left: Mask) -> None:
        """Adds the neighbours of a new best to the pool."""
        if self._near == self._history.best:
            return
        self._near = self._history.best
        if len(view.pool) >= np.count_nonzero(left):
            return
        near = self._around()
        near = np.setdiff1d(near[left[near]], view.pool)
        if len(near):
            self._space.ensure(near)
            view.extend(near, self._space.points[near])

    def _around(self) -> Indices:
        """The configurations nearest to the best in their parameters."""
        best = self._history.best
        assert best is not None
        if best not in self._neighbours:
            # Configurations not described yet have no features to compare.
            parameters = self._space.points[:, : self._space.parameters]
            off = np.abs(parameters - parameters[best]).sum(1)
            self._neighbours = {best: np.argpartition(off, AROUND)[:AROUND]}
        return self._neighbours[best]


def _first(gains: Floats, count: int) -> Indices:
    """The places of the largest gains, in order, without those that are not left."""
    places = np.argsort(-gains, kind="stable")[:count]
    return np.asarray(places[gains[places] > -math.inf])


def _warped(logs: Floats) -> Floats:
    return np.asarray(WARP * np.log1p(np.maximum(logs, 0) / WARP))
