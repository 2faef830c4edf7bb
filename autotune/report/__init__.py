"""Tables and pictures of results; here are the labels, numbers and dates that all of them show."""

from __future__ import annotations

from datetime import datetime, timezone

from autotune.measure.measurement import Measurement
from autotune.measure.objective import Objective
from autotune.problem.precision import PRECISIONS
from autotune.records import Entry, TuningRecord


def precision(compute: str) -> str:
    """The label of a precision, such as `fp32` for `f32`."""
    return PRECISIONS[compute].label


def vendor(compute: str) -> str:
    """The vendor baseline of a precision: cuBLAS has no `tf32x3` of its own."""
    baseline = PRECISIONS[compute].vendor or compute
    return "cuBLAS" if baseline == compute else f"cuBLAS in {precision(baseline)}"


def cell(value: float | None, form: str) -> str:
    """A value in a format such as `{:.1%}`; empty if there is none."""
    return "" if value is None else form.format(value)


def age(seconds: float) -> str:
    """Whole seconds, minutes, hours or days, such as `3 h`."""
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:,.0f} {unit}"
    return f"{seconds // 1:.0f} s"


def seconds_since(date: str, now: datetime) -> float | None:
    """Seconds from a date in ISO 8601, UTC unless it says otherwise; None if it cannot be read."""
    written = _read(date)
    return None if written is None else max(0.0, (now - written).total_seconds())


def local(date: str) -> str:
    """A date in ISO 8601 in this machine's time zone, such as `2026-11-22 13:00+01:00`; as it is if
    it cannot be read."""
    written = _read(date)
    return date if written is None else written.astimezone().isoformat(" ", "minutes")


def _read(date: str) -> datetime | None:
    try:
        # Python 3.10 does not read the Z.
        written = datetime.fromisoformat(date.replace("Z", "+00:00"))
    except ValueError:
        return None
    return written.replace(tzinfo=written.tzinfo or timezone.utc)


def joules(amount: float) -> str:
    """An energy as text with four digits, such as `0.1234 J`, `12.34 mJ` or `123.4 uJ`."""
    for unit, factor in (("J", 1.0), ("mJ", 1e-3)):
        if amount >= 0.1 * factor:
            return f"{amount / factor:.4g} {unit}"
    return f"{amount * 1e6:.4g} uJ"


def us(time_us: float) -> str:
    """Microseconds with four to six digits."""
    return f"{time_us:.1f} us" if time_us >= 100 else f"{time_us:.2f} us"


def us_of(measurement: Measurement | None, objective: Objective) -> float | None:
    """Microseconds of a measurement by an objective; None if it has no such time."""
    estimate = objective.estimate(measurement) if measurement else None
    return estimate.time_us if estimate else None


def over_vendor(record: TuningRecord, entry: Entry | None, objective: Objective) -> float | None:
    """The vendor baseline's time over an entry's (above 1 the entry is faster); None if either is
    unknown."""
    ours_us = us_of(entry.measurement if entry else None, objective)
    vendor_us = us_of(record.baseline, objective)
    return vendor_us / ours_us if ours_us and vendor_us else None


def gain(plain_us: float | None, ours_us: float | None) -> float | None:
    """The plain time over the kernel's, less 1, so that 0.25 is 25 % faster; None if either is
    unknown."""
    return plain_us / ours_us - 1 if plain_us is not None and ours_us else None
