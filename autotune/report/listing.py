"""All records of a cache, a row each, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from autotune.records import TuningRecord
from autotune.records.inventory import change, stale_change
from autotune.report.formatting import age, cell, seconds_since
from autotune.runners.base import Evidence
from autotune.runners.recording import Origin

if TYPE_CHECKING:
    from autotune.report.tables import FittedTable


@dataclass(frozen=True)
class RecordRow:
    """A record in a list of records.

    Attributes:
        problem: the problem, or the call of a user kernel.
        device: the device's name.
        evidence: what its times rest on.
        time_us: microseconds of its best configuration.
        ratio: cuBLAS's time over it, above 1 where it is faster; None if cuBLAS was not timed.
        cold_us: microseconds of its best configuration with L2 flushed; None if not measured.
        cold_ratio: cuBLAS's time over that.
        config: its best configuration.
        date: when it was saved, UTC.
        age_s: seconds since then; None if the date cannot be read.
        interrupted: whether its search did not end.
        quick: whether it is of a race of a few configurations.
        changed: driver, compiler or kernel sources that changed since it was measured, such as
            `driver 12.8, now 13.0`; None if nothing did.
        stale: `changed` if it includes the kernel sources, else None.
    """

    problem: str
    device: str
    evidence: Evidence
    time_us: float
    ratio: float | None
    cold_us: float | None
    cold_ratio: float | None
    config: str
    date: str
    age_s: float | None
    interrupted: bool
    quick: bool
    changed: str | None
    stale: str | None


def rows(records: Iterable[TuningRecord], today: Origin) -> tuple[RecordRow, ...]:
    """A row for each record; `today` is what this machine would measure with."""
    now = datetime.now(timezone.utc)
    return tuple(_row(record, today, now) for record in records)


def render(rows: Sequence[RecordRow]) -> FittedTable:
    """The rows as a table; its last column says what changed since a record was measured."""
    from autotune.report.tables import FittedTable

    table = FittedTable()
    table.add("problem", "text")
    table.add("device", "text", worth=-3)
    table.add("evidence", "text", worth=-2.5)
    table.add("time", worth=-1)
    table.add("over cuBLAS", worth=-2)
    table.add("age", worth=-4)
    table.add("changed", "prose", worth=-5)
    for row in rows:
        table.add_row(
            *(row.problem, row.device, _evidence(row), f"{row.time_us:,.2f} us"),
            cell(row.ratio, "{:.2f}"),
            "" if row.age_s is None else age(row.age_s),
            row.changed or "",
            style=None if row.stale is None else "yellow",
        )
    return table


def to_json(rows: Iterable[RecordRow]) -> list[dict[str, object]]:
    """The rows as JSON data."""
    return [asdict(row) for row in rows]


def _row(record: TuningRecord, today: Origin, now: datetime) -> RecordRow:
    best, coldest, baseline = record.best.measurement, record.best_cold, record.baseline
    cold_us = coldest.measurement.cold_us if coldest else None
    cublas_cold = baseline.cold_us if baseline else None
    return RecordRow(
        problem=record.title,
        device=record.device.name,
        evidence=record.evidence,
        time_us=best.time_us,
        ratio=baseline.time_us / best.time_us if baseline else None,
        cold_us=cold_us,
        cold_ratio=cublas_cold / cold_us if cublas_cold and cold_us else None,
        config=str(record.best.config),
        date=record.provenance.date,
        age_s=seconds_since(record.provenance.date, now),
        interrupted=record.provenance.interrupted,
        quick=record.provenance.quick,
        changed=change(record, today),
        stale=stale_change(record, today),
    )


def _evidence(row: RecordRow) -> str:
    ended = ", quick" if row.quick else ", interrupted" if row.interrupted else ""
    return f"{row.evidence}{ended}"
