"""Number formats of the pages; `page.js` has the same ones."""

from __future__ import annotations

import math

_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def time_us(microseconds: float | None) -> str:
    """A time to four digits, in ns, µs, ms or s; a dash if there is none."""
    if microseconds is None or not math.isfinite(microseconds):
        return "–"
    if microseconds == 0:
        return "0 µs"
    for size, unit in ((1e6, "s"), (1e3, "ms"), (1.0, "µs")):
        if abs(microseconds) >= size:
            return f"{_digits(microseconds / size)} {unit}"
    return f"{_digits(microseconds * 1e3)} ns"


def percent(share: float | None, digits: int = 1) -> str:
    """A share (0..1) in percent; a dash if there is none."""
    return "–" if share is None or not math.isfinite(share) else f"{share:.{digits}%}"


def ratio(value: float | None) -> str:
    """A ratio such as `1.26x`; a dash if there is none."""
    return "–" if value is None or not math.isfinite(value) else f"{value:.2f}x"


def count(value: float) -> str:
    """A whole number with thousands separated, such as `12,345`."""
    return f"{value:,.0f}"


def quantity(value: float | None, unit: str) -> str:
    """A value to four digits with a decimal prefix, such as `4.814 TB/s`."""
    if value is None or not math.isfinite(value):
        return "–"
    for size, prefix in _PREFIXES:
        if abs(value) >= size:
            return f"{_digits(value / size)} {prefix}{unit}"
    return f"{_digits(value)} {unit}"


def _digits(value: float) -> str:
    """Four digits, all those before the point included."""
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 1
    return f"{value:,.{max(0, 4 - whole)}f}"
