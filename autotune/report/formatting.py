"""Labels and cells that all reports share."""

from __future__ import annotations

from datetime import datetime, timezone

from autotune.problem.precision import PRECISIONS


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
    try:
        # Python 3.10 does not read the Z.
        written = datetime.fromisoformat(date.replace("Z", "+00:00"))
    except ValueError:
        return None
    if written.tzinfo is None:
        written = written.replace(tzinfo=timezone.utc)
    return max(0.0, (now - written).total_seconds())
