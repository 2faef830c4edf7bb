"""Digests of records: what choices for other problems need of them.

Decoding a record and describing its entries takes milliseconds, and a choice learns from a hundred
of them. A digest holds the descriptions as arrays, beside the vendor library's times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from autotune.candidates.features import Parameters
from autotune.candidates.model_error import SampleGroup
from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.problem import Problem
from autotune.runners.base import Evidence, Measurement
from autotune.runners.objective import HOT, Objective


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of one family of all records in a digest, a row each; see the file's arrays."""

    names: tuple[str, ...]
    worded: tuple[str, ...]
    words: Sequence[str]
    values: NDArray[np.int64]
    resources: NDArray[np.int32]
    times: NDArray[np.float32]
    described: NDArray[np.float32]
    logs: NDArray[np.float16]

    def config(self, family: str, row: int) -> Config:
        """The configuration of a row."""
        return _config(self, family, row)


@lru_cache(maxsize=8192)
def _config(table: Entries, family: str, row: int) -> Config:
    pairs = zip(table.names, table.values[row].tolist(), strict=True)
    params = (
        (name, table.words[value] if name in table.worded else value) for name, value in pairs
    )
    return Config(family, tuple(params))


@dataclass(frozen=True, eq=False)
class RecordDigest:
    """The part of a record that choices for other problems read.

    Attributes:
        problem: the problem.
        device: the device.
        evidence: whether its times are measured, replayed or predicted.
        quick: whether it is of a race.
        cold: whether it has cold times.
        baseline: the vendor library's measurement, if it was timed.
        tables: the entries of its digest by family.
        rows: the first row and the number of its rows in each of them.
    """

    problem: Problem
    device: Device
    evidence: Evidence
    quick: bool
    cold: bool
    baseline: Measurement | None
    tables: Mapping[str, Entries]
    rows: Mapping[str, tuple[int, int]]

    def entries(self) -> Iterator[tuple[Config, Resources]]:
        """The configurations with their resources as compiled, the fastest first."""
        for _, family, row in self._ranked:
            table = self.tables[family]
            yield table.config(family, row), Resources(*table.resources[row].tolist())

    def timed(self, objective: Objective) -> Objective:
        """The time that decides for an objective; `hot` if the record has no cold times."""
        return objective.time if self.cold else HOT

    @cached_property
    def _ranked(self) -> list[tuple[float, str, int]]:
        """The hot time, the family and the row of each entry, the fastest first."""
        return sorted(
            (time_us, family, first + place)
            for family, (first, count) in self.rows.items()
            for place, time_us in enumerate(
                self.tables[family].times[first : first + count, 0].tolist()
            )
        )


def samples(records: Sequence[RecordDigest], objective: Objective) -> list[SampleGroup]:
    """The timed entries of records, described: a group for each family of each digest."""
    together: dict[tuple[int, str], list[RecordDigest]] = {}
    for record in records:
        for family in record.rows:
            together.setdefault((id(record.tables), family), []).append(record)
    groups = (_group(family, members, objective) for (_, family), members in together.items())
    return [group for group in groups if len(group.logs)]


def _group(family: str, records: Sequence[RecordDigest], objective: Objective) -> SampleGroup:
    table = records[0].tables[family]
    spans = [record.rows[family] for record in records]
    rows = np.concatenate([np.arange(first, first + count) for first, count in spans])
    places = np.repeat(np.arange(len(records)), [count for _, count in spans])
    logs = table.logs[rows].astype(float)
    if objective.flushed:
        logs += np.log(table.times[rows, 1] / table.times[rows, 0])
    timed = np.isfinite(logs)
    rows, places, values = rows[timed], places[timed], table.values[rows[timed]]
    numbered = tuple(name for name in table.names if name not in table.worded)
    numbers = [table.names.index(name) for name in numbered]
    worded = tuple(name for name in table.worded if name != "compute")
    codes = values[:, [table.names.index(name) for name in worded]]
    return SampleGroup(
        family,
        [(record.problem, record.device) for record in records],
        places,
        table.described[rows].astype(float),
        logs[timed],
        Parameters(values[:, numbers].astype(float), numbered, codes, worded, table.words),
    )
