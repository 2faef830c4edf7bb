"""Figures: what plotly accepts, and text that it shows as it is."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

import plotly.graph_objects
import plotly.io
from support.sample_subject import by_hand, user_kernel
from support.swept_page import analysis

from autotune.report.pages import figures, page
from autotune.report.pages.overview import (
    Overview,
    OverviewRow,
    ratio_figure,
)
from autotune.report.pages.parameters import ParameterCost, ValueCost, cost_figure
from autotune.report.pages.search import search_figure
from autotune.report.trials import subject_of

NASTY = "<b>&amp;<script>"
NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)


def row(title: str, hot: float | None) -> OverviewRow:
    return OverviewRow(
        title=title,
        device="H100",
        evidence="measured",
        family="simt",
        tflops=2.0,
        roofline_share=0.5,
        cold_roofline_share=0.4,
        over_hot=hot,
        over_cold=hot,
        age="1 d ago",
        how="tuned",
        time_us=1.0,
        trials=30,
    )


def overview_text(*rows: OverviewRow) -> str:
    return Overview(rows).page()


def accepted(figure: figures.Figure) -> None:
    """Fails if plotly does not know a property or refuses its value."""
    plotly.graph_objects.Figure(figure)


def test_shares_of_the_roofline_say_what_is_compared() -> None:
    assert "hot: without the data that L2 holds; cold: every matrix is moved once" in overview_text(
        row("64x64x64", 1.0)
    )
    page = analysis(by_hand()).page()
    for remark in ("without the data that L2 holds", "every matrix moved once"):
        assert f"<small>{remark}</small>" in page


def test_configurations_may_break_behind_commas() -> None:
    assert "bm=1,<wbr>bn=2" in page.table({"example": "prose"}, [("bm=1,bn=2",)], "")
    assert "simt,1" in page.table({"family": "word"}, [("simt,1",)], "")


def test_plotly_accepts_the_pictures_of_a_record() -> None:
    figures = analysis(by_hand()).figures()
    assert list(figures) == [
        *("search", "roofline", "parameters"),
        *("occupancy-threads", "occupancy-registers", "occupancy-shared"),
    ]
    for figure in figures.values():
        accepted(figure)


def test_plotly_accepts_the_pictures_of_a_user_kernel(tmp_path: Path) -> None:
    figures = analysis(subject_of(user_kernel(), tmp_path)).figures()
    assert "roofline" not in figures
    for figure in figures.values():
        accepted(figure)


def test_plotly_accepts_the_pictures_of_several_problems() -> None:
    accepted(ratio_figure([row("a", 1.2), row("b", 0.9), row("c", None)]))


def test_failures_are_drawn_by_stage_above_the_times() -> None:
    steps = analysis(by_hand()).steps
    names = {trace["name"]: trace for trace in search_figure(steps, 9.0)["data"]}
    assert list(names) == ["tiled", "best so far", "cuBLAS", "failed: compile"]
    assert names["tiled"]["y"] == [20.0, 16.0, 12.0, 10.0, 11.0]
    assert names["best so far"]["y"] == [20.0, 16.0, 12.0, 10.0, 10.0, 10.0]
    assert names["failed: compile"]["x"] == [5]
    assert min(names["failed: compile"]["y"]) > 20.0


def test_names_are_not_read_as_markup() -> None:
    value = ValueCost(NASTY, 1.0, 0.0, 1)
    _, trace = cost_figure([ParameterCost(NASTY, (value,), 0.0)])["data"]
    assert trace["y"] == trace["text"] == ["&lt;b&gt;&amp;amp;&lt;script&gt;"]
    assert figures.axis(NASTY)["title"]["text"] == "&lt;b&gt;&amp;amp;&lt;script&gt;"
    assert figures.config_text(f"a:{NASTY}=1") == "a: &lt;b&gt;&amp;amp;&lt;script&gt;=1"


def test_labels_of_near_values_are_joined() -> None:
    costs = analysis(by_hand()).costs
    losses = (replace(value, loss=0.001 * n) for n, value in enumerate(costs[0].values))
    near = replace(costs[0], values=tuple(losses))
    (_, values) = cost_figure([near, costs[1]])["data"]
    assert "8, 16, 32" in values["text"]
