"""A record as JSON, both ways. Reading is strict: the result is a whole record or an error."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from functools import lru_cache
from typing import Any, TypeVar, get_args, get_type_hints

from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.problem import Problem
from autotune.problem.call import Call
from autotune.records import checksum
from autotune.records.record import (
    BEST_FIRST,
    Entry,
    KernelRecord,
    Provenance,
    Record,
    TuningRecord,
)
from autotune.runners.base import Evidence, Measurement

SCHEMA = 2
UNSEALED = 1
"""The schema before there were checksums; it is still read."""
# What a record says of its problem only where it is otherwise.
USUAL = {"batch": 1, "epilogue": "none", "output": "same"}

T = TypeVar("T")


def encode(record: TuningRecord) -> dict[str, object]:
    """The record as JSON data with its checksum; times are in microseconds, sizes in bytes.

    Raises:
        ValueError: if a number is not finite.
    """
    data = {
        "schema": SCHEMA,
        **_subject(record),
        "evidence": record.evidence,
        "entries": [_encode_entry(entry) for entry in record.entries],
        "baseline": record.baseline and asdict(record.baseline),
        "provenance": asdict(record.provenance),
        "device": record.device.to_json(),
    }
    return {checksum.CHECKSUM: checksum.of(data), **data}


def decode(data: object) -> TuningRecord:
    """The record that `encode` made `data` from.

    Raises:
        ValueError: if a value is missing, of another type or impossible, the checksum is wrong, or
            the schema is neither 2 nor 1, which has no checksum.
    """
    given = as_object(data, "record")
    if given.get("schema") not in (SCHEMA, UNSEALED):
        schema = given.get("schema")
        raise ValueError(f"schema is {schema!r}, this version reads {UNSEALED} and {SCHEMA}")
    if given["schema"] == SCHEMA:
        checksum.check(given)
    entries = given.get("entries")
    if not isinstance(entries, list):
        raise ValueError("entries is not a list")
    baseline = given.get("baseline")
    found = (
        Device.from_json(as_object(given.get("device"), "device")),
        evidence(given.get("evidence")),
        tuple(_decode_entry(entry) for entry in entries),
        None if baseline is None else measurement(baseline),
        _build(Provenance, given.get("provenance")),
    )
    if "kernel" in given:
        return KernelRecord(*found, _call(given["kernel"]))
    return Record(*found, _build(Problem, USUAL | as_object(given.get("problem"), "problem")))


def dumps(record: TuningRecord) -> bytes:
    """The text of a record's file.

    Raises:
        ValueError: if a number is not finite.
    """
    return (json.dumps(encode(record), indent=2, allow_nan=False) + "\n").encode()


def loads(text: bytes) -> TuningRecord:
    """Reads the text of a record's file back.

    Raises:
        ValueError: if the text is anything else than a record of this schema.
    """
    try:
        return decode(json.loads(text))
    except (ArithmeticError, RecursionError) as error:  # 400-digit numbers, 10,000 brackets
        raise ValueError(str(error)) from error


def _subject(record: TuningRecord) -> dict[str, object]:
    """What the record is of."""
    if isinstance(record, KernelRecord):
        return {"kernel": {"name": record.call.name, "arguments": list(record.call.arguments)}}
    if isinstance(record, Record):
        given = asdict(record.problem).items()
        return {"problem": {name: value for name, value in given if value != USUAL.get(name)}}
    raise TypeError(f"{type(record).__name__} has no form on disk")


def _call(data: object) -> Call:
    given = as_object(data, "kernel")
    arguments = given.get("arguments")
    if not isinstance(arguments, list):
        raise ValueError("arguments is not a list")
    texts = (typed("argument", argument, (str,)) for argument in arguments)
    return Call(typed("name", given.get("name"), (str,)), tuple(texts))


def evidence(value: object) -> Evidence:
    """The kind of evidence of that name.

    Raises:
        ValueError: if there is none.
    """
    for known in BEST_FIRST:
        if value == known:
            return known
    raise ValueError(f"evidence is {value!r}, not one of {', '.join(BEST_FIRST)}")


def _encode_entry(entry: Entry) -> dict[str, object]:
    return {
        "config": str(entry.config),
        "params": entry.config.values,
        "measurement": asdict(entry.measurement),
        "resources": asdict(entry.resources),
        "occupancy": entry.occupancy,
        "limiter": entry.limiter,
    }


def _decode_entry(data: object) -> Entry:
    given = as_object(data, "entry")
    config = Config.parse(typed("config", given.get("config"), (str,)))
    if config.values != given.get("params"):
        raise ValueError(f"params of {config} say {given.get('params')!r}")
    return Entry(
        config=config,
        measurement=measurement(given.get("measurement")),
        resources=_build(Resources, given.get("resources")),
        occupancy=typed("occupancy", given.get("occupancy"), (float,)),
        limiter=typed("limiter", given.get("limiter"), (str,)),
    )


def measurement(data: object) -> Measurement:
    """A measurement from its fields.

    Raises:
        ValueError: if one is missing, of another type or impossible.
    """
    return checked(_build(Measurement, data))


def checked(built: Measurement) -> Measurement:
    """The measurement, if its time is one.

    Raises:
        ValueError: if it is 0 or less.
    """
    if built.time_us <= 0:
        raise ValueError(f"time_us is {built.time_us}, not a time")
    return built


def kinds(cls: type) -> Mapping[str, tuple[type, ...]]:
    """The types that each field of a flat dataclass may have, in the fields' order."""
    return _kinds(cls)


@lru_cache
def _kinds(cls: type) -> Mapping[str, tuple[type, ...]]:
    # Reading the hints takes longer than reading a record.
    hints = get_type_hints(cls)
    names = [field.name for field in fields(cls)]
    return {name: get_args(hints[name]) or (hints[name],) for name in names}


def typed(name: str, value: object, kinds: tuple[type, ...]) -> Any:
    """The value of a field if it has one of the types; a whole number may stand for a float.

    Raises:
        ValueError: if it has another type or is not finite.
    """
    if type(value) is int and int not in kinds and float in kinds:
        value = float(value)
    if type(value) not in kinds or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{name} is {value!r}")
    return value


def as_object(data: object, what: str) -> dict[str, object]:
    """The JSON object.

    Raises:
        ValueError: if it is none.
    """
    if not isinstance(data, dict):
        raise ValueError(f"{what} is not an object")
    return data


def _build(cls: type[T], data: object) -> T:
    """An instance of a flat dataclass from an object with a value for each of its fields."""
    given = as_object(data, cls.__name__)
    values = {name: typed(name, given.get(name), kind) for name, kind in kinds(cls).items()}
    return cls(**values)
