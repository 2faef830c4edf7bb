"""The relaxed space: one axis for each parameter that varies, every combination allowed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from autotune.config import Config, Value


@dataclass(frozen=True)
class Axis:
    """A parameter and the values it takes among the feasible configurations.

    Whole numbers are searched by the index of their value, since powers of two are not evenly
    spaced; words are unordered.

    Attributes:
        name: of the parameter.
        values: in rising order.
        codes: for each configuration the index of its value.
    """

    name: str
    values: tuple[Value, ...]
    codes: npt.NDArray[np.uint8]

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
            return IntDistribution(int(self.values[0]), int(self.values[-1]))
        return CategoricalDistribution(self.values)

    def param(self, index: int) -> Value:
        """What the inner sampler would have to draw for the configuration at `index`."""
        code = int(self.codes[index])
        return code if self._ordered else self.values[code]

    def distances(self, param: Value) -> npt.NDArray[np.float32]:
        """Squared distance of each configuration from a draw.

        The ends of the axis are at distance 1, and so are two different words.
        """
        if isinstance(param, int):
            table = (np.arange(len(self.values)) - param) / (len(self.values) - 1)
        else:
            table = np.array([value != param for value in self.values])
        return np.square(table, dtype="f4")[self.codes]

    @property
    def _ordered(self) -> bool:
        return all(isinstance(value, int) for value in self.values)


def axes_of(configs: Sequence[Config]) -> tuple[Axis, ...]:
    """The axes of configurations of one family; what they all agree on has none."""
    axes = []
    for column in zip(*(config.params for config in configs), strict=True):
        held = [value for _, value in column]
        values = sorted(set(held), key=lambda value: (str(type(value)), value))
        if len(values) > 1:
            code = {value: index for index, value in enumerate(values)}
            codes = np.fromiter(map(code.__getitem__, held), "u1", len(held))
            axes.append(Axis(column[0][0], tuple(values), codes))
    return tuple(axes)
