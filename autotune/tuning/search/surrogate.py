"""The engine of the default search: a Gaussian process of the times, and expected improvement.

A second process, of what ran and what failed, gives the chance to run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import numpy as np
from optuna import Study
from optuna.trial import FrozenTrial

from autotune.families.config import Config
from autotune.model.features import Describe
from autotune.model.gaussian_process import Covariance, Floats, Indices, Posterior, fit
from autotune.tuning.search.axes import History, Mask, SearchSpace

# The standard deviation a feature is scaled to; parameters span 1.
WEIGHT = 0.4
# The process sees w log(1 + r / w), where r is the logarithm of the time over the best and w is
# WARP: times far behind the best need not be told apart.
WARP = 0.3
# The share of the cost model's prediction that is used as the mean; the process explains the rest.
# Models that rank well still err by a tenth among the best.
TRUST = 0.5
# The covariances are fitted again, in another thread, after a share of the results so far, a
# smaller one up to LATE of them. They are used once half as many more have come, so that proposals
# depend on the results alone and not on the speed of the thread.
EARLY_REFIT, LATE, LATE_REFIT = 30, 60, 10
# Values that a covariance is fitted to.
FITTED = 150
# The candidates: as many as have ENTRIES covariances with the observations when the processes are
# made, and KEPT, of the most promising, until they are made again.
ENTRIES, LEAST_POOL = 1_000_000, 2000
KEPT, LEAST_KEPT = 200_000, 1000
# Observations that the candidates have room for until then.
ROOM = 64
# In a large space the candidates are a sample beside the neighbours of the best: the first
# configurations, which a model prefers, and others at random. Describing one takes 40 us.
SAMPLE, FIRST, AROUND = 8_000, 2_000, 500
# Rows of parameters that are compared at once.
CACHED = 2**14
# Configurations with less of a chance to run come after all others: nobody saw a time there, so
# their improvement is a guess, and the largest of all where everything else is known.
LIKELY_FAILURE = 0.01
# More than any improvement of the logarithm of a time.
BEHIND = 100.0
# Functions drawn for the expected gain, and how many of the most promising configurations they are
# drawn at.
DRAWS, PROMISING = 64, 256
# The margin of the expected gain: a share of the model's errors at times up to the logarithm NEAR
# over the best, where it has to be right; half of that after CALM results without a gain. Chosen
# with the bound of the stop rule on recorded and computed spaces; docs/search.md has the results.
SHARE, NEAR, CALM = 0.4, 0.15, 40
# The least gain that counts, as a share of the time: less is within the noise of a trial.
GAIN = 0.005
# How many of the most promising `spare` checks.
LOOKED_AT = 64

Covariances = tuple[Covariance, Covariance]
"""The covariances of the times, and of whether configurations run."""


class DescribedSpace:
    """Points of a search space, described by features only where they are needed.

    Attributes:
        points: one row a configuration: its parameters, then its features where described; without
            features what makes single values of the parameters differ.
        matrix: the parameters alone.
        groups: numbers of consecutive columns that belong together.
        expected: logarithms of the predicted times of those described.
        least: the least of them.

    Args:
        configs: all configurations.
        space: the points, described.
        history: knows the resources of those that were compiled.
        describe: features and predicted times; None leaves the parameters alone.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        space: SearchSpace,
        history: History,
        describe: Describe | None,
    ) -> None:
        self._configs, self._history, self._features = configs, history, describe
        # Features tell such values apart better; beside them more inputs only dilute the distances.
        odd = space.oddities if describe is None else []
        self.matrix = space.matrix
        self.points = np.hstack([space.matrix, *odd])
        self.groups = [1] * space.matrix.shape[1] + [part.shape[1] for part in odd]
        self.expected = np.zeros(len(configs))
        self.least = 0.0 if describe is None else math.inf
        self._described = np.full(len(configs), describe is None)
        self._scale: tuple[Floats, Floats] | None = None
        self._compiled = 0

    def ensure(self, indices: Indices) -> None:
        """Describes configurations that are not yet, or not by the resources known by now."""
        told, resources = self._history.told, self._history.resources
        if self._features is not None:
            fresh = [index for index in told[self._compiled :] if index in resources]
            self._described[fresh] = False
            self._compiled = len(told)
        missing = indices[~self._described[indices]]
        if len(missing):
            self._describe(missing)

    def _describe(self, indices: Indices) -> None:
        assert self._features is not None
        configs = [self._configs[index] for index in indices]
        resources = self._history.resources
        described = self._features(configs, [resources.get(int(index)) for index in indices])
        # A configuration that cannot run counts as the slowest that can.
        logs = np.log(described.predicted)
        worst = logs[np.isfinite(logs)].max(initial=self.expected.max())
        logs = np.where(np.isfinite(logs), logs, worst)
        columns = np.column_stack([described.features, logs])
        self.expected[indices] = logs
        self.least = min(self.least, self.expected[indices].min())
        if self._scale is None:
            deviation = columns.std(0)
            self._scale = columns.mean(0), WEIGHT / np.where(deviation > 0, deviation, 1)
            room = np.zeros((len(self._configs), columns.shape[1]))
            self.points = np.hstack([self.points, room])
            self.groups += [1] * columns.shape[1]
        mean, weight = self._scale
        self.points[indices, -columns.shape[1] :] = (columns - mean) * weight
        self._described[indices] = True


class Ranking(NamedTuple):
    """The expected gains of the pool's members.

    Attributes:
        gains: expected improvement, -inf for those that are not left.
        chances: to run, 0 to 1; None if nothing has failed.
        means: predicted times, as warped logarithms over the best.
        spread: the unit of the process of the times.
        errors: errors of predicting each observation from the others, in that unit.
    """

    gains: Floats
    chances: Floats | None
    means: Floats
    spread: float
    errors: Floats


class Surrogate:
    """Expected improvement over all configurations left, or over a large sample.

    A running configuration counts as having come out as predicted. One that failed has no time; it
    lowers the chance of its neighbourhood, by which the improvement is multiplied.

    Args:
        configs: all configurations.
        space: the points, described.
        history: history of the search, up to date whenever a proposal is made.
        describe: features and predicted times; None searches blind, by the parameters alone.
        random: generator of the samples.
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
        self._thread = ThreadPoolExecutor(1, "fit")
        # A fit under way, the number of results it begins with, and that from which it is used.
        self._fit: Future[Covariances] | None = None
        self._fitted, self._due = -1, 0
        self._covariances: Covariances | None = None
        # The processes see the pool; the times' observations are of `_rows`.
        self._times: Posterior | None = None
        self._chances: Posterior | None = None
        self._pool = np.empty(0, np.intp)
        self._rows: list[int] = []
        # The best whose neighbours are in the pool; the last one with its neighbours.
        self._near: int | None = None
        self._around: tuple[int | None, Indices] = None, self._pool

    def propose(self, left: Mask, study: Study, trial: FrozenTrial) -> int | None:
        """The most promising configuration left; None until one has a time."""
        del study, trial
        if self._history.best is None:
            return None
        gains = self._ranked(left).gains
        return int(self._pool[gains.argmax()])

    def spare(self, left: Mask, fits: Callable[[int], bool]) -> int | None:
        """The most promising that fits; None if none of the best `LOOKED_AT` does."""
        if self._history.best is None:
            return None
        first = _first(self._ranked(left).gains, LOOKED_AT)
        return next((index for index in map(int, self._pool[first]) if fits(index)), None)

    def expected_gain(self, left: Mask) -> float:
        """The share by which all that is left is expected to beat the best time, with a margin."""
        if not left.any():
            return 0.0
        if self._history.best is None:
            return math.inf
        ranking = self._ranked(left)
        assert self._times is not None
        promising = _first(ranking.gains, PROMISING)
        drawn = self._times.draws(promising, DRAWS, self._random) * ranking.spread
        drawn += ranking.means[promising]
        if ranking.chances is not None:
            drawn[self._random.random(drawn.shape) > ranking.chances[promising]] = math.inf
        gain = float(np.maximum(-drawn.min(1), 0).mean())
        history = self._history
        told, logs = history.logs[history.told], history.logs[self._rows]
        # The margin counts by the chance that the best of all is left.
        return gain + margin(told, logs, ranking.errors * ranking.spread) * float(left.mean())

    def _ranked(self, left: Mask) -> Ranking:
        """The pool, up to date, and how promising its members are."""
        if self._covariances is None:
            # The first described are the scale of features; the guesses are too alike for it.
            self._space.ensure(self._sample)
        self._space.ensure(np.array([*self._history.told, *self._history.pending]))
        self._refit()
        if not left[self._pool].any():
            self._condition(left)
        self._observe()
        self._look_around(left)
        return self._rank(left)

    def _refit(self) -> None:
        """Begins a fit of the covariances, or uses that under way, where that is due."""
        count = len(self._history.told)
        step = count // (EARLY_REFIT if count <= LATE else LATE_REFIT)
        if self._fit is None and count > self._fitted + step:
            self._fitted, self._due = count, count + step // 2
            self._fit = self._thread.submit(_fitted, self._covariances, *self._lessons())
        if self._fit is not None and (count >= self._due or self._covariances is None):
            self._covariances, self._fit = self._fit.result(), None
            self._pool = self._pool[:0]

    def _lessons(self) -> tuple[list[int], Floats, Floats, Floats, Mask]:
        """The data that the covariances are fitted to: groups of columns, points with their times,
        and points with whether they ran."""
        told, points = np.array(self._history.told), self._space.points
        ran = np.isfinite(self._history.logs[told])
        timed = told[ran]
        values, *_ = self._standard(timed)
        if len(timed) > FITTED:
            # The best, and as many of the others at random.
            ranked = np.argsort(values)
            rest = self._random.choice(ranked[FITTED // 2 :], FITTED // 2, replace=False)
            few = np.append(ranked[: FITTED // 2], rest)
            timed, values = timed[few], values[few]
        tried = self._random.choice(len(told), min(len(told), FITTED), replace=False)
        return [*self._space.groups], points[timed], values, points[told[tried]], ran[tried]

    def _condition(self, left: Mask) -> None:
        """Makes the processes from all results, and a pool of the most promising candidates."""
        assert self._covariances is not None
        history, points = self._history, self._space.points
        self._pool = self._candidates(left)
        self._rows = self._observed()
        queries = points[self._pool]
        self._times = Posterior(self._covariances[0], points[self._rows], queries)
        self._chances = None
        self._observe()
        most = max(LEAST_KEPT, KEPT // (len(self._rows) + ROOM))
        if most < len(self._pool):
            front = np.sort(np.argpartition(-self._rank(left).gains, most)[:most])
            self._pool = self._pool[front]
            self._times.keep(front)
            if self._chances is not None:
                self._chances.keep(front)
        self._near = history.best

    def _observed(self) -> list[int]:
        """The observations of the times: what ran, and what is running."""
        ran = [index for index in self._history.told if self._history.logs[index] < math.inf]
        return [*ran, *self._history.pending]

    def _observe(self) -> None:
        """Adds what was told or begun since the processes were made."""
        assert self._times is not None
        assert self._covariances is not None
        points, told, rows = self._space.points, self._history.told, {*self._rows}
        fresh = [index for index in self._observed() if index not in rows]
        self._times.observe(points[fresh])
        self._rows += fresh
        if self._chances is not None:
            self._chances.observe(points[told[len(self._chances) :]])
        elif np.isinf(self._history.logs[told]).any():
            self._chances = Posterior(self._covariances[1], points[told], self._times.queries)

    def _rank(self, left: Mask) -> Ranking:
        assert self._times is not None
        values, center, spread = self._standard(np.array(self._rows))
        weights = self._times.weights(values)
        means = self._times.mean(weights) * spread + center + self._expected(self._pool)
        gains = expected_improvement(-means, np.sqrt(self._times.variance) * spread)
        chances = None
        if self._chances is not None:
            ran, share, scale = _ran(np.isfinite(self._history.logs[self._history.told]))
            chances = self._chances.mean(self._chances.weights(ran)) * scale + share
            chances = np.clip(chances, 0.0, 1.0)
            gains = np.where(chances < LIKELY_FAILURE, gains - BEHIND, gains * chances)
        gains[~left[self._pool]] = -math.inf
        return Ranking(gains, chances, means, spread, self._times.left_out(weights))

    def _standard(self, rows: Indices) -> tuple[Floats, float, float]:
        """The part of the times left to the process, to mean 0 and deviation 1, NaN where there is
        no time; that mean and deviation."""
        logs = self._history.logs
        rest = _warped(logs[rows] - logs[self._history.best]) - self._expected(rows)
        rest[~np.isfinite(rest)] = math.nan
        center, spread = float(np.nanmean(rest)), float(np.nanstd(rest) + 1e-9)
        return (rest - center) / spread, center, spread

    def _expected(self, indices: Indices) -> Floats:
        """The part of the times that the cost model explains."""
        return TRUST * _warped(self._space.expected[indices] - self._space.least)

    def _candidates(self, left: Mask) -> Indices:
        """The configurations left; of many a sample and the neighbours of the best."""
        most = max(LEAST_POOL, ENTRIES // (len(self._history.told) + ROOM))
        free = self._sample[left[self._sample]]
        if len(free) > most:
            free = self._random.choice(free, most, replace=False)
        if len(free) < np.count_nonzero(left):
            free = np.union1d(free, self._neighbours(left))
        if not len(free):
            free = np.flatnonzero(left)
        self._space.ensure(free)
        return free

    def _look_around(self, left: Mask) -> None:
        """Adds the neighbours of a new best to the pool."""
        assert self._times is not None
        if self._near == self._history.best:
            return
        self._near = self._history.best
        near = np.setdiff1d(self._neighbours(left), self._pool)
        if not len(near):
            return
        self._space.ensure(near)
        self._pool = np.append(self._pool, near)
        self._times.extend(self._space.points[near])
        if self._chances is not None:
            self._chances.extend(self._space.points[near])

    def _neighbours(self, left: Mask) -> Indices:
        """The configurations left among those nearest to the best in their parameters."""
        best, near = self._around
        if best != self._history.best:
            best = self._history.best
            # Configurations not described yet have no features to compare.
            parameters, off = self._space.matrix, np.empty(len(left))
            for start in range(0, len(left), CACHED):
                part = slice(start, start + CACHED)
                off[part] = np.abs(parameters[part] - parameters[best]).sum(1)
            near = np.argpartition(off, min(AROUND, len(off) - 1))[:AROUND]
            self._around = best, near
        return near[left[near]]


def margin(told: Floats, logs: Floats, errors: Floats) -> float:
    """The share by which what is left may beat the best time although the model denies it.

    A part of the model's errors near the best. It shrinks with each result that brings no gain,
    since errors that were going to help would have.

    Args:
        told: the logarithms of the times of all results, infinite for a failure, in their order.
        logs: logarithms of the observed times, NaN or infinite where there is no time.
        errors: of predicting each observation from the others, as a logarithm.
    """
    before = np.minimum.accumulate(np.append(math.inf, told))
    size = math.sqrt(float(np.square(errors[logs < before[-1] + NEAR]).mean()))
    calm = len(told) - 1 - int(np.flatnonzero(told < before[:-1] - GAIN)[-1])
    return SHARE * size * CALM / (CALM + calm)


def expected_improvement(gain: Floats, deviation: Floats) -> Floats:
    """Expected positive part of normal variables of that mean and deviation."""
    from scipy.special import ndtr  # imported by a search alone

    scores = gain / deviation
    density = np.exp(-0.5 * np.square(scores)) / math.sqrt(2 * math.pi)
    return np.asarray(gain * ndtr(scores) + deviation * density)


def _fitted(
    starts: Covariances | None,
    groups: Sequence[int],
    points: Floats,
    values: Floats,
    tried: Floats,
    ran: Mask,
) -> Covariances:
    """The covariances of the times and of what ran, fitted from the earlier ones."""
    prior = Covariance.prior(points.shape[1])
    times, chances = starts or (prior, prior)
    times = fit(times, points, values, groups)
    return times, chances if ran.all() else fit(chances, tried, _ran(ran)[0], groups)


def _ran(ran: Mask) -> tuple[Floats, float, float]:
    """Whether each ran, as values of mean 0 and deviation 1; that mean and deviation."""
    share, spread = float(ran.mean()), float(ran.std() + 1e-9)
    return np.asarray((ran - share) / spread, float), share, spread


def _first(gains: Floats, count: int) -> Indices:
    """The places of the largest gains, in order, without those that are not left."""
    places = np.argsort(-gains, kind="stable")[:count]
    return np.asarray(places[gains[places] > -math.inf])


def _warped(logs: Floats) -> Floats:
    return np.asarray(WARP * np.log1p(np.maximum(logs, 0) / WARP))
