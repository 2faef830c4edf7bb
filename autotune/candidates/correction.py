"""Neural networks that correct the cost model's predictions, trained on recordings.

The arithmetic of `cost` leaves an error of some 20 % that depends on shape and configuration
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
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources as files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.candidates.features import Floats, Parameters
from autotune.device import Device

FAR = 4.0
"""Standard deviations from the mean at which a column is cut off: beyond, networks guess."""

TRUST, LARGEST = 0.7, 1.0
"""The share of a predicted error that is corrected, and the largest correction, as a logarithm. On
shapes left out 0.7 chooses as well as 1; where no recording is near it errs less."""

DECIMALS = 6
"""Digits of a correction: matrix products differ by less from machine to machine."""


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

    def columns(self, shared: Floats, params: Parameters) -> Floats:
        """The columns of configurations of the family, a row each: those that all families have,
        logarithms of numbers, and 1 for each word that a configuration has."""
        return np.hstack([shared, params.logs(self.numbers), params.has(self.words)])

    def logs(self, columns: Floats) -> Floats:
        """The mean of all networks for each row of columns."""
        values = self.scaled(columns)[None]
        for layer, (weights, biases) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = (np.maximum(values, 0.0) if layer else values) @ weights + biases[:, None]
        return np.asarray(values[..., 0].mean(0))

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


def serving(device: Device) -> Mapping[str, Network]:
    """The networks of each family that correct times on a device; none on most architectures."""
    capability, networks = trained()
    return networks if device.compute_capability == capability else {}


def bounded(logs: Floats) -> Floats:
    """The logarithms of corrections for predicted errors."""
    return np.asarray(np.round(np.clip(TRUST * logs, -LARGEST, LARGEST), DECIMALS))
