"""Digests of records as files, small and quick to read:

    choices/nvidia-h200/….digest            of the records of a store or of a site's bundle
    autotune/data/shipped/….digest          of a shipped bundle, made by `scripts/digests.py`

It is msgpack, compressed by xz. Its key names what it was made from.
"""

from __future__ import annotations

import lzma
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, fields
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from autotune.candidates.legality import current
from autotune.candidates.model_error import UNITS, Sample, groups_of
from autotune.device import Device
from autotune.families import parameters, registry
from autotune.families.config import Value
from autotune.families.plan import Resources
from autotune.files import limits
from autotune.files.compressed import expanded
from autotune.lookup.digest import Entries, RecordDigest
from autotune.problem import Problem
from autotune.records import Entry, Record
from autotune.runners.base import Evidence, Measurement
from autotune.runners.objective import TIMES

FORMAT = 2


def _word(value: object) -> str:
    """An epilogue as its word."""
    if isinstance(value, str):
        return str(value)
    raise TypeError(f"a digest holds no {type(value).__name__}")


class _Table(msgspec.Struct):
    """All entries of one family as little-endian arrays, a row each.

    `names` are the parameters, `worded` those that are words. `values` (int64) has the parameters,
    words as places in the digest's list; `resources` (int32) the fields of `Resources`; `times`
    (float32) microseconds, hot and cold; `described` (float32) the features; `logs` (float16) those
    of measured over predicted hot times. What is unknown is NaN.
    """

    names: list[str]
    worded: list[str]
    values: bytes
    resources: bytes
    times: bytes
    described: bytes
    logs: bytes


class _DigestedRecord(msgspec.Struct):
    """A record's digest as it is written; `device` is a place in the digest's list, `rows` the
    first row and the number of rows in each family's table."""

    problem: Problem
    device: int
    evidence: Evidence
    quick: bool
    cold: bool
    baseline: Measurement | None
    rows: dict[str, tuple[int, int]]


class _DigestedRecords(msgspec.Struct):
    """A digest as it is written; `key` is a hash of what it was made from."""

    key: str
    devices: list[dict[str, Any]]
    words: list[str]
    tables: dict[str, _Table]
    records: list[_DigestedRecord]


def dumps(records: Iterable[Record], key: str) -> bytes:
    """The file of a digest of records.

    Entries of unknown families and of other parameters than the family has today are left out;
    those with other values teach nothing.
    """
    devices: dict[Device, int] = {}
    words: dict[str, int] = {}
    rows: dict[str, list[_Row]] = {family: [] for family in registry.FAMILIES}
    names = {name: parameters.names(kind.params) for name, kind in registry.FAMILIES.items()}
    written = []
    for record in records:
        spans = {}
        for family in dict.fromkeys(entry.config.family for entry in record.entries):
            entries = [entry for entry in record.entries if _fits(entry, family, names)]
            if entries:
                spans[family] = len(rows[family]), len(entries)
                rows[family] += _rows(entries, record, words)
        written.append(
            _DigestedRecord(
                problem=record.problem,
                device=devices.setdefault(record.device, len(devices)),
                evidence=record.evidence,
                quick=record.quick,
                cold=record.best_cold is not None,
                baseline=record.baseline and _vendor(record.baseline),
                rows=spans,
            )
        )
    tables = {family: _table(names[family], members) for family, members in rows.items() if members}
    listed = [device.to_json() for device in devices]
    content = _DigestedRecords(key, listed, [*words], tables, written)
    return lzma.compress(msgspec.msgpack.encode(content, enc_hook=_word))


def loads(data: bytes) -> tuple[str, list[RecordDigest]]:
    """The key of a digest's file, and its records.

    Raises:
        ValueError: if it is none.
    """
    content = expanded(data, limits.BUNDLE_TEXT)
    try:
        written = msgspec.msgpack.decode(content, type=_DigestedRecords)
    except msgspec.MsgspecError as error:
        raise ValueError(f"it is no digest: {error}") from error
    devices = [Device.from_json(device) for device in written.devices]
    tables = {
        family: _entries(table, tuple(written.words)) for family, table in written.tables.items()
    }
    return written.key, [
        RecordDigest(
            *(row.problem, devices[row.device], row.evidence, row.quick, row.cold),
            *(row.baseline, tables, row.rows),
        )
        for row in written.records
    ]


def _vendor(baseline: Measurement) -> Measurement:
    """The parts of a baseline that choices read."""
    cold_us, error = baseline.cold_us, baseline.relative_error
    return Measurement(baseline.time_us, cold_us=cold_us, relative_error=error)


def _fits(entry: Entry, family: str, names: Mapping[str, Sequence[str]]) -> bool:
    own = tuple(name for name, _ in entry.config.params)
    return entry.config.family == family and own == names.get(family)


class _Row(NamedTuple):
    """An entry: its parameters with the names of those that are words, and the other arrays."""

    values: list[int]
    worded: list[str]
    resources: list[int]
    times: list[float]
    described: NDArray[np.float64]
    log: float


def _rows(entries: Sequence[Entry], record: Record, words: dict[str, int]) -> list[_Row]:
    def number(value: Value) -> int:
        return words.setdefault(value, len(words)) if isinstance(value, str) else int(value)

    described, logs = _described(entries, record)
    return [
        _Row(
            [number(value) for _, value in entry.config.params],
            [name for name, value in entry.config.params if isinstance(value, str)],
            [*astuple(entry.resources)],
            [
                estimate.time_us if (estimate := entry.measurement.estimate(which)) else math.nan
                for which in TIMES
            ],
            *(described[place], float(logs[place])),
        )
        for place, entry in enumerate(entries)
    ]


def _described(
    entries: Sequence[Entry], record: Record
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Features and logs of each entry; NaN for those that teach nothing."""
    configs = [entry.config for entry in entries]
    usable = {*current(configs[0].family, configs, record.problem, record.device)}
    places = [place for place, config in enumerate(configs) if config in usable]
    learnt = groups_of(
        [
            Sample(
                *(configs[place], entries[place].resources, entries[place].measurement.time_us),
                *(record.problem, record.device),
            )
            for place in places
        ]
    )
    described, logs = np.full((len(entries), len(UNITS)), np.nan), np.full(len(entries), np.nan)
    for group in learnt:  # one, or none where an entry breaks the rules
        described[places], logs[places] = group.features, group.logs
    logs[~np.isfinite(described).all(axis=1)] = np.nan
    return described, logs


def _table(names: Sequence[str], rows: Sequence[_Row]) -> _Table:
    worded = dict.fromkeys(name for row in rows for name in row.worded)

    def column(name: str, kind: str) -> bytes:
        return np.array([getattr(row, name) for row in rows], kind).tobytes()

    return _Table(
        names=[*names],
        worded=[*worded],
        values=column("values", "<i8"),
        resources=column("resources", "<i4"),
        times=column("times", "<f4"),
        described=column("described", "<f4"),
        logs=column("log", "<f2"),
    )


def _entries(table: _Table, words: Sequence[str]) -> Entries:
    def array(data: bytes, kind: str, columns: int) -> NDArray[Any]:
        return np.frombuffer(data, kind).reshape(-1, columns)

    return Entries(
        names=tuple(table.names),
        worded=tuple(table.worded),
        words=words,
        values=array(table.values, "<i8", len(table.names)),
        resources=array(table.resources, "<i4", len(fields(Resources))),
        times=array(table.times, "<f4", len(TIMES)),
        described=array(table.described, "<f4", len(UNITS)),
        logs=array(table.logs, "<f2", 1)[:, 0],
    )
