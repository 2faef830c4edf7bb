"""The shapes of a model after they were tuned under one budget, as a table and as JSON."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from autotune.lookup.answer import Answer
from autotune.problem import Problem
from autotune.report import printing
from autotune.report.formatting import cell
from autotune.report.tables import FittedTable

TUNED, NO_TIME = "tuned before", "no time left"
"""Why a shape was not searched."""

WIDTH = 120
"""Columns of the table in Python."""

NOTE = "us: of all runs of the shape; gain: cuBLAS's time over the kernel's, less 1"


@dataclass(frozen=True)
class ShapeRow:
    """A shape after tuning.

    Attributes:
        problem: the shape.
        count: how often it runs.
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
        baseline = answer.record.baseline
        estimate = answer.objective.estimate(baseline) if baseline else None
        return self.count * estimate.time_us if estimate else None

    @property
    def gain(self) -> float | None:
        """cuBLAS's time over the kernel's, less 1; None if either is unknown."""
        if not self.time_us or self.vendor_us is None:
            return None
        return self.vendor_us / self.time_us - 1


class ShapesReport(tuple[ShapeRow, ...]):
    """A row for each shape; `print` and notebooks show them as a table."""

    def __str__(self) -> str:
        return printing.text_of(render(self), WIDTH)

    def _repr_html_(self) -> str:
        return printing.html_of(render(self), WIDTH)

    @property
    def failed(self) -> bool:
        """Whether a search failed, or a shape fits no kernel."""
        return any(row.failed for row in self)


def render(rows: ShapesReport) -> RenderableType:
    """A line for each shape, the longest total first, and the sums where all are known."""
    table = FittedTable()
    table.add("shape", "text")
    for header in ("runs", "us", "cuBLAS us", "gain", "from", "searched"):
        table.add(header)
    table.add("", "prose", worth=-2.5)
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
    return Group(table, Text(_total(rows)), Text(NOTE, style="dim"))


def to_json(rows: ShapesReport) -> list[dict[str, object]]:
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
    """Such as `3 shapes, 60 runs: 1,234.5 us, by cuBLAS 1,300.0 us`."""
    counts = f"{len(rows)} shapes, {sum(row.count for row in rows)} runs"
    times, vendors = [row.time_us for row in rows], [row.vendor_us for row in rows]
    if not rows or None in times:
        return counts
    total = sum(filter(None, times))
    if None in vendors:
        return f"{counts}: {total:,.1f} us"
    return f"{counts}: {total:,.1f} us, by cuBLAS {sum(filter(None, vendors)):,.1f} us"
