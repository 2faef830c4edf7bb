"""The engine that models the times by a Gaussian process and tries the most promising."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from optuna import Study
from optuna.trial import FrozenTrial

from autotune.candidates.features import Describe, Floats
from autotune.candidates.gaussian_process import Covariance, GaussianProcess, fit
from autotune.families.config import Config
from autotune.tuning.search.axes import SearchSpace
from autotune.tuning.search.history import History, Mask

Indices = npt.NDArray[np.intp]

# The process sees w log(1 + r / w), where r is the logarithm of the time over the best and w is
# WARP: times far behind the best need not be told apart.
WARP = 0.3
# The share of the cost model's prediction that is used as the mean; the process explains the rest.
# Models that rank well still err by a tenth among the best.
TRUST = 0.5
# The standard deviation a feature is scaled to; parameters span 1.
WEIGHT = 0.4
# The covariance is fitted again after this many values: with features, blind, and after LATE.
REFIT, BLINDLY, SLOWLY, LATE = 1, 2, 10, 60
# Values that it is fitted to.
FITTED = 150
# Covariances between candidates and observations that are computed for one proposal.
ENTRIES = 2_000_000
LEAST_POOL, AROUND = 2000, 500
# In a large space the candidates are a sample beside the neighbours of the best: the first
# configurations, which a model prefers, and others at random. Describing one takes 40 us.
SAMPLE, FIRST = 8_000, 2_000
# The outlook: functions drawn, and how many of the most promising configurations they are drawn at.
DRAWS, PROMISING = 64, 256
# How many of the most promising `spare` checks.
LOOKED_AT = 64
# How many of the most promising are ranked again instead of all.
FRONT = 512
# With STALE pending for each new result, the result makes no difference.
STALE = 4


class Surrogate:
    """Expected improvement over all configurations left, or over a large sample.

    A pending configuration counts as having come out as predicted.

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
        self.beside, self._refit = (0.05, BLINDLY) if describe is None else (0.0, REFIT)
        self._configs, self._history, self._domain = configs, history, describe
        self._random = random
        self._points = space.matrix
        self._parameters = self._points.shape[1]
        self._described = np.full(len(configs), describe is None)
        self._compiled = 0
        self._sample = np.arange(len(configs))
        if len(configs) > SAMPLE:
            rest = random.permutation(self._sample[FIRST:])
            self._sample = np.append(self._sample[:FIRST], rest[: SAMPLE - FIRST])
        self._expected = np.zeros(len(configs))
        self._scale: tuple[Floats, Floats] | None = None
        self._covariance: Covariance | None = None
        self._fitted = 0
        self._front: Indices = np.empty(0, np.intp)
        self._seen = -1
        self._near: tuple[int, Indices] | None = None

    def propose(self, left: Mask, study: Study, trial: FrozenTrial) -> int | None:
        """The most promising configuration left; None until one has a time."""
        del study, trial
        if self._history.best is None:
            return None
        return int(self._ranked(left)[0][0])

    def spare(self, left: Mask, fits: Callable[[int], bool]) -> int | None:
        """The most promising that fits; None if none of the best `LOOKED_AT` does."""
        if self._history.best is None:
            return None
        ranked, _ = self._ranked(left)
        return next((int(index) for index in ranked[:LOOKED_AT] if fits(int(index))), None)

    def outlook(self, left: Mask) -> float:
        """The share by which all that is left is expected to beat the best time."""
        if not left.any():
            return 0.0
        if self._history.best is None:
            return math.inf
        ranked, model = self._ranked(left)
        promising = ranked[:PROMISING]
        best = model.draws(self._points[promising], promising, self._random).min(1)
        return float(np.maximum(-best, 0).mean())

    def _ranked(self, left: Mask) -> tuple[Indices, _TimeModel]:
        """The most promising configurations left, in order, and the model they were ranked by.

        Ranking all takes many times as long as ranking those in front a moment ago. It is done for
        each new result, or for every few while many more are pending.
        """
        self._note_compiled()
        finished = len(self._history.told)
        fresh = finished - self._seen <= len(self._history.pending) // STALE
        pool = self._front[left[self._front]] if fresh else self._front[:0]
        if not len(pool):
            self._seen, pool = finished, self._pool(left)
        model = self._model()
        gains = model.gains(self._points[pool], pool)
        self._front = pool[np.argsort(-gains, kind="stable")[:FRONT]]
        return self._front, model

    def _note_compiled(self) -> None:
        """Has configurations described again whose resources are known by now."""
        told = self._history.told
        if self._domain is not None:
            resources = self._history.resources
            compiled = [index for index in told[self._compiled :] if index in resources]
            self._described[compiled] = False
        self._compiled = len(told)

    def _model(self) -> _TimeModel:
        told = np.array(self._history.told)
        self._ensure(told)
        logs = np.array(self._history.values)
        # A failure counts as the worst time.
        logs = np.minimum(logs, logs[np.isfinite(logs)].max())
        expected = TRUST * _warped(self._expected - self._expected[self._described].min())
        rest = _warped(logs - logs.min()) - expected[told]
        center, spread = rest.mean(), rest.std() + 1e-9
        return _TimeModel(self._process(told, (rest - center) / spread), expected + center, spread)

    def _process(self, told: Indices, values: Floats) -> GaussianProcess:
        covariance = self._covariance or Covariance.prior(self._points.shape[1])
        if len(told) - self._fitted >= (self._refit if len(told) <= LATE else SLOWLY):
            few = self._telling(values)
            covariance = fit(covariance, self._points[told[few]], values[few])
            self._fitted = len(told)
        self._covariance = covariance
        process = GaussianProcess(covariance, self._points[told], values)
        if pending := list(self._history.pending):
            self._ensure(np.array(pending))
            likely, _ = process.predict(self._points[pending])
            indices, likely = np.append(told, pending), np.append(values, likely)
            process = GaussianProcess(covariance, self._points[indices], likely)
        return process

    def _telling(self, values: Floats) -> Indices:
        """The values to fit to: all, or the best ones and as many of the others at random."""
        if len(values) <= FITTED:
            return np.arange(len(values))
        ranked = np.argsort(values)
        best, rest = ranked[: FITTED // 2], ranked[FITTED // 2 :]
        return np.append(best, self._random.choice(rest, FITTED // 2, replace=False))

    def _pool(self, left: Mask) -> Indices:
        """The configurations left; of many a sample and the neighbours of the best."""
        most = max(LEAST_POOL, ENTRIES // max(1, len(self._history.told)))
        free = self._sample[left[self._sample]]
        if len(free) > most:
            free = self._random.choice(free, most, replace=False)
        if len(free) < np.count_nonzero(left):
            near = self._around()
            free = np.union1d(free, near[left[near]])
        self._ensure(free)
        return free

    def _around(self) -> Indices:
        """The configurations nearest to the best in their parameters."""
        best = self._history.best
        assert best is not None
        if self._near is None or self._near[0] != best:
            # Configurations not described yet have no features to compare.
            parameters = self._points[:, : self._parameters]
            off = np.abs(parameters - parameters[best]).sum(1)
            self._near = best, np.argpartition(off, AROUND)[:AROUND]
        return self._near[1]

    def _ensure(self, indices: Indices) -> None:
        """Describes the configurations that are not described yet."""
        missing = indices[~self._described[indices]]
        if len(missing):
            self._describe(missing)

    def _describe(self, indices: Indices) -> None:
        assert self._domain is not None
        configs = [self._configs[index] for index in indices]
        resources = self._history.resources
        described = self._domain(configs, [resources.get(int(index)) for index in indices])
        columns = described.features
        if described.predicted is not None:
            # A configuration that cannot run counts as the slowest that can.
            logs = np.log(described.predicted)
            worst = logs[np.isfinite(logs)].max(initial=self._expected.max())
            logs = np.where(np.isfinite(logs), logs, worst)
            columns = np.column_stack([columns, logs])
            self._expected[indices] = logs
        if self._scale is None:
            deviation = columns.std(0)
            self._scale = columns.mean(0), WEIGHT / np.where(deviation > 0, deviation, 1)
            room = np.zeros((len(self._configs), columns.shape[1]))
            self._points = np.hstack([self._points, room])
        mean, weight = self._scale
        self._points[indices, -columns.shape[1] :] = (columns - mean) * weight
        self._described[indices] = True


@dataclass(frozen=True)
class _TimeModel:
    """The predicted times of all configurations, as warped logarithms over the best.

    Attributes:
        process: the part that the cost model does not explain, in units of `spread`.
        expected: the cost model's part, one a configuration.
        spread: one standard deviation of the observations.
    """

    process: GaussianProcess
    expected: Floats
    spread: float

    def gains(self, points: Floats, indices: Indices) -> Floats:
        """The expected improvement of each over the best."""
        mean, deviation = self.process.predict(points, fast=True)
        gain = -(mean * self.spread + self.expected[indices])
        return _improvement(gain, deviation * self.spread)

    def draws(self, points: Floats, indices: Indices, random: np.random.Generator) -> Floats:
        """Values drawn for all of them together: (`DRAWS`, indices)."""
        drawn = self.process.draws(points, DRAWS, random)
        return np.asarray(drawn * self.spread + self.expected[indices])


def _warped(logs: Floats) -> Floats:
    return np.asarray(WARP * np.log1p(np.maximum(logs, 0) / WARP))


def _improvement(gain: Floats, deviation: Floats) -> Floats:
    """Expected positive part of normal variables of that mean and deviation."""
    scores = gain / deviation
    density = np.exp(-0.5 * np.square(scores)) / math.sqrt(2 * math.pi)
    return np.asarray(gain * _normal_cdf(scores) + deviation * density)


def _normal_cdf(scores: Floats) -> Floats:
    """The normal distribution function as erfc(-x / sqrt(2)) / 2, accurate in the tail too."""
    sizes = (scores * -math.sqrt(0.5)).tolist()
    return 0.5 * np.fromiter(map(math.erfc, sizes), np.float64, len(sizes))
