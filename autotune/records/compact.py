"""Bundles of schema 1, as earlier versions exported them: one JSON object with shared tables.

Devices, the names of a configuration's parameters (`forms`), limiters and origins stand once, in
tables; records refer to them by position. A measurement is a list of its fields' values, without
trailing defaults. Reading fills the tables in again, so that `codec` decodes the records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.files import checksum
from autotune.files.decoding import convert, parse, require_schema, shown
from autotune.files.domains import Text
from autotune.measure.measurement import Measurement
from autotune.problem import Problem
from autotune.records import codec
from autotune.records.ranges import Range
from autotune.records.record import Provenance, Record

SCHEMA = 1
T = TypeVar("T")

EntryRow = tuple[int, Text, list[Any], list[Any], float, int]
"""Position of the form, values, measurement, resources, occupancy, position of the limiter."""


@dataclass(frozen=True)
class _RecordRow:
    device: int
    problem: Text
    made: list[Any]
    entries: list[EntryRow]
    evidence: str = "measured"
    baseline: list[Any] | None = None


@dataclass(frozen=True)
class _Tables:
    devices: list[dict[str, Any]]
    forms: list[list[Text]]
    limiters: list[Text]
    origins: list[list[Text]]
    records: list[_RecordRow]
    ranges: list[dict[str, Any]]


def loads(text: bytes) -> tuple[list[Record], list[Range]]:
    """The records and ranges of a document.

    Raises:
        ValueError: if it is anything but a document of this schema with a right checksum.
    """
    document = require_schema(parse(text), "bundle", SCHEMA)
    checksum.check(document, text)
    tables = convert(document, _Tables, "bundle")
    records = [_record(row, position, tables) for position, row in enumerate(tables.records)]
    devices = (_at(tables.devices, row.get("device"), "device") for row in tables.ranges)
    rows = zip(tables.ranges, devices, strict=True)
    return records, [Range.from_json({**row, "device": device}) for row, device in rows]


def _record(row: _RecordRow, position: int, tables: _Tables) -> Record:
    origin, *rest = row.made or [None]
    try:
        record = codec.build(
            {
                "device": _at(tables.devices, row.device, "device"),
                "problem": Problem.parse(row.problem).fields(),
                "evidence": row.evidence,
                "entries": [_entry(entry, tables) for entry in row.entries],
                "baseline": None if row.baseline is None else _named(Measurement, row.baseline),
                "provenance": _named(Provenance, [*_at(tables.origins, origin, "origin"), *rest]),
            }
        )
    except ValueError as error:
        raise ValueError(f"records[{position}]: {error}") from error
    assert isinstance(record, Record)  # it has a problem
    return record


def _entry(row: EntryRow, tables: _Tables) -> dict[str, Any]:
    form, text, measurement, resources, occupancy, limiter = row
    family, *names = _at(tables.forms, form, "form") or [""]
    values = text.split(",") if text else []
    if len(values) != len(names):
        raise ValueError(f"{family} has {len(names)} parameters, values are {shown(text)}")
    pairs = ",".join(f"{name}={value}" for name, value in zip(names, values, strict=True))
    config = Config.parse(f"{family}:{pairs}" if pairs else family)
    if [*config.values] != names:
        raise ValueError(f"form is {shown([family, *names])}; not a family with its parameters")
    return {
        "config": str(config),
        "params": config.values,
        "measurement": _named(Measurement, measurement),
        "resources": _named(Resources, resources),
        "occupancy": occupancy,
        "limiter": _at(tables.limiters, limiter, "limiter"),
    }


def _named(kind: type, values: Sequence[Any]) -> dict[str, Any]:
    """The values by the names of a dataclass's first fields."""
    names = [field.name for field in fields(kind)]
    if len(values) > len(names):
        raise ValueError(f"{kind.__name__} is {shown(values)}; it has {len(names)} fields")
    return dict(zip(names, values, strict=False))


def _at(table: Sequence[T], position: object, name: str) -> T:
    if type(position) is not int or not 0 <= position < len(table):
        raise ValueError(f"{name} is {shown(position)} of {len(table)}")
    return table[position]
