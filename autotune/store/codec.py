"""A record as JSON, both ways. Reading is strict: the result is a whole record or an error."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields
from typing import Any, TypeVar, get_args, get_type_hints

from autotune.call import Call
from autotune.config import Config
from autotune.device import Device
from autotune.plan import Resources
from autotune.problem import Problem
from autotune.runner import Evidence, Measurement
from autotune.store.record import BEST_FIRST, Entry, Findings, KernelRecord, Provenance, Record

SCHEMA = 1
# What a record says of its problem only where it is otherwise.
USUAL = {"batch": 1, "epilogue": "none", "output": "same"}

T = TypeVar("T")


def encode(record: Findings) -> dict[str, object]:
    """The record as JSON data; times are in microseconds, sizes in bytes."""
    return {
        "schema": SCHEMA,
        **_subject(record),
        "evidence": record.evidence,
        "entries": [_encode_entry(entry) for entry in record.entries],
        "baseline": record.baseline and asdict(record.baseline),
        "provenance": asdict(record.provenance),
        "device": record.device.to_json(),
    }


def decode(data: object) -> Findings:
    """The record that `encode` made `data` from; keys that it does not write are ignored.

    Raises:
        ValueError: if a value is missing, of another type or impossible, or the schema is not 1.
    """
    given = _object(data, "record")
    if given.get("schema") != SCHEMA:
        raise ValueError(f"schema is {given.get('schema')!r}, this version reads {SCHEMA}")
    entries = given.get("entries")
    if not isinstance(entries, list):
        raise ValueError("entries is not a list")
    baseline = given.get("baseline")
    found = (
        Device.from_json(_object(given.get("device"), "device")),
        _evidence(given.get("evidence")),
        tuple(_decode_entry(entry) for entry in entries),
        None if baseline is None else measurement(baseline),
        _build(Provenance, given.get("provenance")),
    )
    if "kernel" in given:
        return KernelRecord(*found, _call(given["kernel"]))
    return Record(*found, _build(Problem, USUAL | _object(given.get("problem"), "problem")))


def dumps(record: Findings) -> bytes:
    """The text of a record's file.

    Raises:
        ValueError: if a number is not finite.
    """
    return (json.dumps(encode(record), indent=2, allow_nan=False) + "\n").encode()


def loads(text: bytes) -> Findings:
    """Reads the text of a record's file back.

    Raises:
        ValueError: if the text is anything else than a record of this schema.
    """
    try:
        return decode(json.loads(text))
    except (ArithmeticError, RecursionError) as error:  # 400-digit numbers, 10,000 brackets
        raise ValueError(str(error)) from error


def _subject(record: Findings) -> dict[str, object]:
    """What the record is of."""
    if isinstance(record, KernelRecord):
        return {"kernel": {"name": record.call.name, "arguments": list(record.call.arguments)}}
    if isinstance(record, Record):
        given = asdict(record.problem).items()
        return {"problem": {name: value for name, value in given if value != USUAL.get(name)}}
    raise TypeError(f"{type(record).__name__} has no form on disk")


def _call(data: object) -> Call:
    given = _object(data, "kernel")
    arguments = given.get("arguments")
    if not isinstance(arguments, list):
        raise ValueError("arguments is not a list")
    texts = (_typed("argument", argument, str) for argument in arguments)
    return Call(_typed("name", given.get("name"), str), tuple(texts))


def _evidence(value: object) -> Evidence:
    for evidence in BEST_FIRST:
        if value == evidence:
            return evidence
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
    given = _object(data, "entry")
    config = Config.parse(_typed("config", given.get("config"), str))
    if config.values != given.get("params"):
        raise ValueError(f"params of {config} say {given.get('params')!r}")
    return Entry(
        config=config,
        measurement=measurement(given.get("measurement")),
        resources=_build(Resources, given.get("resources")),
        occupancy=_typed("occupancy", given.get("occupancy"), float),
        limiter=_typed("limiter", given.get("limiter"), str),
    )


def measurement(data: object) -> Measurement:
    """A measurement from its fields.

    Raises:
        ValueError: if one is missing, of another type or impossible.
    """
    built = _build(Measurement, data)
    if built.time_us <= 0:
        raise ValueError(f"time_us is {built.time_us}, not a time")
    return built


def _build(cls: type[T], data: object) -> T:
    """An instance of a flat dataclass from an object with a value for each of its fields."""
    given = _object(data, cls.__name__)
    hints = get_type_hints(cls)
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]
    return cls(**{name: _typed(name, given.get(name), hints[name]) for name in names})


def _typed(name: str, value: object, hint: Any) -> Any:
    """`value` if it has the type that the hint (a type or a union of types) asks for."""
    kinds = get_args(hint) or (hint,)
    if type(value) is int and int not in kinds and float in kinds:
        value = float(value)
    if type(value) not in kinds or (isinstance(value, float) and not math.isfinite(value)):
        raise ValueError(f"{name} is {value!r}")
    return value


def _object(data: object, what: str) -> dict[str, object]:
    if not isinstance(data, dict):
        raise ValueError(f"{what} is not an object")
    return data
