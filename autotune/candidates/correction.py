"""Neural networks that correct the cost model's predictions, trained on recordings.

The arithmetic of `load` leaves an error of some 20 % that depends on shape and configuration
together: how copies, products and stores overlap, how tails and edges cost. For each kernel family
a few networks of two hidden layers predict the logarithm of measured over modelled time from the
terms of the model, the work, the problem and the parameters. `TRUST` of their mean is corrected.

    columns -> (columns - mean) / scale, within 4 of 0 -> ReLU layers -> log of the factor

`scripts/fit_correction.py` trains them with scikit-learn and checks them on shapes left out;
`data/correction.npz` has the weights and, as JSON, the names of the columns and what they were
trained on. They serve the architecture of these recordings alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources as files
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.candidates.problem_columns import problem_columns
from autotune.device import Device
from autotune.families.config import Config
from autotune.problem import Problem

if TYPE_CHECKING:
    from autotune.candidates.load import Load, Terms

Floats = NDArray[np.float64]

FAR = 4.0
"""Standard deviations from the mean at which a column is cut off: beyond, networks guess."""

TRUST, LARGEST = 0.7, 1.0
"""The share of a predicted error that is corrected, and the largest correction, as a logarithm. On
shapes left out 0.7 chooses as well as 1; where no recording is near it errs less."""

DECIMALS = 6
"""Digits of a correction: matrix products differ by less from machine to machine."""

LEAST_US = 1e-3
"""Microseconds that a term counts at least, as its share is a logarithm."""

WORK = (
    *("blocks", "rows", "columns", "warps", "iterations", "issue", "shared", "bytes", "starts"),
    *("copies", "ahead", "end", "group", "gathers", "tensor", "cluster"),
)
"""The attributes of `Work` that are columns."""


@dataclass(frozen=True)
class Network:
    """The networks of one family.

    Attributes:
        numbers: the parameters that are numbers.
        words: values of parameters that are words, with the parameters' names.
        mean, scale: of the columns; an infinite scale leaves a column out.
        weights, biases: of the layers, each with an axis of networks in front.
    """

    numbers: tuple[str, ...]
    words: tuple[tuple[str, str], ...]
    mean: Floats
    scale: Floats
    weights: tuple[Floats, ...]
    biases: tuple[Floats, ...]

    def logs(self, columns: Floats) -> Floats:
        """The mean of all networks for each row of columns."""
        values = self.scaled(columns)[None]
        for layer, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = (np.maximum(values, 0.0) if layer else values) @ weights + biases[:, None]
        return np.asarray(values[..., 0].mean(0))

    def errors(self, shared: Floats, configs: Sequence[Config]) -> Floats:
        """The predicted errors of configurations of the family, as logarithms, before `bounded`;
        `shared` are their `shared_columns`."""
        own = parameter_columns(configs, self.numbers, self.words)
        return self.logs(np.hstack([shared, own]))

    def scaled(self, columns: Floats) -> Floats:
        """The columns in standard deviations from their means, cut off at `FAR`."""
        return np.clip((columns - self.mean) / self.scale, -FAR, FAR)


@cache
def trained() -> tuple[tuple[int, int], Mapping[str, Network]]:
    """The compute capability that the package's networks serve, and those of each family."""
    with (files.files("autotune") / "data" / "correction.npz").open("rb") as file:
        return loads(np.load(file, allow_pickle=False))


def loads(arrays: Mapping[str, NDArray[Any]]) -> tuple[tuple[int, int], Mapping[str, Network]]:
    """The networks in the arrays of a file, as `scripts/fit_correction.py` names them."""
    about = json.loads(str(arrays["about"]))

    def layers(family: str, kind: str) -> tuple[Floats, ...]:
        names = sorted(name for name in arrays if name.startswith(f"{family}/{kind}"))
        return tuple(arrays[name].astype(float) for name in names)

    networks = {
        family: Network(
            tuple(names["numbers"]),
            tuple((name, word) for name, word in names["words"]),
            arrays[f"{family}/mean"].astype(float),
            arrays[f"{family}/scale"].astype(float),
            layers(family, "weights"),
            layers(family, "biases"),
        )
        for family, names in about["families"].items()
    }
    major, minor = about["compute_capability"]
    return (major, minor), networks


def corrects(family: str, device: Device) -> bool:
    """Whether networks correct the times of a family's configurations on a device."""
    capability, networks = trained()
    return device.compute_capability == capability and family in networks


def factors(
    load: Load, terms: Terms, configs: Sequence[Config], problem: Problem, device: Device
) -> Floats:
    """The factors that correct the modelled times of configurations; 1 where nothing was learnt."""
    capability, networks = trained()
    logs = np.zeros(len(configs))
    if device.compute_capability == capability:
        families = [config.family for config in configs]
        shared = shared_columns(load, terms, problem)
        for family in networks.keys() & set(families):
            rows = np.array([row for row, name in enumerate(families) if name == family])
            logs[rows] = networks[family].errors(shared[rows], [configs[row] for row in rows])
    logs = np.where(terms.fits, bounded(logs), 0.0)
    return np.asarray(np.exp(np.round(logs, DECIMALS)))


def bounded(logs: Floats) -> Floats:
    """The logarithms of corrections for predicted errors."""
    return np.clip(TRUST * logs, -LARGEST, LARGEST)


def shared_columns(load: Load, terms: Terms, problem: Problem) -> Floats:
    """The columns that all families have, a row for each configuration: the whole time, the
    shares of its terms, the work, where blocks are resident, and the problem."""
    total = np.where(terms.fits, terms.total, 1.0)
    parts = (terms.compute, terms.l2, terms.dram, terms.moved)
    shares = [np.log(np.maximum(part, LEAST_US) / total) for part in parts]
    resident = np.maximum(load.resident, 1.0)
    waves = load.work.blocks / (load.sms * resident)
    sizes = [*(getattr(load.work, name) for name in WORK), resident, load.sms, waves]
    fill = waves / np.ceil(waves)
    own = np.column_stack([np.log(total), *shares, *np.log2(1.0 + np.array(sizes)), fill])
    return np.hstack([own, np.tile(problem_columns(problem), (len(own), 1))])


def parameter_columns(
    configs: Sequence[Config], numbers: Sequence[str], words: Sequence[tuple[str, str]]
) -> Floats:
    """The columns of a family's parameters: logarithms of numbers, and 1 for each word that a
    configuration has."""
    values = {
        name: [config.params[place][1] for config in configs]
        for place, (name, _) in enumerate(configs[0].params)
    }
    columns = [np.log2(1.0 + np.array(values[name], float)) for name in numbers]
    columns += [np.array([value == word for value in values[name]], float) for name, word in words]
    return np.column_stack(columns)
