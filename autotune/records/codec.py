"""A record as JSON, both ways. Reading is strict: a whole record or an error."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from msgspec import UNSET, UnsetType

from autotune.device import Device
from autotune.families.config import Config, FamilyValue, Value
from autotune.families.plan import Resources
from autotune.files import checksum
from autotune.files.decoding import convert, parse, require_schema, shown
from autotune.files.domains import Name, QualifiedName, Score, Share, Text
from autotune.problem import Problem
from autotune.problem.call import KernelCall
from autotune.problem.fields import USUAL
from autotune.records import plausibility
from autotune.records.kernel_record import Geometry, KernelEntry, KernelLaunch, KernelRecord
from autotune.records.kernel_source import KernelSource
from autotune.records.ordered import OrderedRecord
from autotune.records.record import (
    Entry,
    FamilyRecord,
    Provenance,
    Record,
    TuningRecord,
    evidence_named,
)
from autotune.runners.base import Measurement

SCHEMA = 2
UNSEALED = 1
"""The schema before checksums; it is still read."""


@dataclass(frozen=True)
class _EntryFields:
    """An entry as it is written: the configuration as text and, in a file, by parameter."""

    config: Text
    measurement: Measurement
    resources: Resources
    occupancy: Share
    limiter: Text
    params: Mapping[str, Value] | UnsetType = UNSET

    def entry(self) -> Entry:
        config = Config.parse(self.config)
        if self.params is not UNSET and config.values != self.params:
            raise ValueError(f"params of {config} say {shown(self.params)}")
        return Entry(config, self.measurement, self.resources, self.occupancy, self.limiter)


@dataclass(frozen=True)
class _FamilyEntryFields(_EntryFields):
    """An entry of a GEMM record."""

    params: dict[str, FamilyValue] | UnsetType = UNSET

    def entry(self) -> Entry:
        entry = super().entry()
        for name, value in entry.config.params:
            if isinstance(value, float):
                raise ValueError(f"{name} of {entry.config} must be a whole number or a word")
        return entry


@dataclass(frozen=True)
class _KernelEntryFields(_EntryFields):
    """An entry of a user kernel's record."""

    params: dict[str, Value] | UnsetType = UNSET
    launch: Geometry | None = None
    metrics: dict[Name, float] = field(default_factory=dict)
    score: Score | None = None

    def entry(self) -> Entry:
        entry = super().entry()
        entry.config.check_plain()
        return entry


@dataclass(frozen=True)
class _CallFields:
    name: QualifiedName
    arguments: tuple[Name, ...]
    source: KernelSource | None = None
    verified: Text = ""

    def entry(self, entry: Entry, written: _KernelEntryFields, call: KernelCall) -> KernelEntry:
        made = replace(
            KernelEntry.of(entry), metrics=tuple(written.metrics.items()), score=written.score
        )
        if self.source is None or written.launch is None:
            return made
        if fault := self.source.fault:
            raise ValueError(fault)
        launch = KernelLaunch(self.source, call, written.launch)
        launch.plan(entry.config)  # a form or an argument that does not fit is refused
        return replace(made, launch=launch)


@dataclass(frozen=True)
class _RecordFields:
    """The record of a `problem` as it is written."""

    device: dict[str, Any]
    evidence: Text
    entries: tuple[_FamilyEntryFields, ...]
    provenance: Provenance
    baseline: Measurement | None = None
    problem: Problem | None = None
    family: Name | None = None
    order: Text | None = None

    def record(self) -> Record:
        device, evidence = Device.from_json(self.device), evidence_named(self.evidence)
        shared = device, evidence, _entries(self.entries)
        if self.problem is None:
            raise ValueError("problem is missing")
        made = self.baseline, self.provenance, self.problem
        if self.family is not None and self.order is not None:
            return OrderedRecord(*shared, *made, self.family, self.order)
        if self.family is not None:
            return FamilyRecord(*shared, *made, self.family)
        return Record(*shared, *made)


@dataclass(frozen=True)
class _KernelRecordFields:
    """The record of a user `kernel` as it is written."""

    device: dict[str, Any]
    evidence: Text
    entries: tuple[_KernelEntryFields, ...]
    provenance: Provenance
    baseline: Measurement | None = None
    kernel: _CallFields | None = None

    def record(self) -> KernelRecord:
        assert self.kernel is not None  # as `build` has looked
        call = KernelCall(self.kernel.name, self.kernel.arguments)
        pairs = zip(_entries(self.entries), self.entries, strict=True)
        return KernelRecord(
            Device.from_json(self.device),
            evidence_named(self.evidence),
            tuple(self.kernel.entry(*pair, call) for pair in pairs),
            *(self.baseline, self.provenance, call, self.kernel.verified),
        )


def encode(record: TuningRecord) -> dict[str, object]:
    """The record as JSON data with its checksum; times are in microseconds, sizes in bytes.

    Raises:
        ValueError: if a number is not finite.
    """
    data = _fields(record)
    return {checksum.CHECKSUM: checksum.of(data), **data}


def dumps(record: TuningRecord) -> bytes:
    """The text of a record's file.

    Raises:
        ValueError: if a number is not finite.
    """
    return (json.dumps(encode(record), indent=2, allow_nan=False) + "\n").encode()


def line(record: TuningRecord) -> bytes:
    """The same record as one line, which `loads` reads faster. Parameters stand in the
    configurations' texts alone.

    Raises:
        ValueError: if a number is not finite.
    """
    return checksum.sealed(_fields(record, with_params=False))


def loads(text: bytes) -> TuningRecord:
    """The record in the text of a file or in a line.

    Raises:
        ValueError: if the text is not a whole record, the checksum is wrong, or the schema is
            neither 2 nor 1, which has no checksum.
    """
    return decode(parse(text), text)


def decode(data: object, text: bytes = b"") -> TuningRecord:
    """The record in JSON data.

    Args:
        data: what `encode` returned.
        text: the text it was parsed from, if at hand.

    Raises:
        ValueError: as `loads`.
    """
    fields = require_schema(data, "record", UNSEALED, SCHEMA)
    if fields["schema"] == SCHEMA:
        checksum.check(fields, text)
    return build(fields)


def build(fields: Mapping[str, Any]) -> TuningRecord:
    """The record in the fields of a document, whose schema and checksum are not looked at.

    Raises:
        ValueError: if a field is missing, of another type or impossible.
    """
    kind: type[_RecordFields | _KernelRecordFields] = (
        _RecordFields if fields.get("kernel") is None else _KernelRecordFields
    )
    record = convert(fields, kind, "record").record()
    plausibility.check(record)
    return record


def _fields(record: TuningRecord, *, with_params: bool = True) -> dict[str, object]:
    best = record.best
    return {
        "schema": SCHEMA,
        **_subject(record),
        "evidence": record.evidence,
        "entries": [
            {
                "config": str(entry.config),
                **({"params": entry.config.values} if with_params else {}),
                **_entry_fields(entry, best),
            }
            for entry in record.entries
        ],
        "baseline": record.baseline and record.baseline.fields(),
        "provenance": record.provenance.fields(),
        "device": record.device.to_json(),
    }


def _subject(record: TuningRecord) -> dict[str, object]:
    """The problem, with the family and order if it has them, or the user kernel's call."""
    if isinstance(record, KernelRecord):
        return {"kernel": _kernel_fields(record)}
    if isinstance(record, Record):
        fields = record.problem.fields().items()
        problem = {name: value for name, value in fields if value != USUAL.get(name)}
        family = {"family": record.family} if isinstance(record, FamilyRecord) else {}
        order = {"order": record.order} if isinstance(record, OrderedRecord) else {}
        return {"problem": problem, **family, **order}
    raise TypeError(f"{type(record).__name__} has no form on disk")


def _kernel_fields(record: KernelRecord) -> dict[str, object]:
    """The call, and the source of the best configuration if that stands alone."""
    launch = record.best.launch
    return {
        "name": record.call.name,
        "arguments": list(record.call.arguments),
        **({} if launch is None or launch.source.fault else {"source": asdict(launch.source)}),
        **({"verified": record.verified} if record.verified else {}),
    }


def _entry_fields(entry: Entry, best: Entry) -> dict[str, object]:
    return {
        "measurement": entry.measurement.fields(),
        "resources": asdict(entry.resources),
        "occupancy": entry.occupancy,
        "limiter": entry.limiter,
        **_launch_fields(entry, best),
    }


def _launch_fields(entry: Entry, best: Entry) -> dict[str, object]:
    """The geometry of a user kernel's entry, which has the same source as the best, its metrics and
    its score."""
    if not isinstance(entry, KernelEntry) or not isinstance(best, KernelEntry):
        return {}
    own: dict[str, object] = {"metrics": dict(entry.metrics)} if entry.metrics else {}
    own |= {} if entry.score is None else {"score": entry.score}
    if entry.launch is None or best.launch is None or entry.launch.source != best.launch.source:
        return own
    return {"launch": asdict(entry.launch.geometry), **own}


def _entries(written: Sequence[_EntryFields]) -> tuple[Entry, ...]:
    return tuple(_entry(entry, place) for place, entry in enumerate(written))


def _entry(written: _EntryFields, place: int) -> Entry:
    try:
        return written.entry()
    except ValueError as error:
        raise ValueError(f"entries[{place}]: {error}") from error
