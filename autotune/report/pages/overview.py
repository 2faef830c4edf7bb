"""Several problems at a glance, against the vendor's library."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import geometric_mean

from autotune.measure import targets
from autotune.problem.precision import PRECISIONS
from autotune.records import Record, TuningRecord
from autotune.records.inventory import change, stale_change
from autotune.report import local, precision, vendor
from autotune.report.pages import page
from autotune.report.pages.figures import COLOURS, VENDOR, Figure, axis, figure, scatter, text
from autotune.report.pages.page import Section, count, escape, percent, ratio
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


def record_row(
    record: TuningRecord, *, stale: str | None, changed: str | None = None
) -> OverviewRow:
    """The row of a record; the arguments are those of `result_fields`."""
    predicted = record.evidence == "predicted"
    ended = "interrupted" if record.provenance.interrupted else "tuned"
    compute = record.problem.compute if isinstance(record, Record) else None
    return OverviewRow(
        **result_fields(record, stale=stale, changed=changed),
        precision=precision(compute) if compute else "user kernel",
        vendor=vendor(compute) if compute else "",
        how="predicted" if predicted else ended,
        time_us=record.best.measurement.time_us,
        trials=record.provenance.trials,
    )


SHOWN = 25
"""Problems at either end of a ranking; up to twice as many are drawn in one picture."""

ROW = 18
"""Pixels of a problem in a ranking."""


@dataclass(frozen=True)
class Ranking:
    """The problems of one precision on one device by their speed, the fastest first.

    Attributes:
        name: the precision's label, with the device where there are several.
        rows: the problems that can be ranked.
        others: those that cannot: a ratio or a speed is unknown.
        vendor: the vendor baseline that the ratios are of; empty if problems rank by TFLOP/s.
    """

    name: str
    rows: tuple[OverviewRow, ...]
    others: int
    vendor: str

    @property
    def measure(self) -> str:
        """The quantity that problems rank by, as an axis says it."""
        return f"speed over {self.vendor}" if self.vendor else "TFLOP/s"

    @property
    def ends(self) -> Mapping[str, tuple[OverviewRow, ...]]:
        """The problems to draw by what they are: all, or the two ends of many."""
        if len(self.rows) <= 2 * SHOWN:
            return {"all": self.rows}
        return {f"fastest {SHOWN}": self.rows[:SHOWN], f"slowest {SHOWN}": self.rows[-SHOWN:]}

    def values(self, rows: Sequence[OverviewRow]) -> Mapping[str, list[float | None]]:
        """The values of problems by the name of their series."""
        if not self.vendor:
            return {"hot": [row.tflops for row in rows]}
        return {"hot": [row.over_hot for row in rows], "cold": [row.over_cold for row in rows]}


def rankings(rows: Sequence[OverviewRow]) -> tuple[Ranking, ...]:
    """The rankings by precision and device: by the ratio to the vendor baseline, hot, where there
    is one, else by TFLOP/s. User kernels have neither and are not ranked."""
    devices, result = dict.fromkeys(row.device for row in rows), []
    for label, device in product([row.label for row in PRECISIONS.values()], devices):
        own = [row for row in rows if (row.precision, row.device) == (label, device)]
        baseline = next((row.vendor for row in own if row.over_hot is not None), "")
        values = {id(row): row.over_hot if baseline else row.tflops for row in own}
        known = [row for row in own if values[id(row)] is not None]
        known.sort(key=lambda row: -(values[id(row)] or 0.0))
        if known:
            name = label if len(devices) == 1 else f"{label} on {device}"
            result.append(Ranking(name, tuple(known), len(own) - len(known), baseline))
    return tuple(result)


SERIES = {"hot": ("circle", ""), "cold": ("diamond-open", "/")}
"""The symbol of a series in rankings, and the hatching of its bars."""


def ranking_figure(ranking: Ranking, rows: Sequence[OverviewRow]) -> Figure:
    """The speeds of some problems of a ranking, the fastest on top."""
    rows = rows[::-1]
    labels = [text(row.title) for row in rows]
    unit = "x" if ranking.vendor else " TFLOP/s"
    data = [
        scatter(
            name,
            values,
            labels,
            f"%{{y}}: %{{x:.4g}}{unit}, {name}<extra></extra>",
            marker={"size": 9, "color": COLOURS[number], "symbol": SERIES[name][0]},
            showlegend=bool(ranking.vendor),
        )
        for number, (name, values) in enumerate(ranking.values(rows).items())
    ]
    x = axis(ranking.measure, log=bool(ranking.vendor)) | {"side": "top"}
    y = {"type": "category", "categoryarray": labels, "dtick": 1, "range": [-1, len(labels)]}
    result = figure(data, x, y | {"tickfont": {"size": 10}})
    result["layout"]["legend"] |= {"y": 1, "yanchor": "top", "yref": "container"}
    result["layout"]["margin"] |= {"t": 70, "b": 10}
    result["layout"]["height"] = 90 + ROW * len(rows)
    return _with_tie(result, ranking)


def histogram_figure(ranking: Ranking) -> Figure:
    """The number of problems by ratio, in steps of 5 %, or by TFLOP/s, in 20 steps; ratios of 2 and
    more are in the last step."""
    series = {
        name: [v for v in values if v] for name, values in ranking.values(ranking.rows).items()
    }
    step = 0.05 if ranking.vendor else max(map(max, filter(None, series.values()))) / 20
    data = []
    for number, (name, values) in enumerate(series.items()):
        steps = Counter(min(math.floor(value / step + 1e-9), LAST) for value in values)
        data.append(
            {
                "type": "bar",
                "name": name,
                "x": [(place + 0.5) * step for place in sorted(steps)],
                "y": [steps[place] for place in sorted(steps)],
                "customdata": [_step_text(place, step, ranking) for place in sorted(steps)],
                "hovertemplate": f"%{{customdata}}, {name}: %{{y}} problems<extra></extra>",
                "marker": {"color": COLOURS[number], "pattern": {"shape": SERIES[name][1]}},
                "showlegend": bool(ranking.vendor),
            }
        )
    return _with_tie(figure(data, axis(ranking.measure), axis("problems")), ranking)


LAST = 40
"""The last step of a histogram: ratios from 2 on."""


def _step_text(place: int, step: float, ranking: Ranking) -> str:
    if place == LAST and ranking.vendor:
        return "2x and more"
    ends = f"{place * step:.4g} to {(place + 1) * step:.4g}"
    return f"{ends}x" if ranking.vendor else f"{ends} TFLOP/s"


def _with_tie(result: Figure, ranking: Ranking) -> Figure:
    """The figure with a line at the ratio 1, where both tie."""
    if ranking.vendor:
        line = {"color": VENDOR, "dash": "dash"}
        ends = {"x0": 1, "x1": 1, "y0": 0, "y1": 1}
        tie = {"type": "line", "xref": "x", "yref": "paper", **ends, "line": line}
        result["layout"]["shapes"] = [tie]
    return result


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
            figures=self.figures(),
            tables=tables,
        )

    def figures(self) -> dict[str, Figure]:
        """The pictures of several problems by name: those that there is data for."""
        figures: dict[str, Figure] = {}
        for place, ranking in enumerate(rankings(self.rows)):
            if len(ranking.ends) > 1:
                figures[f"histogram-{place}"] = histogram_figure(ranking)
            for number, rows in enumerate(ranking.ends.values()):
                figures[f"ranking-{place}-{number}"] = ranking_figure(ranking, rows)
        return figures


def overview_of(selection: Selection) -> Overview:
    """The overview of the selected records, beside what this machine measures with."""
    today = targets.here()
    return Overview(
        tuple(
            record_row(record, stale=stale_change(record, today), changed=change(record, today))
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
            worst = f"geometric mean; lowest {ratio(min(values))}"
            yield f"over cuBLAS, {name}", ratio(geometric_mean(values)), worst
    yield "stale", count(sum(row.stale is not None for row in rows)), "kernel sources changed since"


CAPTION = (
    "Problems. Over cuBLAS: its time over autotune's. Share of the roofline, hot: without the data "
    "that L2 holds; cold: every matrix moved once."
)


def _sections(overview: Overview) -> Iterator[Section]:
    if ranked := rankings(overview.rows):
        few = len(overview.rows) <= 4 * SHOWN
        parts = "".join(_part(place, each, few or place == 0) for place, each in enumerate(ranked))
        yield Section("precisions", "By precision", _summary(ranked) + parts)
    yield Section("problems", "All problems", '<div id="table-problems"></div>')


def _summary(ranked: Sequence[Ranking]) -> str:
    headings: dict[str, page.Kind] = {"precision": "word", "ranked by": "prose"}
    names = ("problems", "at least as fast", "lowest", "geometric mean", "highest")
    headings |= dict.fromkeys(names, "number")
    rows = []
    for each in ranked:
        values = [value for value in each.values(each.rows)["hot"] if value]
        tied = sum(value >= 1 for value in values) / len(values)
        ends = (min(values), geometric_mean(values), max(values))
        cells = [ratio(value) if each.vendor else f"{value:,.1f}" for value in ends]
        share = percent(tied, 0) if each.vendor else "–"
        rows.append((each.name, f"{each.measure}, hot", count(len(values)), share, *cells))
    return page.table(headings, rows, "Problems by precision, hot")


def _part(place: int, ranking: Ranking, shown: bool) -> str:
    """The pictures of a ranking, to fold out."""
    others = f"; {count(ranking.others)} more are in the table alone" if ranking.others else ""
    plots = "".join(
        page.plot(
            f"ranking-{place}-{number}",
            f"{ranking.measure} of {len(rows)} problems. The table has the numbers.",
            f"{which.capitalize()}, by {escape(ranking.measure)}, hot.",
            "free",
        )
        for number, (which, rows) in enumerate(ranking.ends.items())
    )
    if len(ranking.ends) > 1:
        description = f"Number of problems by {ranking.measure}. The table has the numbers."
        last = "; the last bar has those of 2x and more" * bool(ranking.vendor)
        caption = f"Problems by {escape(ranking.measure)}{last}."
        histogram = page.plot(f"histogram-{place}", description, caption, "short")
        plots = f'{histogram}<div class="columns">{plots}</div>'
    return (
        f"<details{' open' if shown else ''}><summary><h3>{escape(ranking.name)}:</h3> "
        f"{_problems(ranking.rows)} by {escape(ranking.measure)}{others}</summary>"
        f"{plots}</details>"
    )
