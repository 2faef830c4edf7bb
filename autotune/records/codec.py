"""A record as JSON, both ways. Reading is strict: a whole record or an error.

A record that states what no measurement has is refused wherever it is read. No kernel takes less
time than a quarter of

    hot    max(2 M N K / P, (bytes - L2) / B)
    cold   max(2 M N K / P, (bytes - L2) / B, (bytes of A, B and what is added) / B)

P is the device's peak in the problem's precision at its boost clock, B its memory bandwidth. Each
run moves all of its bytes but those that L2 can hold from one run to the next; with a flushed L2 it
reads all inputs. The quarter leaves room for what a device's description does not state: a clock
beyond the boost clock, or a library that emulates fp32 on tensor cores. And no run takes less than
`LEAST_US`: it loads at least once, and an L2 answers after 200 clock cycles or more.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from msgspec import UNSET, UnsetType

from autotune.device import Device
from autotune.errors import one_of
from autotune.families.config import Config, FamilyValue, Value
from autotune.families.plan import Resources
from autotune.files import checksum
from autotune.files.decoding import (
    Code,
    Count,
    Name,
    QualifiedName,
    Score,
    Share,
    Text,
    convert,
    parse,
    require_schema,
    shown,
)
from autotune.measure.measurement import Measurement
from autotune.problem import Problem
from autotune.problem.call import KernelCall
from autotune.problem.fields import USUAL
from autotune.records.kernel_record import (
    Geometry,
    KernelEntry,
    KernelLaunch,
    KernelRecord,
    KernelSource,
    KernelStep,
    OwnValue,
)
from autotune.records.record import (
    BEST_FIRST,
    Entry,
    FamilyRecord,
    Provenance,
    Record,
    TuningRecord,
)
from autotune.roofline import least_hot_seconds

SCHEMA = 2


@dataclass(frozen=True)
class _EntryFields:
    """An entry as it is written: the configuration as text and, in a file, by parameter."""

    config: Text
    measurement: Measurement
    resources: Resources
    occupancy: Share
    limiter: Text
    params: Mapping[str, Value] | UnsetType = UNSET
    code: Code = ""

    def entry(self) -> Entry:
        config = Config.parse(self.config)
        if self.params is not UNSET and config.values != self.params:
            raise ValueError(f"params of {config} say {shown(self.params)}")
        return Entry(
            config, self.measurement, self.resources, self.occupancy, self.limiter, self.code
        )


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
    source: KernelSource | None = None
    further: tuple[Geometry, ...] = ()
    own: tuple[tuple[Count, OwnValue], ...] = ()
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
    constants: tuple[Name, ...] = ()
    source: KernelSource | None = None
    steps: tuple[KernelStep, ...] = ()
    verified: Text = ""

    def entry(self, entry: Entry, written: _KernelEntryFields, call: KernelCall) -> KernelEntry:
        made = replace(
            KernelEntry.of(entry), metrics=tuple(written.metrics.items()), score=written.score
        )
        if (source := written.source or self.source) is None or written.launch is None:
            return made
        if fault := source.fault:
            raise ValueError(fault)
        geometries = written.launch, *written.further
        launch = KernelLaunch(source, call, geometries, self.steps, written.own)
        launch.plan(entry.config)  # a form or an argument that does not fit is refused
        return replace(made, launch=launch)


@dataclass(frozen=True)
class _RecordFields:
    """The record of a `problem` as it is written."""

    device: dict[str, Any]
    evidence: Text
    entries: tuple[_FamilyEntryFields, ...]
    provenance: Provenance
    problem: Problem
    baseline: Measurement | None = None
    family: Name | None = None
    order: Text | None = None

    def record(self) -> Record:
        device = Device.from_json(self.device)
        evidence = one_of("evidence", self.evidence, BEST_FIRST)
        run = _entries(self.entries), self.baseline, self.provenance
        if self.family is None:
            return Record(device, evidence, *run, self.problem)
        return FamilyRecord(device, evidence, *run, self.problem, self.family, self.order)


@dataclass(frozen=True)
class _KernelRecordFields:
    """The record of a user `kernel` as it is written."""

    device: dict[str, Any]
    evidence: Text
    entries: tuple[_KernelEntryFields, ...]
    provenance: Provenance
    kernel: _CallFields
    baseline: Measurement | None = None

    def record(self) -> KernelRecord:
        call = KernelCall(self.kernel.name, self.kernel.arguments, self.kernel.constants)
        pairs = zip(_entries(self.entries), self.entries, strict=True)
        return KernelRecord(
            Device.from_json(self.device),
            one_of("evidence", self.evidence, BEST_FIRST),
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
    """The record as one line, which `loads` reads faster. Parameters stand in the configurations'
    texts alone.

    Raises:
        ValueError: if a number is not finite.
    """
    return checksum.sealed(_fields(record, with_params=False))


def loads(text: bytes) -> TuningRecord:
    """The record in the text of a file or in a line.

    Raises:
        ValueError: if the text is not a whole record, is of another schema, or its checksum is
            wrong, or a field is missing, of another type or impossible.
    """
    fields = require_schema(parse(text), "record", SCHEMA)
    checksum.check(fields, text)
    kind: type[_RecordFields | _KernelRecordFields] = (
        _RecordFields if fields.get("kernel") is None else _KernelRecordFields
    )
    record = convert(fields, kind, "record").record()
    check_plausible(record)
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
                "measurement": entry.measurement.fields(),
                "resources": asdict(entry.resources),
                "occupancy": entry.occupancy,
                "limiter": entry.limiter,
                **({"code": entry.code} if entry.code else {}),
                **_launch_fields(entry, best),
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
        if not isinstance(record, FamilyRecord):
            return {"problem": problem}
        order = {"order": record.order} if record.order else {}
        return {"problem": problem, "family": record.family, **order}
    raise TypeError(f"{type(record).__name__} has no form on disk")


def _kernel_fields(record: KernelRecord) -> dict[str, object]:
    """The call, and the source of the best configuration if that stands alone."""
    launch = record.best.launch
    return {
        "name": record.call.name,
        "arguments": list(record.call.arguments),
        **({"constants": list(record.call.constants)} if record.call.constants else {}),
        **({} if launch is None or launch.source.fault else {"source": launch.source.fields}),
        **({"steps": [*map(asdict, launch.steps)]} if launch and launch.steps else {}),
        **({"verified": record.verified} if record.verified else {}),
    }


def _launch_fields(entry: Entry, best: Entry) -> dict[str, object]:
    """The geometries of a user kernel's entry, its source where the best has another, its values of
    arguments, its metrics and its score."""
    if not isinstance(entry, KernelEntry) or not isinstance(best, KernelEntry):
        return {}
    own: dict[str, object] = {"metrics": dict(entry.metrics)} if entry.metrics else {}
    own |= {} if entry.score is None else {"score": entry.score}
    launch, leading = entry.launch, best.launch
    if launch is None or leading is None or launch.steps != leading.steps:
        return own
    if launch.source != leading.source:
        if launch.source.fault:
            return own
        own = {"source": launch.source.fields, **own}
    first, *further = map(asdict, launch.geometries)
    own |= {"further": further} if further else {}
    own |= {"own": launch.own} if launch.own else {}
    return {"launch": first, **own}


def _entries(written: Sequence[_EntryFields]) -> tuple[Entry, ...]:
    return tuple(_entry(entry, place) for place, entry in enumerate(written))


def _entry(written: _EntryFields, place: int) -> Entry:
    try:
        return written.entry()
    except ValueError as error:
        raise ValueError(f"entries[{place}]: {error}") from error


ROOFLINE_SHARE = 0.25
"""The share of the roofline's bound that every time exceeds."""

LEAST_US = 0.05
"""Microseconds that every run takes: 200 cycles at 3 GHz take 0.067."""


def check_plausible(record: TuningRecord) -> None:
    """Checks that a record may be true.

    Raises:
        ValueError: if it states a time that no kernel reaches, an error beyond its tolerance, or
            one configuration twice.
    """
    configs = [entry.config for entry in record.entries]
    for place, config in enumerate(configs):
        if config in configs[:place]:
            raise ValueError(f"entries[{place}]: {config} is also entry {configs.index(config)}")
    hot_us, cold_us = _least(record)
    measurements = {
        f"entries[{place}]": each.measurement for place, each in enumerate(record.entries)
    }
    if record.baseline is not None:
        measurements["baseline"] = record.baseline
    for name, measured in measurements.items():
        for figure, time_us, least_us in (
            ("time_us", measured.time_us, hot_us),
            ("cold_us", measured.cold_us, cold_us),
        ):
            if time_us is not None and time_us < least_us:
                raise ValueError(
                    f"{name}: {figure} is {time_us:.3g}, and {record.title} takes at least "
                    f"{least_us:.3g} us on {record.device.name}; it was not measured there"
                )
        error, tolerance = measured.error, measured.tolerance
        if error is not None and tolerance is not None and error > tolerance:
            raise ValueError(f"{name}: error is {error:.3g}, beyond the tolerance {tolerance:.3g}")


def _least(record: TuningRecord) -> tuple[float, float]:
    """The least hot and cold microseconds; those of a user kernel are of any launch."""
    if not isinstance(record, Record):
        return LEAST_US, LEAST_US
    problem, device = record.problem, record.device
    hot = least_hot_seconds(problem, device)
    written = problem.output_bytes * problem.batch * problem.strides[2]
    cold = max(hot, (problem.bytes - written) / device.memory_bandwidth)
    return max(LEAST_US, ROOFLINE_SHARE * 1e6 * hot), max(LEAST_US, ROOFLINE_SHARE * 1e6 * cold)
