"""Configurations of one family as a table of the indices of their values.

A space of two million takes 20 MB in this form; a `Config` is made where it is asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.families.config import Config, Value

Codes = NDArray[np.uint8]

MOST_VALUES = 256
"""Values of a parameter, whose index takes one byte."""


class ConfigTable(Sequence[Config]):
    """Distinct configurations of one family, sorted by the indices of their values.

    Args:
        family: the family.
        values: the values of each parameter, at most 256.
        codes: the index of each value, a row a configuration and a column a parameter.
    """

    def __init__(self, family: str, values: Mapping[str, Sequence[Value]], codes: Codes) -> None:
        self.family, self.values = family, values
        self.codes = np.ascontiguousarray(codes)
        self._pairs = [[(name, value) for value in own] for name, own in values.items()]

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: Any) -> Any:
        rows = self.codes[index]
        return self._config(rows.tolist()) if rows.ndim == 1 else self.taken(index)

    def __iter__(self) -> Iterator[Config]:
        return map(self._config, self.codes.tolist())

    def __contains__(self, config: object) -> bool:
        return config in self.places

    def taken(self, rows: Any) -> ConfigTable:
        """The configurations of rising rows: a slice, indices or a mask."""
        return ConfigTable(self.family, self.values, self.codes[rows])

    def rows(self, configs: Iterable[Config]) -> NDArray[np.intp]:
        """The rows of those configurations that the table has."""
        places = (self.places.get(config) for config in configs)
        return np.array([place for place in places if place is not None], np.intp)

    @cached_property
    def places(self) -> Mapping[Config, int]:
        """The row of each configuration."""
        return _Places(self)

    def _config(self, row: Sequence[int]) -> Config:
        pairs = zip(self._pairs, row, strict=True)
        return Config(self.family, tuple([own[code] for own, code in pairs]))


class _Places(Mapping[Config, int]):
    """The row of each configuration of a table, found by bisection."""

    def __init__(self, table: ConfigTable) -> None:
        self._table, self._names = table, tuple(table.values)
        self._codes = [
            dict(zip(own, range(len(own)), strict=True)) for own in table.values.values()
        ]
        # A column of zeros in front, as NumPy has no texts of 0 bytes.
        rows = np.pad(table.codes, ((0, 0), (1, 0)))
        self._keys = rows.view(f"S{rows.shape[1]}")[:, 0]

    def __getitem__(self, config: Config) -> int:
        if config.family != self._table.family or tuple(config.values) != self._names:
            raise KeyError(config)
        pairs = zip(self._codes, config.params, strict=True)
        key = bytes([0, *(codes[value] for codes, (_, value) in pairs)])
        row = int(np.searchsorted(self._keys, np.bytes_(key)))
        if row == len(self) or self._keys[row] != key.rstrip(b"\0"):
            raise KeyError(config)
        return row

    def __iter__(self) -> Iterator[Config]:
        return iter(self._table)

    def __len__(self) -> int:
        return len(self._table)


def places_of(configs: Sequence[Config]) -> Mapping[Config, int]:
    """The index of each configuration."""
    if isinstance(configs, ConfigTable):
        return configs.places
    return {config: index for index, config in enumerate(configs)}
