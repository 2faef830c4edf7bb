"""The relaxed space: one axis for each parameter that varies, every combination allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from autotune.families.config import Config, Value

FAMILY = "family"

Codes = npt.NDArray[np.uint8]
# The indices of the configurations of a family, and the value that each of them has.
_Column = tuple[npt.NDArray[np.intp], list[Value]]


@dataclass(frozen=True)
class Axis:
    """A parameter and the values it takes among the feasible configurations.

    Whole numbers are searched by the index of their value, since powers of two are not evenly
    spaced; words are unordered. The family is an axis too where there are several, and a
    configuration whose family lacks a parameter has the value None there.

    Attributes:
        name: of the parameter.
        values: in rising order, None in front if some configuration lacks it.
        codes: for each configuration the index of its value.
        weight: what a step from one end of the axis to the other counts.
    """

    name: str
    values: tuple[Value | None, ...]
    codes: Codes
    weight: float = 1.0

    @property
    def distribution(self) -> BaseDistribution:
        """What the inner sampler draws from."""
        if self._ordered:
            return IntDistribution(0, len(self.values) - 1)
        return CategoricalDistribution(self.values)

    @property
    def plain(self) -> BaseDistribution:
        """The values themselves, for people to look at."""
        if self._ordered:
            return IntDistribution(min(self._numbers), max(self._numbers))
        return CategoricalDistribution([value for value in self.values if value is not None])

    def param(self, index: int) -> Value | None:
        """What the inner sampler would have to draw for the configuration at `index`."""
        code = int(self.codes[index])
        return code if self._ordered else self.values[code]

    def distances(self, param: Value | None) -> npt.NDArray[np.float32]:
        """Squared distance of each configuration from a draw.

        The ends of the axis are at distance `weight`, and so are two different words. Nothing is
        away from what is absent: it is the family that has or has not.
        """
        if self._ordered and isinstance(param, int):
            steps = np.arange(len(self.values)) - param
            table = np.square(steps / (len(self._numbers) - 1))
            drawn = self.values[param]
        else:
            table = np.array([float(value != param) for value in self.values])
            drawn = param
        absent = [value is None or drawn is None for value in self.values]
        table = np.where(absent, 0.0, self.weight * table)
        return table.astype("f4")[self.codes]

    @property
    def columns(self) -> npt.NDArray[np.float64]:
        """The configurations in a unit cube: one column, or for words one for each."""
        if self._ordered:
            return np.asarray(self.codes / (len(self.values) - 1))[:, None]
        each = self.codes[:, None] == np.arange(len(self.values))
        # Any two are as far from each other as the ends of an ordered axis.
        return np.asarray(each * np.sqrt(0.5))

    @property
    def _numbers(self) -> list[int]:
        return [value for value in self.values if isinstance(value, int)]

    @property
    def _ordered(self) -> bool:
        return not any(isinstance(value, str) for value in self.values)


def axes_of(configs: Sequence[Config]) -> tuple[Axis, ...]:
    """The axes of configurations of any families; what all agree on that have it has none."""
    members: dict[str, list[int]] = {}
    for index, config in enumerate(configs):
        members.setdefault(config.family, []).append(index)
    columns: dict[str, list[_Column]] = {}
    for family, indices in members.items():
        where = np.array(indices)
        columns.setdefault(FAMILY, []).append((where, [family] * len(indices)))
        for column in zip(*(configs[index].params for index in indices), strict=True):
            held = [value for _, value in column]
            columns.setdefault(column[0][0], []).append((where, held))
    # A draw is taken for the family that it names, whatever else is near to it.
    weights = {FAMILY: len(columns)}
    axes = (
        _axis(name, parts, len(configs), weights.get(name, 1)) for name, parts in columns.items()
    )
    return tuple(axis for axis in axes if sum(value is not None for value in axis.values) > 1)


def matrix(axes: Sequence[Axis], count: int) -> npt.NDArray[np.float64]:
    """The `count` configurations as points of a unit cube, one a row."""
    return np.hstack([np.empty((count, 0)), *(axis.columns for axis in axes)])


def families_in(axes: Sequence[Axis], count: int) -> Codes:
    """The family of each of the `count` configurations, as a number."""
    found = next((axis.codes for axis in axes if axis.name == FAMILY), None)
    return np.zeros(count, "u1") if found is None else found


def _axis(name: str, parts: Sequence[_Column], count: int, weight: float) -> Axis:
    found = {value for _, held in parts for value in held}
    values: list[Value | None] = sorted(found, key=lambda value: (str(type(value)), value))
    if sum(len(held) for _, held in parts) < count:
        values.insert(0, None)
    code = {value: index for index, value in enumerate(values)}
    codes = np.zeros(count, "u1")
    for where, held in parts:
        codes[where] = np.fromiter(map(code.__getitem__, held), "u1", len(held))
    return Axis(name, tuple(values), codes, weight)
