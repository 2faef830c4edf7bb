"""The engine that models the times by a Gaussian process and tries what promises most."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from optuna import Study
from optuna.trial import FrozenTrial

from autotune.candidates.features import Describe, Floats
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.tuning.search.axes import Axis, matrix
from autotune.tuning.search.gaussian import GaussianProcess
from autotune.tuning.search.history import History, Mask

Indices = npt.NDArray[np.intp]

# Times are told as w log(1 + r / w), where r is the logarithm of the time over the best: what is
# far behind the best need not be told apart.
WARP = 0.3
# The share of the model's prediction that is taken for granted; the rest has to show. Models that
# rank well still err by a tenth among the best.
TRUST = 0.5
# What a feature weighs beside a parameter, whose values span 1: its standard deviation.
WEIGHT = 0.4
# The scales are fitted anew for so many values: at first, blind, and from so many on.
REFIT, BLINDLY, SLOWLY, LATE = 1, 2, 10, 60
FITTED = 150
# So many covariances between what is left and what is known are looked at for one choice.
ENTRIES = 2_000_000
LEAST_POOL, AROUND = 2000, 500
# What is looked at of a large space, besides what is near the best: the first, which are those
# that a model prefers, and others at random. To describe a configuration takes 40 us.
SAMPLE, FIRST = 8_000, 2_000
# The outlook is drawn from so many functions over so many of the most promising.
DRAWS, PROMISING = 64, 256
# So many of the most promising are asked whether they fit.
LOOKED_AT = 64
# So many are in front.
FRONT = 512
# For so many that are pending one that has come back makes no difference.
STALE = 4


class Surrogate:
    """Expected improvement over all that is left, or over a large sample.

    What is pending counts as having come out as expected.

    Args:
        configs: all configurations.
        axes: theirs.
        history: of the search; read whenever a choice is made.
        describe: what the domain knows; None searches blind, by the parameters alone.
        random: for samples.
    """

    def __init__(
        self,
        configs: Sequence[Config],
        axes: Sequence[Axis],
        history: History,
        describe: Describe | None,
        random: np.random.Generator,
    ) -> None:
        # Blind, a basin may be missed for lack of features that tell it from others.
        self.beside, self._refit = (0.05, BLINDLY) if describe is None else (0.0, REFIT)
        self._configs, self._history, self._domain = configs, history, describe
        self._random = random
        self._points = matrix(axes, len(configs))
        self._parameters = self._points.shape[1]
        self._described = np.full(len(configs), describe is None)
        self._sample = np.arange(len(configs))
        if len(configs) > SAMPLE:
            others = random.permutation(self._sample[FIRST:])
            self._sample = np.append(self._sample[:FIRST], others[: SAMPLE - FIRST])
        self._expected = np.zeros(len(configs))
        self._resources: dict[int, Resources] = {}
        self._scale: tuple[Floats, Floats] | None = None
        self._process: GaussianProcess | None = None
        self._fitted = 0
        self._front: Indices = np.empty(0, np.intp)
        self._seen = -1
        self._near: tuple[int, Indices] | None = None

    def learn(self, index: int, resources: Resources | None) -> None:
        """A configuration was compiled: what follows from its resources is known now."""
        if self._domain is not None and resources is not None:
            self._resources[index] = resources
            self._described[index] = False

    def propose(self, left: Mask, study: Study, trial: FrozenTrial) -> int | None:
        """The most promising of what is left; None as long as nothing has a time."""
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
        """By which share all that is left is expected to beat the best time."""
        if not left.any():
            return 0.0
        if self._history.best is None:
            return math.inf
        ranked, belief = self._ranked(left)
        promising = ranked[:PROMISING]
        found = belief.draws(self._points[promising], promising, self._random).min(1)
        return float(np.maximum(-found, 0).mean())

    def _ranked(self, left: Mask) -> tuple[Indices, _Belief]:
        """The most promising of what is left, in order, and what is believed of all.

        Looking at all of it takes many times as long as looking at those that were in front a
        moment ago. It is done for each that has come back, or for each few where many more are on
        their way.
        """
        known = len(self._history.told)
        fresh = known - self._seen <= len(self._history.pending) // STALE
        pool = self._front[left[self._front]] if fresh else self._front[:0]
        if not len(pool):
            self._seen, pool = known, self._pool(left)
        belief = self._belief()
        gains = belief.gains(self._points[pool], pool)
        self._front = pool[np.argsort(-gains, kind="stable")[:FRONT]]
        return self._front, belief

    def _belief(self) -> _Belief:
        told = np.array(self._history.told)
        self._ensure(told)
        logs = np.array(self._history.values)
        # A failure is as bad as the worst that came out.
        logs = np.minimum(logs, logs[np.isfinite(logs)].max())
        expected = TRUST * _warped(self._expected - self._expected[self._described].min())
        rest = _warped(logs - logs.min()) - expected[told]
        center, spread = rest.mean(), rest.std() + 1e-9
        return _Belief(self._conditioned(told, (rest - center) / spread), expected + center, spread)

    def _conditioned(self, told: Indices, values: Floats) -> GaussianProcess:
        process = self._process = self._process or GaussianProcess(self._points.shape[1])
        if len(told) - self._fitted >= (self._refit if len(told) <= LATE else SLOWLY):
            few = self._telling(values)
            process.fit(self._points[told[few]], values[few])
            self._fitted = len(told)
        process.condition(self._points[told], values)
        if pending := list(self._history.pending):
            self._ensure(np.array(pending))
            likely, _ = process.predict(self._points[pending])
            all_, known = np.append(told, pending), np.append(values, likely)
            process.condition(self._points[all_], known)
        return process

    def _telling(self, values: Floats) -> Indices:
        """What the scales are fitted to: all, or the best half and others evenly."""
        if len(values) <= FITTED:
            return np.arange(len(values))
        ranked = np.argsort(values)
        best, others = ranked[: FITTED // 2], ranked[FITTED // 2 :]
        return np.append(best, self._random.choice(others, FITTED // 2, replace=False))

    def _pool(self, left: Mask) -> Indices:
        """What is left, or of many a sample with what is nearest to the best."""
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
        """What is nearest to the best in its parameters."""
        best = self._history.best
        assert best is not None
        if self._near is None or self._near[0] != best:
            # What is not described yet has no features to compare.
            parameters = self._points[:, : self._parameters]
            off = np.abs(parameters - parameters[best]).sum(1)
            self._near = best, np.argpartition(off, AROUND)[:AROUND]
        return self._near[1]

    def _ensure(self, indices: Indices) -> None:
        """Describes those that are not described yet."""
        missing = indices[~self._described[indices]]
        if len(missing):
            self._describe(missing)

    def _describe(self, indices: Indices) -> None:
        assert self._domain is not None
        configs = [self._configs[index] for index in indices]
        given = self._domain(configs, [self._resources.get(index) for index in indices])
        columns = given.features
        if given.predicted is not None:
            # What cannot run is as bad as the worst that can.
            logs = np.log(given.predicted)
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
class _Belief:
    """What is known of all configurations, in warped logarithms over the best.

    Attributes:
        process: of what the prior does not explain, in units of `spread`.
        prior: for each configuration.
        spread: one standard deviation of `process`.
    """

    process: GaussianProcess
    prior: Floats
    spread: float

    def gains(self, points: Floats, indices: Indices) -> Floats:
        """By how much each is expected to fall below the best."""
        mean, deviation = self.process.predict(points)
        return _improvement(-(mean * self.spread + self.prior[indices]), deviation * self.spread)

    def draws(self, points: Floats, indices: Indices, random: np.random.Generator) -> Floats:
        """Values that all of them may have: (`DRAWS`, indices)."""
        drawn = self.process.draws(points, DRAWS, random)
        return np.asarray(drawn * self.spread + self.prior[indices])


def _warped(logs: Floats) -> Floats:
    return np.asarray(WARP * np.log1p(np.maximum(logs, 0) / WARP))


def _improvement(gain: Floats, deviation: Floats) -> Floats:
    """Expected value of what is above 0 of normal variables of that mean and deviation."""
    scores = gain / deviation
    density = np.exp(-0.5 * np.square(scores)) / math.sqrt(2 * math.pi)
    return np.asarray(gain * _below(scores) + deviation * density)


def _below(scores: Floats) -> Floats:
    """The normal distribution function, to a relative error of 1e-7 in its tail too.

    W. H. Press et al., Numerical Recipes in C, second edition (1992), section 6.2, `erfcc`.
    """
    size = np.abs(scores) / math.sqrt(2)
    t = 1 / (1 + 0.5 * size)
    terms = (
        *(-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806),
        *(0.27886807, -1.13520398, 1.48851587, -0.82215223, 0.17087277),
    )
    series = np.polynomial.polynomial.polyval(t, terms)
    tail = 0.5 * t * np.exp(-np.square(size) + series)
    return np.where(scores > 0, 1 - tail, tail)
