"""The cost model's error, learnt from records of other problems.

The cost model ranks well and is off by tens of per cent, but it errs in the same direction for
similar configurations on similar problems. Its error, the log of measured over predicted time, is
modelled as a function of both by a Gaussian process for each kernel family. The records' entries
are its samples. Far from all samples the error is 0 and the cost model stands as it is.

Of many samples only those most like the configurations that are asked about first count
(`Prior.most`): the others hardly change the result, and conditioning on all of them takes tens of
milliseconds.

The errors that networks leave (`cost.trained`) differ from shape to shape, so only samples of near
problems help. Their mean is taken as 0 there, because samples are biased: a record keeps its
fastest entries, which tend to be faster than predicted.

The scales of `ARITHMETIC` were chosen on the trials of 27 shapes in five precisions on an H100,
each shape left out in turn (`scripts/fit/left_out.py`); twice or half of each does about as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.model import cost
from autotune.model.cost import Load
from autotune.model.features import Floats, Parameters, problem_columns
from autotune.model.gaussian_process import Covariance, GaussianProcess
from autotune.problem import Problem
from autotune.settings import warn_once

NOISE, LENGTH = 0.01, 2.0
"""Parameters of the model's errors, as logs: the variance of measuring, and the points' length
scale."""

VENDOR_LENGTH, VENDOR_VARIANCES = 1.5, (0.3, 0.005)
"""Parameters of the vendor library's times: the length scale in units of `problem_columns`; the
variances of the log over the roofline's time, and of measuring it."""


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
# Units of `Load.features`: tile, its aspect, k-iterations, threads, shared memory, blocks an
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
        """The predictions, then those of more configurations."""
        times = np.concatenate([self.times, more.times])
        return Predictions(times, np.concatenate([self.deviations, more.deviations]))


class Sample(NamedTuple):
    """A configuration with its resources as compiled, and how long it took in microseconds."""

    config: Config
    resources: Resources
    time_us: float


@dataclass(frozen=True, eq=False)
class SampleGroup:
    """Timed configurations of a family, a row each.

    Attributes:
        family: the kernel family.
        problems: the problems, each with the device that ran it.
        places: which of them each row is of.
        features: as `Load.features` describes them.
        logs: of measured over predicted times.
        params: their parameters.
    """

    family: str
    problems: Sequence[tuple[Problem, Device]]
    places: NDArray[np.int64]
    features: Floats
    logs: Floats
    params: Parameters


def groups_of(samples: Sequence[Sample], problem: Problem, device: Device) -> list[SampleGroup]:
    """Samples of a problem on a device described, a group for each family; none, with a warning, if
    one breaks the rules."""
    configs, resources, times = zip(*samples, strict=True) if samples else ((), (), ())
    try:
        with np.errstate(all="ignore"):
            load = Load.of(configs, problem, device, resources)
            logs = np.log(np.array(times) / load.corrected())
        return [_group(load, family, logs[rows]) for family, (rows, _) in load.families.items()]
    except ArithmeticError as fault:
        where = f"the record of {problem} on {device.name}"
        reason = f"{where} holds a configuration that breaks the rules: {fault}"
        warn_once(reason)
        return []


def _group(load: Load, family: str, logs: Floats) -> SampleGroup:
    """A family's configurations of a load, with logs of measured over predicted times."""
    rows, params = load.families[family]
    where = [(load.problem, load.device)]
    return SampleGroup(family, where, np.zeros_like(rows), load.features[rows], logs, params)


class ModelError:
    """Predicts times by the cost model and its error on samples.

    Args:
        device: the device to predict for.
        groups: samples of configurations that their families know, of any problem and any device of
            an architecture.
    """

    def __init__(self, device: Device, groups: Sequence[SampleGroup] = ()) -> None:
        self._device, self._groups = device, groups
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
        load = Load.of(configs, problem, self._device, resources)
        times, deviations = load.corrected(), np.empty(len(configs))
        for family, (rows, _) in load.families.items():
            if family not in self._families:
                groups = [group for group in self._groups if group.family == family]
                self._families[family] = _FamilyError(family, groups, self._device)
            asked = _group(load, family, np.zeros_like(times[rows]))
            errors, deviations[rows] = self._families[family].predict(asked)
            times[rows] *= np.exp(errors)
        return Predictions(times, deviations)


class _FamilyError:
    """The error of a family's configurations."""

    def __init__(self, family: str, groups: Sequence[SampleGroup], device: Device) -> None:
        self._device = device
        self._prior = CORRECTED if family in cost.serving(device) else ARITHMETIC
        self._words = sorted({pair for group in groups for pair in group.params.pairs})
        logs = np.concatenate([np.empty(0), *(group.logs for group in groups)])
        points = np.vstack([*map(self._points_of, groups)]) if groups else np.empty((0, 0))
        usable = np.isfinite(logs) & np.isfinite(points).all(axis=1)
        self._points, errors = points[usable], logs[usable]
        self._mean = errors.sum() / (len(errors) + self._prior.neutral)
        self._errors = errors - self._mean
        self._process: GaussianProcess | None = None

    def _points_of(self, group: SampleGroup) -> Floats:
        """Configurations as points: similar ones on similar problems are near to each other. The
        last column keeps those of other devices apart."""
        places, params = group.places, group.params
        columns = np.array([problem_columns(problem) for problem, _ in group.problems])
        sizes = self._prior.locality * columns[places]
        foreign = np.array([[FOREIGN * (ran_on != self._device)] for _, ran_on in group.problems])
        numbers = PARAMETER * params.logs(params.numbered)
        words = WORD * params.has(self._words)
        return np.hstack([group.features * UNITS, sizes, numbers, words, foreign[places]])

    def predict(self, asked: SampleGroup) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the errors, without that of measuring."""
        signal, most = self._prior.signal, self._prior.most
        points = self._points_of(asked)
        if not len(self._errors):
            return np.full(len(points), self._mean), np.full(len(points), math.sqrt(signal))
        if self._process is None:
            covariance = Covariance(np.full(points.shape[1], LENGTH), signal, NOISE, jitter=0.0)
            near = np.arange(len(self._errors))
            if len(near) > most:
                # Single precision is enough to rank by, in half the time.
                samples, queries = self._points.astype(np.float32), points.astype(np.float32)
                likeness = covariance.between(samples, queries).sum(1)
                near = np.argpartition(-likeness, most)[:most]
            self._process = GaussianProcess(covariance, self._points[near], self._errors[near])
        mean, deviations = self._process.predict(points)
        return self._mean + mean, deviations


def expected_ratio(problem: Problem, ratios: Mapping[Problem, float]) -> float:
    """The vendor library's time over a time of the roofline, by its ratios on other problems.

    On 131 recorded problems, each left out in turn, half of the predictions are within 15 % of the
    measured time.
    """
    points, logs = np.array([*map(problem_columns, ratios)]), np.log([*ratios.values()])
    covariance = Covariance(np.full(points.shape[1], VENDOR_LENGTH), *VENDOR_VARIANCES, jitter=0.0)
    process = GaussianProcess(covariance, points, logs - logs.mean())
    means, _ = process.predict(np.array([problem_columns(problem)]))
    return math.exp(logs.mean() + means[0])
