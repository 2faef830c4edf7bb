"""Several problems at a glance, against the vendor's library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from autotune.measure import targets
from autotune.measure.recording import Origin
from autotune.problem.precision import PRECISIONS
from autotune.records import Record, TuningRecord
from autotune.report import local, precision, vendor
from autotune.report.pages import page
from autotune.report.pages.page import Section, count, ratio
from autotune.report.pages.record import Result, result_fields
from autotune.report.selection import Selection


@dataclass(frozen=True, kw_only=True)
class OverviewRow(Result):
    """A problem or a call of a user kernel among others.

    Attributes:
        precision: the precision's label; `user kernel` for a user kernel.
        vendor: the vendor baseline's label; empty for a user kernel.
        how: `tuned`, `interrupted` or `predicted`.
        time_us: hot time.
        trials: trials of the last tuning run.
    """

    precision: str
    vendor: str
    how: str
    time_us: float
    trials: int


def record_row(record: TuningRecord, today: Origin) -> OverviewRow:
    """The row of a record; `today` is what this machine would measure with."""
    predicted = record.evidence == "predicted"
    ended = "interrupted" if record.provenance.interrupted else "tuned"
    compute = record.problem.compute if isinstance(record, Record) else None
    return OverviewRow(
        **result_fields(record, today),
        precision=precision(compute) if compute else "user kernel",
        vendor=vendor(compute) if compute else "",
        how="predicted" if predicted else ended,
        time_us=record.best.measurement.time_us,
        trials=record.provenance.trials,
    )


COLUMNS = (
    ("problem", "title", "text"),
    ("precision", "precision", "text"),
    ("device", "device", "text"),
    ("status", "how", "text"),
    ("evidence", "evidence", "text"),
    ("kernel family", "family", "text"),
    ("time, hot", "time_us", "time"),
    ("TFLOP/s", "tflops", "speed"),
    ("share of the roofline, hot", "roofline_share", "percent"),
    ("share of the roofline, cold", "cold_roofline_share", "percent"),
    ("compared with", "vendor", "text"),
    ("over cuBLAS, hot", "over_hot", "ratio"),
    ("over cuBLAS, cold", "over_cold", "ratio"),
    ("trials", "trials", "number"),
    ("saved", "date", "text"),
    ("changed since", "changed", "text"),
)
"""The table's columns: heading, attribute of `OverviewRow`, kind."""


@dataclass(frozen=True)
class Overview:
    """Several problems: a row for each."""

    rows: tuple[OverviewRow, ...]

    @property
    def summary(self) -> str:
        """The counts of problems and their devices, in one line of ASCII."""
        devices = ", ".join(dict.fromkeys(row.device for row in self.rows))
        return f"{_problems(self.rows)} on {devices}"

    def page(self) -> str:
        """The text of the page.

        Raises:
            MissingError: if plotly is not installed or is too old.
        """
        rows = [[getattr(row, name) for _, name, _ in COLUMNS] for row in self.rows]
        saved = [name for _, name, _ in COLUMNS].index("date")
        for row in rows:
            row[saved] = local(row[saved])
        tables = {
            "problems": {
                "columns": [
                    {"name": name, "title": title, "kind": kind} for title, name, kind in COLUMNS
                ],
                "rows": rows,
                "precisions": [row.label for row in PRECISIONS.values()],
                "caption": CAPTION,
                "file": "problems.csv",
            }
        }
        devices = [*dict.fromkeys(row.device for row in self.rows)]
        where = ", ".join(devices) if len(devices) < 4 else f"{len(devices)} devices"
        return page.pictures_page(
            f"{_problems(self.rows)} on {where}",
            tuple(_sections(self)),
            head=page.facts(_facts(self)),
            figures={},
            tables=tables,
        )


def overview_of(selection: Selection) -> Overview:
    """The overview of the selected records, beside what this machine measures with."""
    today = targets.here()
    return Overview(tuple(record_row(record, today) for record in selection.records))


def _problems(rows: Sequence[OverviewRow]) -> str:
    return "1 problem" if len(rows) == 1 else f"{len(rows):,} problems"


def _facts(overview: Overview) -> Iterator[tuple[str, str, str]]:
    rows = overview.rows
    devices = {row.device for row in rows}
    where = "on 1 device" if len(devices) == 1 else f"on {len(devices)} devices"
    yield "problems", count(len(rows)), where
    yield "trials", count(sum(row.trials for row in rows)), ""
    for name, values in (
        ("hot", [row.over_hot for row in rows if row.over_hot]),
        ("cold", [row.over_cold for row in rows if row.over_cold]),
    ):
        if values:
            worst = f"geometric mean; lowest {ratio(min(values))}"
            yield f"over cuBLAS, {name}", ratio(geometric_mean(values)), worst
    yield "stale", count(sum(row.stale is not None for row in rows)), "kernel sources changed since"


CAPTION = (
    "Problems. Over cuBLAS: its time over autotune's. Share of the roofline, hot: without the data "
    "that L2 holds; cold: every matrix moved once."
)


def _sections(overview: Overview) -> Iterator[Section]:
    if any(row.tflops is not None for row in overview.rows):
        yield Section("precisions", "By precision", '<div id="rankings"></div>')
    yield Section("problems", "All problems", '<div id="table-problems"></div>')
