"""The cost model's error, learnt from records of other problems.

The cost model ranks well and is off by tens of per cent, but it errs in the same direction for
similar configurations on similar problems. Its error, the log of measured over predicted time, is
modelled as a function of both by a Gaussian process for each kernel family. The records' entries
are its samples. Far from all samples the error is 0 and the cost model stands as it is.

The scales were chosen on the trials of 27 shapes in five precisions on an H100, each shape left out
in turn (`scripts/left_out.py`); twice or half of each does about as well.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.candidates import features
from autotune.candidates.gaussian_process import Covariance, GaussianProcess
from autotune.device import Device
from autotune.families.config import Config, Value
from autotune.families.plan import Resources
from autotune.problem import Problem

Floats = NDArray[np.float64]

# Of the errors, as logs: the variance of the model's, that of measuring, and the length scale in
# the units of `_points`.
SIGNAL, NOISE, LENGTH = 0.1, 0.01, 2.0
# The mean error is taken over the samples and this many samples of error 0, or a few samples would
# move all predictions.
NEUTRAL = 10
# Units of `features.of_products`: tile, its aspect, k-iterations, threads, shared memory, blocks an
# SM, blocks (all as log2), registers, the share of the last wave.
UNITS = (0.3, 0.2, 0.25, 0.3, 0.15, 0.4, 0.2, 0.01, 1.0)
OCTAVE, ALIGNED, KIND, STORED, FOREIGN = 0.25, 0.125, 1.0, 0.5, 1.0
PARAMETER, WORD = 0.5, 0.6
MOST_ALIGNED = 4
"""As log2: kernels move 16 bytes at most, and where 16 divides a size every tile is whole."""


@dataclass(frozen=True)
class Sample:
    """A configuration and how long it took on a problem and a device, in microseconds."""

    config: Config
    resources: Resources
    time_us: float
    problem: Problem
    device: Device


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


class ModelError:
    """Predicts times by the cost model and its error on samples.

    Args:
        samples: of configurations that their families know, of any problem and any device of an
            architecture.
        device: the device to predict for.
    """

    def __init__(self, samples: Iterable[Sample], device: Device) -> None:
        self._device = device
        self._samples: dict[str, list[Sample]] = {}
        for sample in samples:
            self._samples.setdefault(sample.config.family, []).append(sample)
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
        deviations = np.full(len(configs), math.sqrt(SIGNAL))
        resources = resources or [None] * len(configs)
        for family in dict.fromkeys(config.family for config in configs):
            places = [place for place, config in enumerate(configs) if config.family == family]
            members = [configs[place] for place in places]
            compiled = [resources[place] for place in places]
            described = features.of_products(members, problem, self._device, compiled)
            if described.predicted is None:
                continue
            error = self._family(family)
            points = _points(described.features, members, problem, error.words)
            errors, deviations[places] = error.predict(_with_origin(points, foreign=False))
            times[places] = described.predicted * np.exp(errors)
        return Predictions(times, deviations)

    def _family(self, family: str) -> _FamilyError:
        if family not in self._families:
            samples = self._samples.get(family, [])
            self._families[family] = _FamilyError(samples, self._device)
        return self._families[family]


class _FamilyError:
    """The error of a family's configurations."""

    def __init__(self, samples: Sequence[Sample], device: Device) -> None:
        self.words = _words([sample.config for sample in samples])
        groups: dict[tuple[Problem, Device], list[Sample]] = {}
        for sample in samples:
            groups.setdefault((sample.problem, sample.device), []).append(sample)
        points, errors = [], []
        for (problem, measured_on), group in groups.items():
            try:
                with np.errstate(all="ignore"):
                    described, predicted = self._described(group, problem, measured_on)
                    measured = np.array([sample.time_us for sample in group])
                    logs = np.log(measured / predicted)
            except ArithmeticError as fault:
                warnings.warn(f"{_illegal(problem, measured_on)}: {fault}", stacklevel=2)
                continue
            runs = np.isfinite(logs) & np.isfinite(described).all(axis=1)
            points.append(_with_origin(described, foreign=measured_on != device)[runs])
            errors.append(logs[runs])
        error = np.concatenate(errors) if errors else np.empty(0)
        self._mean = error.sum() / (len(error) + NEUTRAL)
        self._process: GaussianProcess | None = None
        if len(error):
            at = np.vstack(points)
            covariance = Covariance(np.full(at.shape[1], LENGTH), SIGNAL, NOISE, jitter=0.0)
            self._process = GaussianProcess(covariance, at, error - self._mean)

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the errors, without that of measuring."""
        if self._process is None:
            return np.zeros(len(points)), np.full(len(points), math.sqrt(SIGNAL))
        mean, deviations = self._process.predict(points)
        return self._mean + mean, deviations

    def _described(
        self, group: Sequence[Sample], problem: Problem, device: Device
    ) -> tuple[Floats, Floats]:
        configs = [sample.config for sample in group]
        compiled = [sample.resources for sample in group]
        described = features.of_products(configs, problem, device, compiled)
        assert described.predicted is not None  # the model knows every GEMM kernel
        return _points(described.features, configs, problem, self.words), described.predicted


def _illegal(problem: Problem, device: Device) -> str:
    return f"the record of {problem} on {device.name} holds a configuration that breaks the rules"


def _points(
    described: Floats, configs: Sequence[Config], problem: Problem, words: Sequence[tuple[str, str]]
) -> Floats:
    """The configurations as points: similar ones on similar problems are near to each other."""
    sizes = np.tile(problem_columns(problem), (len(configs), 1))
    params = np.array([_params(config, words) for config in configs])
    return np.hstack([described * UNITS, sizes, params])


def _with_origin(points: Floats, *, foreign: bool) -> Floats:
    """The points, with a column that keeps those of other devices apart."""
    return np.hstack([points, np.full((len(points), 1), FOREIGN if foreign else 0.0)])


def problem_columns(problem: Problem) -> list[float]:
    """Sizes, alignments, precision and layout: similar problems are near to each other."""
    sizes = (problem.m, problem.n, problem.k)
    return [
        *(OCTAVE * math.log2(size) for size in (*sizes, problem.batch)),
        *(ALIGNED * min(MOST_ALIGNED, (size & -size).bit_length() - 1) for size in sizes),
        *(KIND * kind for kind in (problem.element_bytes == 2, problem.products == 3)),
        KIND * (not problem.precision.on_tensor_cores),
        *(KIND * kind for kind in _eight_bit_kinds(problem)),
        *(STORED * (letter == "t") for letter in problem.layout),
    ]


def _eight_bit_kinds(problem: Problem) -> tuple[bool, ...]:
    """Traits of problems of 8 bits; all false for others."""
    precision = problem.precision
    integer, fast = precision.sums == "integer", problem.accumulate == "fast"
    return precision.eight_bit, integer, fast, problem.scale == "block"


def _params(config: Config, words: Sequence[tuple[str, str]]) -> list[float]:
    """Numbers as log2, and for each word whether the configuration has it."""
    values = config.values
    numbers = [
        PARAMETER * math.log2(1 + value) for _, value in config.params if isinstance(value, int)
    ]
    return numbers + [WORD * (values[name] == word) for name, word in words]


def _words(configs: Iterable[Config]) -> list[tuple[str, str]]:
    """Every word with its parameter, but for the compute, which the problem has too."""
    pairs: set[tuple[str, Value]] = {pair for config in configs for pair in config.params}
    return sorted(
        (name, value) for name, value in pairs if isinstance(value, str) and name != "compute"
    )
