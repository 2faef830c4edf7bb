"""The search space: one axis for each parameter that varies, and the configurations as points.

`History` says which of them are running, finished or left.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
)

from autotune.families.config import Config, Value
from autotune.families.config_table import ConfigTable
from autotune.families.plan import Resources

FAMILY = "family"

# The distance of an odd value from one that 2 divides MOST_TWOS times or more often, and that of
# any two single values. It is less than that of two words: most effects are smooth.
TWOS, MOST_TWOS, SINGLES = 0.5, 5, 0.2

Codes = npt.NDArray[np.uint8]
# The indices of the configurations of a family, and the value that each of them has.
_Column = tuple[npt.NDArray[np.intp], list[Value]]


@dataclass(frozen=True)
class Axis:
    """A parameter and the values it takes among the feasible configurations.

    Integers are searched by the index of their value, since powers of two are not evenly spaced;
    words are unordered. The family is an axis too if there are several, and a configuration whose
    family lacks a parameter has the value None there.

    Attributes:
        name: name of the parameter.
        values: in rising order, None in front if a configuration lacks the parameter.
        codes: index of each configuration's value.
        weight: distance between the two ends of the axis.
    """

    name: str
    values: tuple[Value | None, ...]
    codes: Codes
    weight: float = 1.0

    @property
    def distribution(self) -> BaseDistribution:
        """The distribution an Optuna sampler draws from."""
        if self._ordered:
            return IntDistribution(0, len(self.values) - 1)
        return CategoricalDistribution(self.values)

    @property
    def plain(self) -> BaseDistribution:
        """The distribution of the values themselves, for people to read."""
        numbers = self._numbers
        if self._ordered and any(isinstance(value, float) for value in numbers):
            return FloatDistribution(min(numbers), max(numbers))
        if self._ordered:
            return IntDistribution(int(min(numbers)), int(max(numbers)))
        return CategoricalDistribution([value for value in self.values if value is not None])

    def param(self, index: int) -> Value | None:
        """The draw from `distribution` that stands for the configuration at `index`."""
        code = int(self.codes[index])
        return code if self._ordered else self.values[code]

    def distances(self, param: Value | None) -> npt.NDArray[np.float32]:
        """Squared distance of each configuration from a draw.

        The ends of the axis are `weight` apart, and so are two different words. An absent value is
        at distance 0 from every other: the family axis tells such configurations apart.
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
        """The configurations in a unit cube: one column, or for words one column a word."""
        if self._ordered:
            return np.asarray(self.codes / (len(self.values) - 1))[:, None]
        return self._each[self.codes]

    @property
    def oddities(self) -> list[npt.NDArray[np.float64]]:
        """Further columns, where a single value may be unlike its neighbours: the powers of two in
        the value, as vectors, warps and banks come in these, and a column for each value."""
        if not self._uneven:
            return []
        twos = np.array([_twos(value) for value in self.values]) / MOST_TWOS
        return [TWOS * twos[self.codes, None], SINGLES * self._each[self.codes]]

    @property
    def _each(self) -> npt.NDArray[np.float64]:
        """A row for each value: any two are as far apart as the ends of an ordered axis."""
        return np.asarray(np.eye(len(self.values)) * np.sqrt(0.5))

    @property
    def _uneven(self) -> bool:
        """Whether the values are numbers that are not all powers of two."""
        return self._ordered and any(
            isinstance(value, float) or value & (value - 1) for value in self._numbers
        )

    @property
    def _numbers(self) -> list[int | float]:
        return [value for value in self.values if isinstance(value, int | float)]

    @cached_property
    def _ordered(self) -> bool:
        return not any(isinstance(value, str) for value in self.values)


@dataclass(frozen=True)
class SearchSpace:
    """The feasible configurations as points of an Optuna search space.

    Attributes:
        axes: one for each parameter that varies.
        count: number of configurations.
    """

    axes: Sequence[Axis]
    count: int

    @cached_property
    def _indices(self) -> dict[tuple[Value | None, ...], int]:
        return {}

    @cached_property
    def distributions(self) -> dict[str, BaseDistribution]:
        """The distribution of each parameter."""
        return {axis.name: axis.distribution for axis in self.axes}

    def params(self, index: int) -> dict[str, Value | None]:
        """The parameters of a configuration."""
        params = {axis.name: axis.param(index) for axis in self.axes}
        self._indices[tuple(params.values())] = index
        return params

    def index(self, params: Mapping[str, Value | None]) -> int:
        """The configuration whose parameters `params` has given out; the only one without axes."""
        return self._indices[tuple(params[axis.name] for axis in self.axes)] if self.axes else 0

    @cached_property
    def matrix(self) -> npt.NDArray[np.float64]:
        """The configurations as points of a unit cube, one a row."""
        return np.hstack([np.empty((self.count, 0)), *(axis.columns for axis in self.axes)])

    @property
    def oddities(self) -> list[npt.NDArray[np.float64]]:
        """Further columns, which tell single values apart; those of an array belong together."""
        return [part for axis in self.axes for part in axis.oddities]

    @cached_property
    def families(self) -> Codes:
        """The family of each configuration, as a number."""
        codes = next((axis.codes for axis in self.axes if axis.name == FAMILY), None)
        return np.zeros(self.count, "u1") if codes is None else codes


def axes_of(configs: Sequence[Config]) -> tuple[Axis, ...]:
    """The axes of configurations of any families; a parameter with a single value has none."""
    if isinstance(configs, ConfigTable):
        return _axes_of_table(configs)
    members: dict[str, list[int]] = {}
    for index, config in enumerate(configs):
        members.setdefault(config.family, []).append(index)
    columns: dict[str, list[_Column]] = {}
    for family, indices in members.items():
        where = np.array(indices)
        columns.setdefault(FAMILY, []).append((where, [family] * len(indices)))
        for column in zip(*(configs[index].params for index in indices), strict=True):
            values = [*map(itemgetter(1), column)]
            columns.setdefault(column[0][0], []).append((where, values))
    # The nearest configuration to a draw is always one of the family drawn.
    weights = {FAMILY: len(columns)}
    axes = (
        _axis(name, parts, len(configs), weights.get(name, 1)) for name, parts in columns.items()
    )
    return tuple(axis for axis in axes if sum(value is not None for value in axis.values) > 1)


def _axes_of_table(table: ConfigTable) -> tuple[Axis, ...]:
    axes = []
    for (name, own), column in zip(table.values.items(), table.codes.T, strict=True):
        used = np.flatnonzero(np.bincount(column)).tolist()
        values = sorted((own[code] for code in used), key=_order)
        if len(values) > 1:
            code = {value: index for index, value in enumerate(values)}
            renamed = np.array([code.get(value, 0) for value in own], "u1")
            axes.append(Axis(name, tuple(values), renamed[column]))
    return tuple(axes)


def _order(value: Value | None) -> tuple[str, Any]:
    return str(type(value)), value


def _axis(name: str, parts: Sequence[_Column], count: int, weight: float) -> Axis:
    distinct = {*chain.from_iterable(column for _, column in parts)}
    values: list[Value | None] = sorted(distinct, key=_order)
    if sum(len(column) for _, column in parts) < count:
        values.insert(0, None)
    code = {value: index for index, value in enumerate(values)}
    codes = np.zeros(count, "u1")
    for where, column in parts:
        codes[where] = np.fromiter(map(code.__getitem__, column), "u1", len(column))
    return Axis(name, tuple(values), codes, weight)


def _twos(value: Value | None) -> int:
    """The power of two in a number, at most `MOST_TWOS`."""
    number = value if isinstance(value, int) else 0
    return MOST_TWOS if number == 0 else min(MOST_TWOS, (number & -number).bit_length() - 1)


Mask = npt.NDArray[np.bool_]

# A family with LEAST trials whose best is FAR times as slow as the best of all gets no more of
# them while other families have configurations left.
LEAST, FAR = 8, 1.5


class History:
    """Configurations by their indices: which are running, which are finished, which are left.

    Attributes:
        used: whether each configuration is running or finished.
        told: indices of finished ones, in the order they finished.
        logs: logarithm of each configuration's time, infinite for a failure, NaN before
            it is finished.
        pending: indices of running ones, in the order they started.
        resources: by index, of those that were compiled.
        best: the index of the least time; None if there is none.
    """

    def __init__(self, space: SearchSpace) -> None:
        self._families = space.families
        self.used: Mask = np.zeros(space.count, bool)
        self.told: list[int] = []
        self.logs = np.full(space.count, math.nan)
        self.pending: dict[int, None] = {}
        self.resources: dict[int, Resources] = {}
        self.best: int | None = None
        # By family: the least time with its index, and the number of trials.
        self._bests: dict[int, tuple[float, int]] = {}
        self._counts: dict[int, int] = {}

    def start(self, index: int) -> None:
        """A configuration is being tried, here or in another process."""
        self.used[index] = True
        self.pending[index] = None

    def release(self, index: int) -> None:
        """A configuration that was being tried is free again."""
        if index in self.pending:
            del self.pending[index]
            self.used[index] = False

    def finish(self, index: int, log: float, resources: Resources | None = None) -> None:
        """A configuration was tried, with this logarithm of its time."""
        self.used[index] = True
        self.pending.pop(index, None)
        self.told.append(index)
        self.logs[index] = log
        if resources is not None:
            self.resources[index] = resources
        family = int(self._families[index])
        self._counts[family] = self._counts.get(family, 0) + 1
        if log < self._bests.get(family, (math.inf, 0))[0]:
            self._bests[family] = log, index
            self.best = min(self._bests.values())[1]

    @property
    def left(self) -> Mask:
        """The configurations to choose from: those of families far behind only if no others are."""
        free = ~self.used
        behind = [family for family in self._counts if self._behind(family)]
        hopeful = free & ~np.isin(self._families, behind) if behind else free
        return hopeful if hopeful.any() else free

    def rivals(self) -> Sequence[int]:
        """The best of each family, unless it is far behind."""
        limit = min(self._bests.values())[0] + math.log(FAR) if self._bests else -math.inf
        return [index for log, index in self._bests.values() if log <= limit]

    def _behind(self, family: int) -> bool:
        if self.best is None or self._counts[family] < LEAST:
            return False
        ahead = float(self.logs[self.best])
        return self._bests.get(family, (math.inf, 0))[0] > ahead + math.log(FAR)
