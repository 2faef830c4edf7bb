"""What records of some problems say of another one.

The cost model ranks well and is off by tens of per cent, but configurations that do alike things on
alike problems are misjudged alike. So its error (the log of measured over predicted time) is taken
as a function of both, of which the records' entries are samples: a Gaussian process for each kernel
family, with mean 0 far from all samples, where the model then stands as it is.

Formulas: C. E. Rasmussen and C. K. I. Williams, Gaussian Processes for Machine Learning (2006),
algorithm 2.1 and equation 4.17. The scales were chosen on the trials of 27 shapes in five
precisions on an H100, each shape left out in turn (`scripts/left_out.py`); twice or half of each
does about as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.candidates import features
from autotune.device import Device
from autotune.families.config import Config, Value
from autotune.families.plan import Resources
from autotune.problem import Problem

Floats = NDArray[np.float64]

# Of the errors, as logs: the variance of the model's, that of measuring, and how far they reach in
# the units of `_points`.
SIGNAL, NOISE, LENGTH = 0.1, 0.01, 2.0
# So many samples of no error are added to their mean, or a few would move all predictions.
DOUBTERS = 10
JITTER = 1e-9
# Units of `features.of_products`: tile, its aspect, turns, threads, shared memory, blocks an SM,
# blocks (all as log2), registers, the share of the last wave.
UNITS = (0.3, 0.2, 0.25, 0.3, 0.15, 0.4, 0.2, 0.01, 1.0)
OCTAVE, ALIGNED, KIND, STORED, FOREIGN = 0.25, 0.125, 1.0, 0.5, 1.0
PARAMETER, WORD = 0.5, 0.6
MOST_ALIGNED = 4
"""As log2: kernels move 16 bytes at most, and tiles are whole anyway where a size divides by 16."""


@dataclass(frozen=True)
class Sample:
    """A configuration and how long it took on a problem and a device, in microseconds."""

    config: Config
    resources: Resources
    time_us: float
    problem: Problem
    device: Device


@dataclass(frozen=True)
class Belief:
    """What is believed of some configurations, one a place.

    Attributes:
        times: microseconds, infinite for what cannot run.
        doubts: standard deviations of their logs.
    """

    times: Floats
    doubts: Floats

    def cautious(self, caution: float) -> Floats:
        """Microseconds that are exceeded the more rarely the greater the caution."""
        return np.asarray(self.times * np.exp(caution * self.doubts))


class Experience:
    """What samples say of other configurations, problems and devices of an architecture.

    Args:
        samples: of configurations that their families know.
        device: that is asked about.
    """

    def __init__(self, samples: Iterable[Sample], device: Device) -> None:
        self._device = device
        self._samples: dict[str, list[Sample]] = {}
        for sample in samples:
            self._samples.setdefault(sample.config.family, []).append(sample)
        self._known: dict[str, _Process] = {}

    def judge(
        self,
        configs: Sequence[Config],
        problem: Problem,
        resources: Sequence[Resources | None] = (),
    ) -> Belief:
        """What is believed of legal configurations of a problem, in their order.

        Resources are estimated where they are not given.
        """
        times, doubts = np.full(len(configs), np.inf), np.full(len(configs), math.sqrt(SIGNAL))
        given = resources or [None] * len(configs)
        for family in dict.fromkeys(config.family for config in configs):
            places = [place for place, one in enumerate(configs) if one.family == family]
            some = [configs[place] for place in places]
            taken = [given[place] for place in places]
            described = features.of_products(some, problem, self._device, taken)
            if described.predicted is None:
                continue
            process = self._process(family)
            where = _points(described.features, some, problem, process.words)
            errors, doubts[places] = process.predict(_near(where, foreign=False))
            times[places] = described.predicted * np.exp(errors)
        return Belief(times, doubts)

    def _process(self, family: str) -> _Process:
        if family not in self._known:
            self._known[family] = _Process(self._samples.get(family, []), self._device)
        return self._known[family]


class _Process:
    """The errors of a family's configurations."""

    def __init__(self, samples: Sequence[Sample], device: Device) -> None:
        self.words = _words([sample.config for sample in samples])
        groups: dict[tuple[Problem, Device], list[Sample]] = {}
        for sample in samples:
            groups.setdefault((sample.problem, sample.device), []).append(sample)
        points, errors = [], []
        for (problem, where), group in groups.items():
            found, predicted = self._described(group, problem, where)
            fits = np.isfinite(predicted)
            points.append(_near(found, foreign=where != device)[fits])
            measured = np.array([sample.time_us for sample in group])
            errors.append(np.log(measured[fits] / predicted[fits]))
        self._points = np.vstack(points) if points else np.empty((0, 0))
        error = np.concatenate(errors) if errors else np.empty(0)
        self._mean = error.sum() / (len(error) + DOUBTERS)
        covariance = _covariance(self._points, self._points)
        covariance[np.diag_indices_from(covariance)] += NOISE
        self._inverse = np.linalg.inv(np.linalg.cholesky(covariance))
        self._weights = self._inverse.T @ (self._inverse @ (error - self._mean))

    def predict(self, points: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the errors, without that of measuring."""
        if not len(self._points):
            return np.zeros(len(points)), np.full(len(points), math.sqrt(SIGNAL))
        across = _covariance(points, self._points)
        explained = np.square(across @ self._inverse.T).sum(1)
        doubts = np.sqrt(np.maximum(SIGNAL - explained, JITTER))
        return self._mean + across @ self._weights, doubts

    def _described(
        self, group: Sequence[Sample], problem: Problem, device: Device
    ) -> tuple[Floats, Floats]:
        configs, taken = [one.config for one in group], [one.resources for one in group]
        described = features.of_products(configs, problem, device, taken)
        predicted = described.predicted
        assert predicted is not None  # the model knows every product
        return _points(described.features, configs, problem, self.words), predicted


def _points(
    described: Floats, configs: Sequence[Config], problem: Problem, words: Sequence[tuple[str, str]]
) -> Floats:
    """Where the configurations lie: those that do alike things on alike problems are near."""
    where = np.tile(_place(problem), (len(configs), 1))
    params = np.array([_params(config, words) for config in configs])
    return np.hstack([described * UNITS, where, params])


def _near(points: Floats, *, foreign: bool) -> Floats:
    """The points, apart from those of other devices."""
    return np.hstack([points, np.full((len(points), 1), FOREIGN if foreign else 0.0)])


def _place(problem: Problem) -> list[float]:
    sizes = (problem.m, problem.n, problem.k)
    return [
        *(OCTAVE * math.log2(size) for size in (*sizes, problem.batch)),
        *(ALIGNED * min(MOST_ALIGNED, (size & -size).bit_length() - 1) for size in sizes),
        *(KIND * kind for kind in (problem.element_bytes == 2, problem.products == 3)),
        KIND * (not problem.precision.on_tensor_cores),
        *(STORED * (letter == "t") for letter in problem.layout),
    ]


def _params(config: Config, words: Sequence[tuple[str, str]]) -> list[float]:
    """Numbers as log2, and for each word whether it is there."""
    values = config.values
    numbers = [
        PARAMETER * math.log2(1 + value) for _, value in config.params if isinstance(value, int)
    ]
    return numbers + [WORD * (values[name] == word) for name, word in words]


def _words(configs: Iterable[Config]) -> list[tuple[str, str]]:
    """Each parameter whose values are words with each of them; the compute is the problem's."""
    found: set[tuple[str, Value]] = {pair for config in configs for pair in config.params}
    return sorted(
        (name, value) for name, value in found if isinstance(value, str) and name != "compute"
    )


def _covariance(ones: Floats, others: Floats) -> Floats:
    """Matérn 5/2."""
    squares = np.square(ones).sum(1)[:, None] + np.square(others).sum(1)[None, :]
    squares = np.maximum(squares - 2 * ones @ others.T, 0.0)
    distances = np.sqrt(5.0 * squares) / LENGTH
    return np.asarray(SIGNAL * (1 + distances + np.square(distances) / 3) * np.exp(-distances))
