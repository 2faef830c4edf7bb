"""Values that no measurement has: a record that states one is refused wherever it is read.

No kernel takes less time than a quarter of

    hot    max(2 M N K / P, (bytes - L2) / B)
    cold   max(2 M N K / P, (bytes - L2) / B, (bytes of A, B and what is added) / B)

P is the device's peak in the problem's precision at its boost clock, B its memory bandwidth. Each
run moves all of its bytes but those that L2 can hold from one run to the next; with a flushed L2 it
reads all inputs. The quarter leaves room for what a device's description does not state: a clock
beyond the boost clock, or a library that emulates fp32 on tensor cores. And no run takes less than
`LEAST_US`: it loads at least once, and an L2 answers after 200 clock cycles or more.
"""

from __future__ import annotations

from collections.abc import Iterator

from autotune.device import Device
from autotune.problem import Problem
from autotune.records.record import Record, TuningRecord
from autotune.roofline import least_hot_seconds
from autotune.runners.base import Measurement

SHARE = 0.25
"""The share of the roofline's bound that every time exceeds."""

LEAST_US = 0.05
"""Microseconds that every run takes: 200 cycles at 3 GHz take 0.067."""


def check(record: TuningRecord) -> None:
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
    for name, measured in _measurements(record):
        for field, time_us, least_us in (
            ("time_us", measured.time_us, hot_us),
            ("cold_us", measured.cold_us, cold_us),
        ):
            if time_us is not None and time_us < least_us:
                raise ValueError(
                    f"{name}: {field} is {time_us:.3g}, and {record.title} takes at least "
                    f"{least_us:.3g} us on {record.device.name}; it was not measured there"
                )
        error, tolerance = measured.error, measured.tolerance
        if error is not None and tolerance is not None and error > tolerance:
            raise ValueError(f"{name}: error is {error:.3g}, beyond the tolerance {tolerance:.3g}")


def _measurements(record: TuningRecord) -> Iterator[tuple[str, Measurement]]:
    for place, entry in enumerate(record.entries):
        yield f"entries[{place}]", entry.measurement
    if record.baseline is not None:
        yield "baseline", record.baseline


def _least(record: TuningRecord) -> tuple[float, float]:
    """The least hot and cold microseconds; those of a user kernel are of any launch."""
    if not isinstance(record, Record):
        return LEAST_US, LEAST_US
    hot = least_hot_seconds(record.problem, record.device)
    cold = max(hot, _input_seconds(record.problem, record.device))
    return max(LEAST_US, SHARE * 1e6 * hot), max(LEAST_US, SHARE * 1e6 * cold)


def _input_seconds(problem: Problem, device: Device) -> float:
    """The seconds in which memory delivers what a problem reads."""
    written = problem.output_bytes * problem.batch * problem.strides[2]
    return (problem.bytes - written) / device.memory_bandwidth
