"""All records of a cache, a row each, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from rich.console import Group, RenderableType
from rich.text import Text

from autotune.lookup.answer import Answer
from autotune.measure.measurement import Evidence
from autotune.measure.objective import COLD, HOT
from autotune.measure.recording import Origin
from autotune.problem import Problem
from autotune.records import TuningRecord
from autotune.records.merging import changes, stale
from autotune.records.ranges import Range
from autotune.report import age, cell, gain, over_vendor, seconds_since, tables, us_of
from autotune.report.tables import FittedTable


@dataclass(frozen=True)
class RecordRow:
    """A record in a list of records.

    Attributes:
        problem: the problem, or the call of a user kernel.
        device: the device's name.
        evidence: evidence of its times.
        time_us: microseconds of its best configuration.
        ratio: cuBLAS's time over it, above 1 where it is faster; None if cuBLAS was not timed.
        cold_us: microseconds of its best configuration with L2 flushed; None if not measured.
        cold_ratio: cuBLAS's time over that.
        config: its best configuration.
        date: date of the record, UTC.
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


def record_rows(records: Iterable[TuningRecord], today: Origin) -> tuple[RecordRow, ...]:
    """A row for each record; `today` is what this machine would measure with."""
    now = datetime.now(timezone.utc)
    return tuple(_row(record, today, now) for record in records)


def record_table(rows: Sequence[RecordRow]) -> FittedTable:
    """The rows as a table; its last column says what changed since a record was measured."""
    table = FittedTable()
    table.add("problem", kind="text")
    table.add("device", kind="text", worth=-3)
    table.add("evidence", kind="text", worth=-2.5)
    table.add("time", worth=-1)
    table.add("over cuBLAS", worth=-2)
    table.add("age", worth=-4)
    table.add("changed", kind="prose", worth=-5)
    for row in rows:
        ended = ", quick" if row.quick else ", interrupted" if row.interrupted else ""
        table.add_row(
            *(row.problem, row.device, f"{row.evidence}{ended}", f"{row.time_us:,.2f} us"),
            cell(row.ratio, "{:.2f}"),
            "" if row.age_s is None else age(row.age_s),
            row.changed or "",
            style=None if row.stale is None else "yellow",
        )
    return table


def _row(record: TuningRecord, today: Origin, now: datetime) -> RecordRow:
    cold = record.best_cold
    return RecordRow(
        problem=record.title,
        device=record.device.name,
        evidence=record.evidence,
        time_us=record.best.measurement.time_us,
        ratio=over_vendor(record, record.best, HOT),
        cold_us=cold.measurement.cold_us if cold else None,
        cold_ratio=over_vendor(record, cold, COLD),
        config=str(record.best.config),
        date=record.provenance.date,
        age_s=seconds_since(record.provenance.date, now),
        interrupted=record.provenance.interrupted,
        quick=record.provenance.quick,
        changed=changes(record, today),
        stale=stale(record, today),
    )


def range_table(tuned: Range) -> RenderableType:
    """A line for each segment: its sizes, and the size whose record they run."""
    dimension = tuned.dimension.upper()
    table = FittedTable()
    table.add(dimension, "as tuned at")
    for segment in tuned.segments:
        sizes = f"{segment.low}..{segment.high}" if segment.low < segment.high else f"{segment.low}"
        table.add_row(sizes, str(segment.point))
    evidence = f"{tuned.evidence}{tuned.objective.suffix(', ')}"
    title = Text(f"{tuned} on {tuned.device.name}: {evidence}", style="bold")
    end = Text(f"{len(tuned.points)} sizes tuned")
    order = [Text(f"batch-invariant, in one order of summation: {tuned.order}")]
    return Group(title, *(order if tuned.order else []), table, end)


TUNED, NO_TIME = "tuned before", "no time left"
"""Why a shape was not searched."""

SHAPES_NOTE = "us: of all runs of the shape; gain: cuBLAS's time over the kernel's, less 1"


@dataclass(frozen=True)
class ShapeRow:
    """A shape after tuning.

    Attributes:
        problem: the shape.
        count: number of its runs.
        answer: what is recorded for it; None without a record.
        searched_s: seconds of its searches; 0 if it was not searched.
        why: why its search failed, or why there was none; None if it was searched.
    """

    problem: Problem
    count: int
    answer: Answer | None
    searched_s: float = 0.0
    why: str | None = None

    @property
    def failed(self) -> bool:
        """Whether its search failed, or no kernel takes it."""
        return self.why not in (None, NO_TIME, TUNED)

    @property
    def time_us(self) -> float | None:
        """Microseconds of all its runs; None if unknown."""
        time_us = None if self.answer is None else self.answer.time_us
        return None if time_us is None else self.count * time_us

    @property
    def vendor_us(self) -> float | None:
        """Microseconds of all its runs by cuBLAS; None if it was not timed on this shape."""
        answer = self.answer
        if answer is None or answer.record is None or answer.how not in ("exact", "predicted"):
            return None
        vendor_us = us_of(answer.record.baseline, answer.objective)
        return None if vendor_us is None else self.count * vendor_us

    @property
    def gain(self) -> float | None:
        """cuBLAS's time over the kernel's, less 1; None if either is unknown."""
        return gain(self.vendor_us, self.time_us)


class ShapesReport(tuple[ShapeRow, ...]):
    """A row for each shape; `print` and notebooks show them as a table."""

    def __str__(self) -> str:
        return tables.text_of(shape_table(self), tables.WIDE)

    def _repr_html_(self) -> str:
        return tables.html_of(shape_table(self), tables.WIDE)

    @property
    def failed(self) -> bool:
        """Whether a search failed, or a shape fits no kernel."""
        return any(row.failed for row in self)


def shape_table(rows: ShapesReport) -> RenderableType:
    """A line for each shape, the longest total first, and the sums where all are known."""
    table = FittedTable()
    table.add("shape", kind="text")
    table.add("runs", "us", "cuBLAS us", "gain", "from", "searched")
    table.add("", kind="prose", worth=-2.5)
    for row in sorted(rows, key=lambda row: -(row.time_us or 0.0)):
        table.add_row(
            str(row.problem),
            str(row.count),
            cell(row.time_us, "{:,.1f}"),
            cell(row.vendor_us, "{:,.1f}"),
            cell(row.gain, "{:+.1%}"),
            row.answer.how if row.answer else "",
            f"{row.searched_s:.1f} s" if row.searched_s else "",
            row.why or "",
        )
    return Group(table, Text(_total(rows)), Text(SHAPES_NOTE, style="dim"))


def shapes_json(rows: ShapesReport) -> list[dict[str, object]]:
    """The rows as JSON data."""
    return [
        {
            "shape": str(row.problem),
            "count": row.count,
            "time_us": row.time_us,
            "cublas_us": row.vendor_us,
            "how": row.answer.how if row.answer else None,
            "config": str(row.answer.config) if row.answer else None,
            "evidence": row.answer.evidence if row.answer else None,
            "searched_s": row.searched_s,
            "why": row.why,
        }
        for row in rows
    ]


def _total(rows: ShapesReport) -> str:
    """The sum of the shapes, such as `3 shapes, 60 runs: 1,234.5 us, by cuBLAS 1,300.0 us`."""
    counts = f"{len(rows)} shapes, {sum(row.count for row in rows)} runs"
    times, vendors = [row.time_us for row in rows], [row.vendor_us for row in rows]
    if not rows or None in times:
        return counts
    total = sum(filter(None, times))
    if None in vendors:
        return f"{counts}: {total:,.1f} us"
    return f"{counts}: {total:,.1f} us, by cuBLAS {sum(filter(None, vendors)):,.1f} us"
