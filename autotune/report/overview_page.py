"""The page of several problems."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import geometric_mean

from autotune.report import parts
from autotune.report.analysis.overview import OverviewRow, SizeCurve, Suggestion
from autotune.report.figures.base import Figure
from autotune.report.figures.overview import ratio_figure, size_figure
from autotune.report.page import Section, count, document, escape, percent, ratio
from autotune.report.page.html import asset
from autotune.version import __version__

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
    ("expected loss", "expected_loss", "percent"),
    ("trials", "trials", "number"),
    ("age", "age", "text"),
    ("changed", "changed", "text"),
)
"""The table's columns: heading, attribute of `OverviewRow`, kind."""


@dataclass(frozen=True)
class Overview:
    """Several problems: a row for each, curves over M, tuned ranges, and what to tune next."""

    rows: tuple[OverviewRow, ...]
    curves: tuple[SizeCurve, ...]
    ranges: tuple[dict[str, object], ...]
    suggestions: tuple[Suggestion, ...]

    @property
    def summary(self) -> str:
        """The counts of problems and their devices, in one line of ASCII."""
        tuned = sum(row.trials is not None for row in self.rows)
        devices = ", ".join(dict.fromkeys(row.device for row in self.rows))
        return f"{_problems(self.rows)} ({tuned} tuned) on {devices}"

    @property
    def table(self) -> tuple[tuple[str, ...], tuple[tuple[object, ...], ...]]:
        """The names of the columns and a row for each problem."""
        names = tuple(field for _, field, _ in COLUMNS)
        return names, tuple(tuple(getattr(row, name) for name in names) for row in self.rows)

    def to_json(self) -> dict[str, object]:
        """All of it as JSON values: times in microseconds, shares and losses as fractions."""
        return asdict(self)


def overview_page(overview: Overview) -> str:
    """The text of the page.

    Raises:
        MissingError: if plotly is not installed or is too old.
    """
    tables = {
        "problems": {
            "columns": [{"name": name, "kind": kind} for name, _, kind in COLUMNS],
            "rows": overview.table[1],
            "caption": "Problems. Of the roofline, hot: what L2 holds is not moved; cold: every "
            "matrix is moved once.",
            "file": "problems.csv",
        }
    }
    devices = [*dict.fromkeys(row.device for row in overview.rows)]
    where = ", ".join(devices) if len(devices) < 4 else f"{len(devices)} devices"
    return document(
        f"{_problems(overview.rows)} on {where}",
        tuple(_sections(overview)),
        head=parts.facts(_facts(overview)),
        data={"figures": overview_figures(overview), "labels": [], "tables": tables},
        script=asset("report.js"),
        footer=f"Made by autotune {escape(__version__)}. This file loads nothing from elsewhere.",
    )


def overview_figures(overview: Overview) -> dict[str, Figure]:
    """The pictures of several problems by name: those that there is data for."""
    figures: dict[str, Figure] = {}
    if any(row.over_hot is not None for row in overview.rows):
        figures["vendor"] = ratio_figure(overview.rows)
    for number, curve in enumerate(overview.curves, start=1):
        figures[f"sizes-{number}"] = size_figure(curve)
    return figures


def _problems(rows: Sequence[OverviewRow]) -> str:
    return "1 problem" if len(rows) == 1 else f"{len(rows):,} problems"


def _facts(overview: Overview) -> Iterator[tuple[str, str, str]]:
    rows = overview.rows
    tuned = [row for row in rows if row.trials is not None]
    devices = {row.device for row in rows}
    where = "on 1 device" if len(devices) == 1 else f"on {len(devices)} devices"
    yield "problems", count(len(rows)), where
    yield "tuned", count(len(tuned)), f"{count(sum(row.trials or 0 for row in tuned))} trials"
    for name, values in (
        ("hot", [row.over_hot for row in rows if row.over_hot]),
        ("cold", [row.over_cold for row in rows if row.over_cold]),
    ):
        if values:
            worst = f"worst {ratio(min(values))}"
            yield f"over the vendor, {name}", ratio(geometric_mean(values)), worst
    stale = sum(suggestion.stale for suggestion in overview.suggestions)
    worth = len(overview.suggestions) - stale
    yield "worth tuning", count(worth), f"and {count(stale)} stale" if stale else ""


def _sections(overview: Overview) -> Iterator[Section]:
    if any(row.over_hot is not None for row in overview.rows):
        caption = "Right of 1 ours is faster than the vendor's library. Geometric means are above."
        description = "The vendor's time over ours for each problem. The table has the numbers."
        content = parts.plot("vendor", description, caption, "free")
        yield Section("vendor", "Against the vendor's library", content)
    yield Section("problems", "Problems", '<div id="table-problems"></div>')
    if overview.curves or overview.ranges:
        yield Section("sizes", "Over the sizes", _sizes(overview))
    yield Section("next", "Worth tuning next", _next(overview.suggestions))


def _sizes(overview: Overview) -> str:
    curves = "".join(
        f"<div><h3>{escape(curve.name)}</h3>"
        + parts.plot(f"sizes-{number}", f"Speed over M of {curve.name}.", "", "short")
        + "</div>"
        for number, curve in enumerate(overview.curves, start=1)
    )
    content = f'<div class="columns">{curves}</div>'
    if not overview.ranges:
        return content
    rows = [
        (
            row["range"],
            row["device"],
            row["evidence"],
            ", ".join(map(str, points)) if isinstance(points := row["points"], list) else "",
            percent(loss) if isinstance(loss := row["expected_loss"], float) else "",
        )
        for row in overview.ranges
    ]
    headings: list[tuple[str, parts.Kind]] = [
        ("range", "word"),
        ("device", "word"),
        ("evidence", "word"),
        ("tuned at", "prose"),
        ("expected loss", "number"),
    ]
    return content + parts.table(headings, rows, "Tuned ranges")


def _next(suggestions: Sequence[Suggestion]) -> str:
    stale = [suggestion for suggestion in suggestions if suggestion.stale]
    rows = [
        (row.title, row.device, row.why, percent(row.loss), row.command)
        for row in suggestions
        if not row.stale
    ]
    content = ""
    if rows:
        headings: list[tuple[str, parts.Kind]] = [
            ("problem", "word"),
            ("device", "word"),
            ("why", "prose"),
            ("expected loss", "number"),
            ("command", "prose"),
        ]
        content = parts.table(headings, rows, "The largest expected loss first")
    if stale:
        number = "1 problem was" if len(stale) == 1 else f"{len(stale):,} problems were"
        content += parts.paragraph(
            f"{number} {stale[0].why}. `autotune cache verify --retime` measures records of the "
            "cache again on their device."
        )
    return content or parts.paragraph("Nothing: every problem is tuned, as this machine is now.")
