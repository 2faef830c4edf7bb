"""Several problems at a glance, against the vendor's library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from statistics import geometric_mean

from autotune.measure import targets
from autotune.records import TuningRecord
from autotune.records.inventory import change, stale_change
from autotune.report.pages import page
from autotune.report.pages.figures import COLOURS, VENDOR, Figure, axis, figure, scatter, text
from autotune.report.pages.page import Section, count, ratio
from autotune.report.pages.record import Result, result_fields
from autotune.report.selection import Selection


@dataclass(frozen=True, kw_only=True)
class OverviewRow(Result):
    """A problem or a call of a user kernel among others.

    Attributes:
        how: `tuned`, `interrupted` or `predicted`.
        time_us: hot time.
        trials: trials of the last tuning run.
    """

    how: str
    time_us: float
    trials: int


def record_row(
    record: TuningRecord, *, stale: str | None, now: datetime, changed: str | None = None
) -> OverviewRow:
    """The row of a record; the arguments are those of `result_fields`."""
    predicted = record.evidence == "predicted"
    ended = "interrupted" if record.provenance.interrupted else "tuned"
    return OverviewRow(
        **result_fields(record, stale=stale, now=now, changed=changed),
        how="predicted" if predicted else ended,
        time_us=record.best.measurement.time_us,
        trials=record.provenance.trials,
    )


ROW, NARROW, MANY = (20, 12), (15, 10), 60
"""Pixels of a problem and of its letters; those where there are many; how many are many."""


def ratio_figure(rows: Sequence[OverviewRow]) -> Figure:
    """The vendor's time over the kernel's, hot and cold, the largest ratio on top; at 1 both
    tie."""
    timed = sorted(
        (row for row in rows if row.over_hot is not None), key=lambda row: row.over_hot or 0.0
    )
    devices = {row.device for row in timed}
    labels = [
        text(row.title if len(devices) == 1 else f"{row.title} on {row.device}") for row in timed
    ]
    ratios = {"hot": [row.over_hot for row in timed], "cold": [row.over_cold for row in timed]}
    data = [
        scatter(
            name,
            ratios[name],
            labels,
            f"%{{y}}: %{{x:.2f}}x, {name}<extra></extra>",
            marker={"size": 9, "color": COLOURS[number], "symbol": symbol},
        )
        for number, (name, symbol) in enumerate((("hot", "circle"), ("cold", "diamond-open")))
    ]
    x = axis("vendor's time over ours", log=True)
    y = {"type": "category", "categoryarray": labels, "dtick": 1, "range": [-1, len(labels)]}
    result = figure(data, x | {"side": "top"}, y)
    result["layout"]["legend"] |= {"y": 1, "yanchor": "top", "yref": "container"}
    result["layout"]["margin"] |= {"t": 70, "b": 10}
    result["layout"]["shapes"] = [
        {
            "type": "line",
            "xref": "x",
            "yref": "paper",
            **{"x0": 1, "x1": 1, "y0": 0, "y1": 1},
            "line": {"color": VENDOR, "dash": "dash"},
        }
    ]
    row, letters = ROW if len(timed) <= MANY else NARROW
    result["layout"]["height"] = 130 + row * len(timed)
    result["layout"]["yaxis"]["tickfont"] = {"size": letters}
    return result


COLUMNS = (
    ("problem", "title", "text"),
    ("device", "device", "text"),
    ("how", "how", "text"),
    ("evidence", "evidence", "text"),
    ("family", "family", "text"),
    ("time_us", "time_us", "time"),
    ("tflops", "tflops", "number"),
    ("of the roofline, hot", "roofline_share", "percent"),
    ("of the roofline, cold", "cold_roofline_share", "percent"),
    ("over vendor, hot", "over_hot", "ratio"),
    ("over vendor, cold", "over_cold", "ratio"),
    ("trials", "trials", "number"),
    ("age", "age", "text"),
    ("changed", "changed", "text"),
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
        tables = {
            "problems": {
                "columns": [{"name": name, "kind": kind} for name, _, kind in COLUMNS],
                "rows": [[getattr(row, name) for _, name, _ in COLUMNS] for row in self.rows],
                "caption": "Problems. Of the roofline, hot: without the data that L2 holds; cold: "
                "every matrix is moved once.",
                "file": "problems.csv",
            }
        }
        devices = [*dict.fromkeys(row.device for row in self.rows)]
        where = ", ".join(devices) if len(devices) < 4 else f"{len(devices)} devices"
        return page.pictures_page(
            f"{_problems(self.rows)} on {where}",
            tuple(_sections(self)),
            head=page.facts(_facts(self)),
            figures=self.figures(),
            tables=tables,
        )

    def figures(self) -> dict[str, Figure]:
        """The pictures of several problems by name: those that there is data for."""
        figures: dict[str, Figure] = {}
        if any(row.over_hot is not None for row in self.rows):
            figures["vendor"] = ratio_figure(self.rows)
        return figures


def overview_of(selection: Selection) -> Overview:
    """The overview of the selected records, beside what this machine measures with."""
    today, now = targets.here(), datetime.now(timezone.utc)
    return Overview(
        tuple(
            record_row(
                record, stale=stale_change(record, today), now=now, changed=change(record, today)
            )
            for record in selection.records
        )
    )


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
            worst = f"worst {ratio(min(values))}"
            yield f"over the vendor, {name}", ratio(geometric_mean(values)), worst
    yield "stale", count(sum(row.stale is not None for row in rows)), "measured with other kernels"


def _sections(overview: Overview) -> Iterator[Section]:
    if any(row.over_hot is not None for row in overview.rows):
        caption = "Right of 1 ours is faster than the vendor's library. Geometric means are above."
        description = "The vendor's time over ours for each problem. The table has the numbers."
        content = page.plot("vendor", description, caption, "free")
        yield Section("vendor", "Against the vendor's library", content)
    yield Section("problems", "Problems", '<div id="table-problems"></div>')
