"""The report's pages in a browser: drawn, readable, sorted, exported, and safe to open."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import plotly.graph_objects
import pytest
from support.chromium import OpenedPage, opened
from support.fake_runner import UNKNOWN
from support.sample_records import H100
from support.sample_subject import by_hand, user_kernel
from support.swept_page import analysis, swept_subject
from support.swept_page import page as page
from support.swept_page import swept as swept

from autotune.families.config import Config, Value
from autotune.measure.measurement import Failure, Measurement
from autotune.problem import Problem
from autotune.records import Record
from autotune.records.kernel_record import KernelEntry
from autotune.report.pages import overview
from autotune.report.pages.figures import Figure
from autotune.report.pages.overview import Overview
from autotune.report.pages.page import write
from autotune.report.trials import Subject, subject_of
from autotune.tuning.trial_log import FinishedTrial
from autotune.tuning.trials import Trial

DRAWN = "[...document.querySelectorAll('[data-figure]')].filter(one => one.calcdata.length).length"
"""Number of pictures with a trace in them."""

NASTY = "</script><script>document.title='owned'</script><b>&amp;\"' ${1}"


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1600, "light")])
def test_record_page_draws_every_picture(
    page: Path, width: int, scheme: Literal["light", "dark"]
) -> None:
    with opened(page, width=width, scheme=scheme) as shown:
        shown.draw_everything()
        figures = shown.page.evaluate("Object.keys(page.data('figures'))")
        assert len(figures) == 6
        assert shown.page.evaluate(DRAWN) == len(figures)
        assert shown.overflow == 0
        assert shown.faults == []


def nasty_subject() -> Subject:
    """A record with HTML in every text that may hold it."""
    subject = by_hand()
    values: dict[str, Value] = {NASTY: NASTY, "other": 1}
    trials = [
        replace(
            row, trial=replace(row.trial, config=Config.of(NASTY, values | {"n": n, "m": n % 2}))
        )
        for n, row in enumerate(subject.trials)
    ]
    failed = Trial(Config.of(NASTY, values), Failure("verify", NASTY))
    entry = trials[0].trial.entry
    assert entry is not None
    made = KernelEntry.of(entry)
    entries = (replace(made, limiter=NASTY), replace(made, config=trials[1].trial.config))
    call = replace(user_kernel().call, name=NASTY, arguments=(NASTY,))
    provenance = replace(subject.record.provenance, compiler=NASTY)
    record = replace(
        user_kernel(),
        call=call,
        entries=entries,
        device=replace(H100, name=f"A {NASTY}"),
        provenance=provenance,
    )
    return Subject(record, (*trials, FinishedTrial(failed, 9.0)), NASTY)


def test_names_with_html_in_them_are_shown_as_they_are(tmp_path: Path) -> None:
    subject = nasty_subject()
    data = analysis(subject)
    data = replace(data, headline=replace(data.headline, stale=NASTY, changed=NASTY))
    write(tmp_path / "page.html", data.page())
    with opened(tmp_path / "page.html") as shown:
        shown.draw_everything()
        title = f"{nasty_subject().record.title} on A {NASTY}"
        assert shown.page.title() == title
        assert shown.page.locator("h1").text_content() == title
        assert shown.page.locator("b").count() == 0
        assert NASTY in shown.page.locator("#table-trials").inner_text()
        assert shown.faults == []


def large(count: int) -> Subject:
    """A search of that many trials of the fast kernels, as long as real ones in every field."""
    swept = swept_subject()
    simt = [row.trial for row in swept.trials if row.trial.config.family == "simt"]
    trials = []
    for number in range(count):
        trial = simt[number % len(simt)]
        params = dict(trial.config.params) | {"group": number}
        measured = Measurement(9.0 + number / 7, 0.123, 20, 11.0 + number / 7, 1e-5 / 3, 1e-3)
        config = Config.of("simt", params)
        trials.append(FinishedTrial(replace(trial, config=config, outcome=measured), number / 3))
    return replace(swept, trials=tuple(trials))


def test_report_of_3000_trials_stays_small(tmp_path: Path) -> None:
    text = analysis(large(3000)).page()
    assert len(text.encode()) < 8e6
    write(tmp_path / "page.html", text)
    with opened(tmp_path / "page.html") as shown:
        assert shown.page.locator("#search .main-svg").count() >= 1
        assert shown.page.locator("#table-trials tbody tr").count() == 100
        shown.page.get_by_role("button", name="Show all 3,000 rows").click()
        assert shown.page.locator("#table-trials tbody tr").count() == 3000
        assert shown.faults == []


@pytest.mark.parametrize("kind", ["one", "kernel", "failed"])
def test_sparse_records_have_pages(kind: str, tmp_path: Path) -> None:
    record = by_hand().record
    subjects = {
        "one": subject_of(replace(record, entries=record.entries[:1]), tmp_path),
        "kernel": subject_of(user_kernel(), tmp_path),
        "failed": replace(by_hand(), trials=by_hand().trials[4:5]),
    }
    write(tmp_path / "page.html", analysis(subjects[kind]).page())
    with opened(tmp_path / "page.html", width=400) as shown:
        shown.draw_everything()
        assert shown.page.locator("#table-trials tbody tr").count() == len(subjects[kind].trials)
        assert shown.overflow == 0
        assert shown.faults == []


def many() -> Overview:
    """Problems of two precisions and devices: 3 in fp32, 60 in bf16, and 40 on the other device."""
    base = by_hand().record
    assert isinstance(base, Record)
    problems = [Problem(m, 8, 8) for m in (1, 2, 3)]
    problems += [Problem(m, 1024, 256, "bf16") for m in range(1024, 1084)]
    rows = [
        overview.record_row(
            replace(
                base,
                problem=problem,
                baseline=Measurement(8.0 + number / 10, library="13.1.0"),
                provenance=replace(base.provenance, trials=2000 + number),
            ),
            UNKNOWN,
        )
        for number, problem in enumerate(problems)
    ]
    rows = [replace(row, stale=NASTY, changed=NASTY) for row in rows]
    return Overview((*rows, *(replace(row, device="Another GPU") for row in rows[-40:])))


@pytest.fixture(scope="module")
def overviewed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedPage]:
    path = tmp_path_factory.mktemp("overview") / "page.html"
    write(path, many().page())
    with opened(path, width=400, scheme="dark") as shown:
        yield shown


PRINTED = """() => addEventListener("beforeprint", () => {
  const all = (selector, of) => [...document.querySelectorAll(selector)].map(of);
  window.printed = {
    closed: all("details:not([open])", part => part.id).length,
    drawn: all("[data-figure]", place => place.calcdata?.length > 0),
    pictures: all(".main-svg", part => part.getBoundingClientRect().right),
    tables: all("table", part => part.getBoundingClientRect().right),
    ink: all(".xtick text", text => getComputedStyle(text).fill),
    ground: getComputedStyle(document.body).backgroundColor,
  };
})"""
"""Notes how the page is when it is printed."""

PAPER, LANDSCAPE = 186 * 96 / 25.4, 273 * 96 / 25.4
"""CSS pixels of A4 between margins of 12 mm, upright and on its side."""


def test_printed_page_is_light_whole_and_unclipped(overviewed: OpenedPage) -> None:
    page = overviewed.page
    closed = page.locator("details:not([open])").count()
    page.evaluate(PRINTED)
    assert page.pdf(format="A4").startswith(b"%PDF")
    printed = page.evaluate("window.printed")
    assert (closed, printed["closed"]) == (3, 0)
    assert printed["drawn"] == [True] * 5
    assert 400 < max(printed["pictures"]) <= PAPER
    assert max(printed["tables"]) <= LANDSCAPE
    assert {*printed["ink"]} == {"rgb(28, 36, 48)"}
    assert printed["ground"] == "rgb(255, 255, 255)"
    assert page.locator("details:not([open])").count() == closed
    assert (
        page.locator(".xtick text").first.evaluate("one => getComputedStyle(one).fill")
        != (printed["ink"][0])
    )
    assert overviewed.overflow == 0


def test_overview_of_many_problems_is_short(overviewed: OpenedPage) -> None:
    page = overviewed.page
    assert page.evaluate("document.documentElement.scrollHeight") < 3000
    assert page.locator("#precisions tbody tr").count() == 3
    assert page.locator("#table-problems tbody tr").count() == 100
    closed = page.locator("details:not([open]) > summary")
    while closed.count():
        closed.first.focus()
        page.keyboard.press("Enter")
    overviewed.draw_everything()
    assert page.evaluate(DRAWN) == 5
    names = page.locator("summary h3").all_inner_texts()
    places = "on NVIDIA H100 80GB HBM3:", "on Another GPU:"
    assert names == [*(f"{name} {places[0]}" for name in ("fp32", "bf16")), f"bf16 {places[1]}"]
    assert overviewed.overflow == 0
    assert overviewed.faults == []


# The rankings of other problems than the page's: their titles, ratios and TFLOP/s.
RANKED = """problems => {
  const columns = ["title", "precision", "device", "vendor", "over_hot", "over_cold", "tflops"]
    .map(name => ({name}));
  const rows = problems.map(([title, ratio, tflops]) =>
    [title, "fp32", "H100", "cuBLAS", ratio, ratio && ratio * 2, tflops]);
  const place = document.createElement("div");
  const figures = rank(place, {columns, rows, precisions: ["fp32"]});
  return {figures, text: place.textContent};
}"""


def ends(figures: dict[str, Figure]) -> list[dict[str, Any]]:
    """The hot series of a ranking's fastest, slowest and histogram, which plotly accepts."""
    for figure in figures.values():
        plotly.graph_objects.Figure(figure)
    return [figures[name]["data"][0] for name in ("ranking-0-0", "ranking-0-1", "histogram-0")]


def test_rankings_have_both_ends_and_a_histogram(overviewed: OpenedPage) -> None:
    problems = [[f"{n}<b>", [0.9, 1.0, 1.04, 2.0, 7.0][n // 12] + n / 1e4, 3.0] for n in range(60)]
    ranked = overviewed.page.evaluate(RANKED, [*problems, ["untimed", None, 9.0]])
    top, bottom, histogram = ends(ranked["figures"])
    assert top["y"][::-1] == [f"{n}&lt;b&gt;" for n in range(59, 34, -1)]
    assert bottom["y"] == [f"{n}&lt;b&gt;" for n in range(25)]
    steps = dict(zip(histogram["customdata"], histogram["y"], strict=True))
    assert steps == {"0.90x to 0.95x": 12, "1.00x to 1.05x": 24, "2x and more": 24}
    assert "Fastest 25, by speed over cuBLAS, hot." in ranked["text"]
    assert "60 problems by speed over cuBLAS; 1 more are in the table alone" in ranked["text"]
    assert "fp32speed over cuBLAS6080%0.90x" in ranked["text"]


def test_problems_without_cublas_rank_by_their_speed(overviewed: OpenedPage) -> None:
    problems = [[f"{n}x1x1", None, 1.0 + n] for n in range(51)]
    ranked = overviewed.page.evaluate(RANKED, problems)
    top, _, histogram = ends(ranked["figures"])
    assert sum(histogram["y"]) == 51
    assert top["y"][-1] == "50x1x1"
    assert "Slowest 25, by TFLOP/s, hot." in ranked["text"]


@pytest.mark.parametrize(
    ("typed", "left"),
    [
        ("FP32", 3),
        ("1030\u00d71024\u00d7256", 1),
        ("2,006", 1),
        ("2006", 1),
        ("1030 trials=2009", 1),
        ("nvidia h100 80gb", 63),
        ("simt:family=tiled,precision=fp32", 0),
        ("tiled:family=tiled,precision=fp32", 3),
        ("10.00 \u03bcs 0.80x", 1),
        ("2026-11-21 another", 40),
    ],
)
def test_filter_finds_what_the_page_prints(overviewed: OpenedPage, typed: str, left: int) -> None:
    overviewed.page.get_by_label("Filter").fill(typed)
    assert overviewed.page.locator("#table-problems tbody tr").count() == left
    overviewed.page.get_by_label("Filter").fill("")


def test_axe_finds_nothing_in_an_overview(overviewed: OpenedPage) -> None:
    overviewed.page.get_by_label("Filter").fill("fp32")  # axe takes long over many rows
    assert overviewed.violations() == []
    overviewed.page.emulate_media(color_scheme="light")
    assert overviewed.violations("color-contrast") == []
