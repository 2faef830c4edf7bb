"""Figures: what plotly accepts, and text that it shows as it is."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import plotly.graph_objects
import plotly.io
from support.sample_subject import by_hand, user_kernel
from support.swept_page import analysis

from autotune.report.pages import figures, page
from autotune.report.pages.overview import Overview, OverviewRow
from autotune.report.pages.parameters import ParameterCost, ValueCost, cost_figure
from autotune.report.pages.search import final_sentence, search_figure, search_steps
from autotune.report.trials import subject_of

NASTY = "<b>&amp;<script>"


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
        date="2026-11-21T12:00:00Z",
        precision="fp32",
        vendor="cuBLAS",
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
    assert "hot: without the data that L2 holds; cold: every matrix moved once" in overview_text(
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


def test_failures_are_drawn_by_stage_above_the_times() -> None:
    steps = analysis(by_hand()).steps
    names = {trace["name"]: trace for trace in search_figure(steps, "", 9.0)["data"]}
    assert list(names) == ["tiled", "best of the search", "cuBLAS", "failed: compile"]
    assert names["tiled"]["y"] == [20.0, 16.0, 12.0, 10.0, 11.0]
    assert names["best of the search"]["y"] == [20.0, 16.0, 12.0, 10.0, 10.0, 10.0]
    assert names["failed: compile"]["x"] == [5]
    assert min(names["failed: compile"]["y"]) > 20.0


def test_lucky_sample_stands_beside_the_final_times() -> None:
    """The fourth trial took 10 us in the search and 12.5 us in the final round; the last won."""
    subject = by_hand()
    lucky, won = subject.record.entries
    assert (lucky.measurement.time_us, won.measurement.time_us) == (10.0, 11.0)
    again = replace(lucky, measurement=replace(lucky.measurement, time_us=12.5))
    finals = replace(won, measurement=replace(won.measurement, time_us=11.25))
    subject = replace(subject, record=replace(subject.record, entries=(finals, again)))
    steps, page = search_steps(subject), analysis(subject)
    names = {trace["name"]: trace for trace in page.figures()["search"]["data"]}
    star, circles = names["winner, final time"], names["finalist, final time"]
    assert (star["x"], star["y"]) == ([6], [11.25])
    assert (circles["x"], circles["y"]) == ([4], [12.5])
    sentence = final_sentence(steps, page.headline.config)
    assert sentence == (
        "The final round timed 2 finalists again, interleaved: the winner took 11.25 µs there and "
        "11.00 µs in the search. The lowest time of the search, 10.00 µs, is of a configuration "
        "that took 12.50 µs when timed again."
    )
    assert sentence in page.page()


def test_search_without_a_final_round_claims_none() -> None:
    page = analysis(by_hand())
    assert final_sentence(page.steps, page.headline.config) == ""
    assert not any("final" in trace["name"] for trace in page.figures()["search"]["data"])


def test_series_differ_by_more_than_colour() -> None:
    subject = by_hand()
    families = ("tiled", "simt", "mma")
    trials = [
        replace(row, trial=replace(row.trial, config=replace(row.trial.config, family=family)))
        for row, family in zip(subject.trials, families, strict=False)
    ]
    steps = search_steps(replace(subject, trials=tuple(trials)))
    markers = [trace["marker"]["symbol"] for trace in search_figure(steps, "")["data"][:3]]
    assert len({*markers}) == 3


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
