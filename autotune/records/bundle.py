"""Many records and ranges as one compact JSON document.

    {"checksum": "…", "devices": [{…}], "forms": [["simt", "bm", …]],
     "limiters": ["registers", …], "origins": [["13.0", "NVRTC 13.0", …]],
     "ranges": [{"device": 0, …}],
     "records": [{"device": 0, "entries": [[0, "128,256,…", […], […], 0.25, 0], …],
                  "made": [0, …], "problem": "64x64x64:f32:nn"}, …],
     "schema": 1}

What many records share stands once and is referred to by its place: devices, the forms of
configurations (a family with its parameters' names), limiters, and what records were made with.
An entry is the place of its form, the values of the parameters, what was measured, resources,
occupancy and limiter; their values stand in the order of the fields of `Measurement` and
`Resources`, and those of `made` in that of `Provenance`. Nothing is rounded, unless the records
were (see `rounding`): what was bundled is what is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, astuple, dataclass, fields
from functools import lru_cache
from math import isfinite
from typing import Any, Final, Generic, TypeVar

from autotune.device import Device
from autotune.families.config import Config, Value
from autotune.families.plan import Resources
from autotune.problem import Problem
from autotune.records import checksum, codec
from autotune.records.ranges import Range
from autotune.records.record import Entry, Provenance, Record
from autotune.runners.base import Measurement

SCHEMA = 1
# So many fields of a provenance, its first, are those of many records.
SHARED: Final = 4

T = TypeVar("T")


@dataclass(frozen=True)
class Bundle:
    """What a document holds, in its order."""

    records: tuple[Record, ...]
    ranges: tuple[Range, ...] = ()


def dumps(records: Iterable[Record], ranges: Iterable[Range] = ()) -> bytes:
    """The document of records and ranges; the same ones in the same order give the same bytes.

    Raises:
        ValueError: if a number is not finite.
    """
    tables = _Tables()
    data: dict[str, object] = {
        "schema": SCHEMA,
        "records": [_encode(record, tables) for record in records],
        "ranges": [{"device": tables.devices.place(one.device), **one.to_json()} for one in ranges],
    }
    data |= {
        "devices": [device.to_json() for device in tables.devices.values],
        "forms": tables.forms.values,
        "limiters": tables.limiters.values,
        "origins": tables.origins.values,
    }
    return checksum.sealed(data) + b"\n"


def loads(text: bytes) -> Bundle:
    """Reads a document back.

    Raises:
        ValueError: if it is anything else than a document of this schema whose checksum is right.
    """
    try:
        return _decode(json.loads(text), text)
    except (ArithmeticError, RecursionError) as error:  # 400-digit numbers, 10,000 brackets
        raise ValueError(str(error)) from error


class _Places(Generic[T]):
    """Values in the order in which they first came, each once."""

    def __init__(self) -> None:
        self._places: dict[T, int] = {}

    def place(self, value: T) -> int:
        return self._places.setdefault(value, len(self._places))

    @property
    def values(self) -> list[T]:
        return list(self._places)


class _Tables:
    """What the records of a document share."""

    def __init__(self) -> None:
        self.devices = _Places[Device]()
        self.forms = _Places[tuple[str, ...]]()
        self.limiters = _Places[str]()
        self.origins = _Places[tuple[object, ...]]()


def _encode(record: Record, tables: _Tables) -> dict[str, object]:
    made = astuple(record.provenance)
    data: dict[str, object] = {
        "device": tables.devices.place(record.device),
        "problem": str(record.problem),
        "made": [tables.origins.place(made[:SHARED]), *made[SHARED:]],
        "entries": [_encode_entry(entry, tables) for entry in record.entries],
    }
    if record.evidence != "measured":
        data["evidence"] = record.evidence
    if record.baseline is not None:
        data["baseline"] = _listed(record.baseline)
    return data


def _encode_entry(entry: Entry, tables: _Tables) -> list[object]:
    params = entry.config.params
    return [
        tables.forms.place((entry.config.family, *(name for name, _ in params))),
        ",".join(str(value) for _, value in params),
        _listed(entry.measurement),
        _listed(entry.resources),
        entry.occupancy,
        tables.limiters.place(entry.limiter),
    ]


def _decode(data: object, text: bytes) -> Bundle:
    given = codec.as_object(data, "bundle")
    if given.get("schema") != SCHEMA:
        raise ValueError(f"schema is {given.get('schema')!r}, this version reads {SCHEMA}")
    checksum.check(given, text)
    shared = _Shared(
        devices=[
            Device.from_json(codec.as_object(one, "device")) for one in _list(given, "devices")
        ],
        forms=[_form(one) for one in _list(given, "forms")],
        limiters=_words(given.get("limiters"), "limiters"),
        origins=[_words(one, "origin") for one in _list(given, "origins")],
    )
    records = (codec.as_object(one, "record") for one in _list(given, "records"))
    ranges = (codec.as_object(one, "range") for one in _list(given, "ranges"))
    return Bundle(
        tuple(_record(one, shared) for one in records),
        tuple(
            Range.from_json(one, _at(shared.devices, one.get("device"), "device")) for one in ranges
        ),
    )


@dataclass(frozen=True)
class _Shared:
    """What the records of a document that is read refer to."""

    devices: Sequence[Device]
    forms: Sequence[tuple[str, tuple[str, ...]]]
    limiters: Sequence[str]
    origins: Sequence[Sequence[str]]


def _record(data: dict[str, object], shared: _Shared) -> Record:
    problem, baseline = data.get("problem"), data.get("baseline")
    if not isinstance(problem, str):
        raise ValueError(f"problem is {problem!r}")
    origin, *rest = _list(data, "made") or [None]
    return Record(
        device=_at(shared.devices, data.get("device"), "device"),
        evidence=codec.evidence(data.get("evidence", "measured")),
        entries=tuple(_entry(one, shared) for one in _list(data, "entries")),
        baseline=None if baseline is None else _measurement(baseline),
        provenance=_of_list(Provenance, [*_at(shared.origins, origin, "origin"), *rest]),
        problem=Problem.parse(problem),
    )


def _entry(data: object, shared: _Shared) -> Entry:
    if not isinstance(data, list) or len(data) != 6:
        raise ValueError("entry is not a list of six")
    form, text, measurement, resources, occupancy, limiter = data
    family, names = _at(shared.forms, form, "form")
    values = [_value(one) for one in text.split(",")] if isinstance(text, str) and text else []
    if len(values) != len(names):
        raise ValueError(f"{family} has {len(names)} parameters, values are {text!r}")
    return Entry(
        config=Config(family, tuple(zip(names, values, strict=True))),
        measurement=_measurement(measurement),
        resources=_of_list(Resources, resources),
        occupancy=codec.typed("occupancy", occupancy, (float,)),
        limiter=_at(shared.limiters, limiter, "limiter"),
    )


def _form(data: object) -> tuple[str, tuple[str, ...]]:
    """A family and its parameters' names."""
    family, *names = _words(data, "form") or [""]
    config = Config(family, tuple((name, 0) for name in names))
    if Config.parse(str(config)) != config:
        raise ValueError(f"form is {data!r}; not a family with its parameters")
    return family, tuple(names)


@lru_cache(4096)
def _value(text: str) -> Value:
    """As `Config.parse` reads the value of a parameter."""
    ((_, value),) = Config.parse(f"config:value={text}").params
    return value


def _measurement(data: object) -> Measurement:
    return codec.checked(_of_list(Measurement, data))


def _listed(value: Measurement | Resources) -> list[object]:
    """The fields in their order, without those at the end that have their default."""
    listed = [getattr(value, field.name) for field in fields(value)]
    defaults = [field.default for field in fields(value)]
    while listed[-1] == defaults[len(listed) - 1]:
        del listed[-1]
    return listed


def _of_list(cls: type[T], data: object) -> T:
    """An instance of a flat dataclass from the values of its fields, or of the first of them."""
    # Nearly all lists pass this one look, and a bundle has tens of thousands of values.
    kind: type = cls
    if not isinstance(data, list) or not _fits(kind, tuple(map(type, data))):
        data = _typed(cls, data)
    values = [value for value in data if value.__class__ is float]
    if not all(map(isfinite, values)):
        raise ValueError(f"{cls.__name__} is {data!r}")
    return cls(*data)


@lru_cache(4096)
def _fits(cls: type, types: tuple[type, ...]) -> bool:
    """Whether values of these types can be the fields in their order."""
    kinds = [*codec.kinds(cls).values()]
    needed = sum(field.default is MISSING for field in fields(cls))
    fit = all(one in kind for one, kind in zip(types, kinds, strict=False))
    return fit and needed <= len(types) <= len(kinds)


def _typed(cls: type, data: object) -> list[Any]:
    """The values, whole numbers as floats where floats are due; ValueError if they do not fit."""
    kinds = codec.kinds(cls)
    if not isinstance(data, list) or len(data) > len(kinds):
        raise ValueError(f"{cls.__name__} is {data!r}")
    pairs = zip(kinds.items(), data, strict=False)
    values = [codec.typed(name, value, kind) for (name, kind), value in pairs]
    if not _fits(cls, tuple(map(type, values))):
        raise ValueError(f"{cls.__name__} is {data!r}; values are missing")
    return values


def _list(data: dict[str, object], name: str) -> list[Any]:
    found = data.get(name)
    if not isinstance(found, list):
        raise ValueError(f"{name} is not a list")
    return found


def _words(data: object, what: str) -> list[str]:
    if not isinstance(data, list) or not all(isinstance(one, str) for one in data):
        raise ValueError(f"{what} is {data!r}; not a list of texts")
    return data


def _at(values: Sequence[T], place: object, what: str) -> T:
    if type(place) is not int or not 0 <= place < len(values):
        raise ValueError(f"{what} is {place!r} of {len(values)}")
    return values[place]
