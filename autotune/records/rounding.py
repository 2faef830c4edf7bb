"""Records with no more digits than their times have: a fifth less to ship."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from autotune.records.record import Record
from autotune.runners.base import Measurement

DIGITS = 5
"""Significant digits that are left: a hundredth of a per mille, far below any spread."""


def rounded(record: Record, digits: int = DIGITS) -> Record:
    """The record with times, spreads, errors and shares of so many significant digits."""
    entries = tuple(
        replace(
            entry,
            measurement=_shorter(entry.measurement, digits),
            occupancy=_short(entry.occupancy, digits),
        )
        for entry in record.entries
    )
    return replace(
        record,
        entries=entries,
        baseline=record.baseline and _shorter(record.baseline, digits),
        provenance=replace(record.provenance, seconds=_short(record.provenance.seconds, digits)),
    )


def _shorter(measured: Measurement, digits: int) -> Measurement:
    short: dict[str, Any] = {
        name: _short(value, digits)
        for name, value in asdict(measured).items()
        if isinstance(value, float)
    }
    return replace(measured, **short)


def _short(value: float, digits: int) -> float:
    return float(f"{value:.{digits}g}")
