"""The cost model's error, learnt from records of other problems.

The cost model ranks well and is off by tens of per cent, but it errs in the same direction for
similar configurations on similar problems. Its error, the log of measured over predicted time, is
modelled as a function of both by a Gaussian process for each kernel family. The records' entries
are its samples. Far from all samples the error is 0 and the cost model stands as it is.

Of many samples only those most like the configurations that are asked about first count
(`Prior.most`): the others hardly change the result, and conditioning on all of them takes tens of
milliseconds.

The errors that networks leave (`correction`) differ from shape to shape, so only samples of near
problems help. Their mean is taken as 0 there, because samples are biased: a record keeps its
fastest entries, which tend to be faster than predicted.

The scales of `ARITHMETIC` were chosen on the trials of 27 shapes in five precisions on an H100,
each shape left out in turn (`scripts/left_out.py`); twice or half of each does about as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotune.candidates import correction, features
from autotune.candidates.gaussian_process import Covariance, GaussianProcess
from autotune.candidates.problem_columns import problem_columns
from autotune.candidates.samples import Parameters, Sample, SampleGroup, groups_of
from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.problem import Problem

Floats = NDArray[np.float64]

# Of the errors, as logs: the variance of measuring, and the length scale in the units of `_points`.
NOISE, LENGTH = 0.01, 2.0


class Prior(NamedTuple):
    """The prior distribution of the model's errors, and how samples update it.

    Attributes:
        signal: variance of the log of an error.
        locality: factor on the columns of a problem. The larger it is, the less a sample says of
            other problems.
        neutral: weight of error 0 in the mean error, in samples. It keeps a few samples from moving
            all predictions; infinity makes the mean 0.
        most: the most samples to condition on. On 131 recorded shapes of an H100, each left out in
            turn, 400 choose as well as a thousand under `ARITHMETIC` and 200 by 0.7 % worse; under
            `CORRECTED` 128 choose as well as 384.
    """

    signal: float
    locality: float
    neutral: float
    most: int


ARITHMETIC = Prior(signal=0.03, locality=1.0, neutral=10, most=384)
"""The prior where no networks correct the model."""
CORRECTED = Prior(signal=0.02, locality=4.0, neutral=math.inf, most=128)
"""The prior where networks do. With each shape left out, the choice reaches 0.962 of the fastest
recorded time on 199 drawn shapes of an H200 (0.958 under `ARITHMETIC`), 0.939 on 128 shapes of its
suites (0.931) and 0.949 on 131 of an H100 (0.951). Two thirds of the chosen kernels take within
14 % of the predicted time."""
# Units of `features.of_products`: tile, its aspect, k-iterations, threads, shared memory, blocks an
# SM, blocks (all as log2), registers, the share of the last wave.
UNITS = (0.3, 0.2, 0.25, 0.3, 0.15, 0.4, 0.2, 0.01, 1.0)
PARAMETER, WORD, FOREIGN = 0.5, 0.6, 1.0


@dataclass(frozen=True)
class Predictions:
    """Predicted times of configurations, one an element.

    Attributes:
        times: microseconds, infinite for a configuration that cannot run.
        deviations: standard deviations of their logs.
    """

    times: Floats
    deviations: Floats

    def cautious(self, caution: float) -> Floats:
        """Microseconds that are exceeded more rarely the greater the caution."""
        return np.asarray(self.times * np.exp(caution * self.deviations))

    def followed_by(self, more: Predictions) -> Predictions:
        """These, then those of more configurations."""
        times = np.concatenate([self.times, more.times])
        return Predictions(times, np.concatenate([self.deviations, more.deviations]))


class ModelError:
    """Predicts times by the cost model and its error on samples.

    Args:
        samples: of configurations that their families know, of any problem and any device of an
            architecture.
        device: the device to predict for.
        groups: further samples, which are described already.
    """

    def __init__(
        self, samples: Iterable[Sample], device: Device, groups: Iterable[SampleGroup] = ()
    ) -> None:
        self._device = device
        self._samples: dict[str, list[Sample]] = {}
        for sample in samples:
            self._samples.setdefault(sample.config.family, []).append(sample)
        self._groups: dict[str, list[SampleGroup]] = {}
        for group in groups:
            self._groups.setdefault(group.family, []).append(group)
        self._families: dict[str, _FamilyError] = {}

    def predict(
        self,
        configs: Sequence[Config],
        problem: Problem,
        resources: Sequence[Resources | None] = (),
    ) -> Predictions:
        """Predicts the times of legal configurations of a problem, in their order.

        Missing resources are estimated.
        """
        times = np.full(len(configs), np.inf)
        deviations = np.full(len(configs), math.sqrt(ARITHMETIC.signal))
        resources = resources or [None] * len(configs)
        for family in dict.fromkeys(config.family for config in configs):
            places = [place for place, config in enumerate(configs) if config.family == family]
            members = [configs[place] for place in places]
            compiled = [resources[place] for place in places]
            described = features.of_products(members, problem, self._device, compiled)
            if described.predicted is None:
                continue
            error = self._family(family)
            points = error.points(described.features, problem, Parameters.of(members))
            errors, deviations[places] = error.predict(points)
            times[places] = described.predicted * np.exp(errors)
        return Predictions(times, deviations)

    def _family(self, family: str) -> _FamilyError:
        if family not in self._families:
            described = groups_of(self._samples.get(family, []))
            groups = [*self._groups.get(family, []), *described]
            prior = CORRECTED if correction.corrects(family, self._device) else ARITHMETIC
            self._families[family] = _FamilyError(groups, self._device, prior)
        return self._families[family]


class _FamilyError:
    """The error of a family's configurations."""

    def __init__(self, groups: Sequence[SampleGroup], device: Device, prior: Prior) -> None:
        self._prior = prior
        self._words = sorted({pair for group in groups for pair in group.params.pairs})
        points, errors = [np.empty((0, 0))], [np.empty(0)]
        for group in groups:
            sizes = [problem_columns(problem) for problem, _ in group.problems]
            foreign = [FOREIGN * (ran_on != device) for _, ran_on in group.problems]
            point = self._rows(
                group.features,
                *(np.array(sizes)[group.places], np.array(foreign)[group.places]),
                group.params,
            )
            runs = np.isfinite(group.logs) & np.isfinite(point).all(axis=1)
            points.append(point[runs])
            errors.append(group.logs[runs])
        error = np.concatenate(errors)
        self._mean = error.sum() / (len(error) + prior.neutral)
        self._errors = error - self._mean
        self._points = np.vstack(points[1:]) if len(error) else points[0]
        self._process: GaussianProcess | None = None

    def points(self, described: Floats, problem: Problem, params: Parameters) -> Floats:
        """Configurations of a problem as points: similar ones are near to each other."""
        rows = len(described)
        sizes = np.tile(problem_columns(problem), (rows, 1))
        return self._rows(described, sizes, np.zeros(rows), params)

    def _rows(
        self, described: Floats, sizes: Floats, foreign: Floats, params: Parameters
    ) -> Floats:
        """The points; the last column keeps those of other devices apart."""
        numbers = PARAMETER * np.log2(1 + params.numbers)
        words = WORD * params.has(self._words)
        sizes = sizes * self._prior.locality
        return np.hstack([described * UNITS, sizes, numbers, words, foreign[:, None]])

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the errors, without that of measuring."""
        signal = self._prior.signal
        if not len(self._errors):
            return np.full(len(points), self._mean), np.full(len(points), math.sqrt(signal))
        lengths = np.full(points.shape[1], LENGTH)
        covariance = Covariance(lengths, signal, NOISE, jitter=0.0)
        if self._process is None:
            near = np.arange(len(self._errors))
            if len(near) > self._prior.most:
                # Single precision is enough to rank by, in half the time.
                samples, queries = self._points.astype(np.float32), points.astype(np.float32)
                likeness = covariance.between(samples, queries).sum(1)
                near = np.argpartition(-likeness, self._prior.most)[: self._prior.most]
            self._process = GaussianProcess(covariance, self._points[near], self._errors[near])
        mean, deviations = self._process.predict(points)
        return self._mean + mean, deviations
