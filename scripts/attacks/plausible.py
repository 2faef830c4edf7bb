"""Finds impossible values in the content of a file, without the package's own checks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from autotune.device import Device
from autotune.families.plan import Resources
from autotune.measure.measurement import Measurement
from autotune.measure.recording import Recording
from autotune.records import TuningRecord
from autotune.records.ranges import Range
from autotune.tuning.trials import Trial

_MAY_BE_ZERO = ("reserved_shared_per_block", "l2_bytes", "memory_clock")


def impossible(value: object) -> list[str]:
    """The impossible parts of a value that a reader returned; empty if all may be true."""
    return [*_faults(value)]


def _faults(value: object) -> Iterator[str]:
    if isinstance(value, TuningRecord):
        yield from _record(value)
    elif isinstance(value, Recording):
        yield from _device(value.device)
        for row in value.rows:
            yield from _faults(row.outcome)
            yield from _resources(row.resources)
    elif isinstance(value, Trial):
        yield from _faults(value.outcome)
        yield from _resources(value.resources) if value.resources else ()
        yield from _share("occupancy", value.occupancy)
    elif isinstance(value, Measurement):
        yield from _measurement(value)
    elif isinstance(value, Range):
        yield from _device(value.device)
        yield from _number("loss", value.loss, least=0)
    elif isinstance(value, Device):
        yield from _device(value)


def _record(record: TuningRecord) -> Iterator[str]:
    yield from _device(record.device)
    yield from _faults(record.baseline) if record.baseline else ()
    if not record.entries:
        yield "no entries"
    for entry in record.entries:
        yield from _measurement(entry.measurement)
        yield from _resources(entry.resources)
        yield from _share("occupancy", entry.occupancy)
    made = record.provenance
    for name, value in (("seed", made.seed), ("trials", made.trials), ("seconds", made.seconds)):
        yield from _number(name, value, least=0)


def _measurement(timed: Measurement) -> Iterator[str]:
    times = (("time_us", timed.time_us), ("cold_us", timed.cold_us))
    for name, value in times:
        if value is not None:
            yield from _number(name, value, least=0)
            if value == 0:
                yield f"{name} is 0"
    errors = ("spread_us", "cold_spread_us", "error", "tolerance", "relative_error", "samples")
    for name in errors:
        value = getattr(timed, name)
        if value is not None:
            yield from _number(name, value, least=0)


def _resources(resources: Resources) -> Iterator[str]:
    yield from _number("threads", resources.threads, least=1, most=1024)
    yield from _number("registers", resources.registers, least=0, most=255)
    yield from _number("shared", resources.shared, least=0, most=2**20)
    yield from _number("local", resources.local, least=0, most=2**20)
    yield from _number("barriers", resources.barriers, least=0, most=16)


def _device(device: Device) -> Iterator[str]:
    if not device.name or len(device.name) > 1000:
        yield f"name of {len(device.name)} characters"
    if device.warp_size != 32:
        yield f"warp_size is {device.warp_size}"
    for name, value in vars(device).items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield from _number(name, value, least=0 if name in _MAY_BE_ZERO else 1, most=1e18)


def _share(name: str, value: float | None) -> Iterable[str]:
    return () if value is None else _number(name, value, least=0, most=1)


def _number(name: str, value: float, *, least: float, most: float = math.inf) -> Iterable[str]:
    sound = type(value) in (int, float) and math.isfinite(value) and least <= value <= most
    return () if sound else (f"{name} is {str(value)[:40]}",)
