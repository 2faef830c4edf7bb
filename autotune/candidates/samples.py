"""Timed configurations, described: what the cost model's error is learnt from."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autotune.candidates import features
from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.problem import Problem

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """A configuration and how long it took on a problem and a device, in microseconds."""

    config: Config
    resources: Resources
    time_us: float
    problem: Problem
    device: Device


@dataclass(frozen=True, eq=False)
class Parameters:
    """Parameters of configurations of one family, a row each.

    Attributes:
        numbers: the numbers among them.
        names: the names of the words among them.
        codes: the words as places in `words`, a column for each name.
        words: all words.
    """

    numbers: Floats
    names: tuple[str, ...]
    codes: NDArray[np.int64]
    words: Sequence[str]

    @classmethod
    def of(cls, configs: Sequence[Config]) -> Parameters:
        """Those of configurations with the same parameters; the compute, which the problem has
        too, is left out."""
        first = configs[0].params
        names = tuple(name for name, value in first if isinstance(value, str) and name != "compute")
        words: dict[object, int] = {}
        numbers = [[v for _, v in config.params if isinstance(v, int)] for config in configs]
        codes = [
            [words.setdefault(v, len(words)) for name, v in config.params if name in names]
            for config in configs
        ]
        return cls(np.array(numbers, float), names, np.array(codes, np.int64), [*map(str, words)])

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """Each word that occurs, with its name."""
        return {
            (name, self.words[code])
            for column, name in enumerate(self.names)
            for code in {*self.codes[:, column].tolist()}
        }

    def has(self, pairs: Sequence[tuple[str, str]]) -> Floats:
        """A column for each pair: 1 where the configuration has that word, else 0."""
        places = {word: code for code, word in enumerate(self.words)}
        columns = [
            self.codes[:, self.names.index(name)] == places.get(word, -1) for name, word in pairs
        ]
        return np.array(columns, float).T if columns else np.empty((len(self.numbers), 0))


@dataclass(frozen=True, eq=False)
class SampleGroup:
    """Timed configurations of a family, a row each.

    Attributes:
        family: the kernel family.
        problems: the problems, each with the device that ran it.
        places: which of them each row is of.
        features: as `features.of_products` describes them.
        logs: of measured over predicted times.
        params: their parameters.
    """

    family: str
    problems: Sequence[tuple[Problem, Device]]
    places: NDArray[np.int64]
    features: Floats
    logs: Floats
    params: Parameters


def groups_of(samples: Sequence[Sample]) -> list[SampleGroup]:
    """Samples described; those of a record that breaks the rules are left out with a warning."""
    together: dict[tuple[str, Problem, Device], list[Sample]] = {}
    for sample in samples:
        key = sample.config.family, sample.problem, sample.device
        together.setdefault(key, []).append(sample)
    groups = (_described(*key, members) for key, members in together.items())
    return [group for group in groups if group is not None]


def _described(
    family: str, problem: Problem, device: Device, samples: Sequence[Sample]
) -> SampleGroup | None:
    configs = [sample.config for sample in samples]
    compiled = [sample.resources for sample in samples]
    measured = np.array([sample.time_us for sample in samples])
    try:
        with np.errstate(all="ignore"):
            described = features.of_products(configs, problem, device, compiled)
            assert described.predicted is not None  # the model knows every GEMM kernel
            logs = np.log(measured / described.predicted)
    except ArithmeticError as fault:
        warnings.warn(f"{_illegal(problem, device)}: {fault}", stacklevel=2)
        return None
    places = np.zeros(len(configs), np.int64)
    return SampleGroup(
        *(family, [(problem, device)], places, described.features, logs),
        Parameters.of(configs),
    )


def _illegal(problem: Problem, device: Device) -> str:
    return f"the record of {problem} on {device.name} holds a configuration that breaks the rules"
