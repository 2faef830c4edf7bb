"""The skeleton of pages: escaping, themes, number formats, tables, in the text and in a browser."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Literal

import pytest
from support.chromium import OpenedPage, opened

from autotune.errors import AutotuneError, MissingError
from autotune.report.pages import page
from autotune.report.pages.page import Section

Scheme = Literal["light", "dark"]
INK: dict[Scheme, str] = {"light": "rgb(28, 36, 48)", "dark": "rgb(230, 234, 240)"}
NASTY = '</script><script>alert("x")</script><!-- <b>&amp; \u2028 é'
FORMATS: dict[str, Callable[[float], str]] = {
    "timeUs": page.time_us,
    "percent": page.percent,
    "ratio": page.ratio,
    "count": page.count,
}
TABLE = {
    "columns": [{"name": "name", "kind": "text"}, {"name": "time", "kind": "time"}],
    "rows": [["b", 2.0], [f'a "{NASTY}", 1', 10.0], ["c", None]],
    "caption": NASTY,
    "file": "rows.csv",
}
FIGURE = {"data": [{"y": [1, 3, 2], "name": "y"}], "layout": {"xaxis": {}, "yaxis": {}}}


@pytest.fixture(autouse=True)
def _fresh() -> None:
    page.plotly_js.cache_clear()


def sample() -> str:
    sections = (
        Section("picture", NASTY, '<div class="plot" id="p" data-figure="p"></div>'),
        Section("far", "Far below", '<div style="height: 4000px"></div>'),
        Section("table", "Table", '<div id="t"></div><div class="plot" data-figure="q"></div>'),
    )
    data = {"figures": {"p": FIGURE, "q": FIGURE}, "table": TABLE}
    script = 'page.draw(page.data("figures")); page.table(document.getElementById("t"), '
    return page.document(NASTY, sections, data=data, script=script + 'page.data("table"));')


def written(folder: Path) -> Path:
    path = folder / "page.html"
    page.write(path, sample())
    return path


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedPage]:
    with opened(written(tmp_path_factory.mktemp("page"))) as result:
        yield result


def texts(shown: OpenedPage, selector: str) -> list[str]:
    return shown.page.locator(selector).all_inner_texts()


def test_data_cannot_end_its_script_element() -> None:
    encoded = page.encoded({"text": NASTY})
    assert "<" not in encoded
    assert json.loads(encoded) == {"text": NASTY}


def test_titles_are_escaped() -> None:
    assert page.escape(NASTY) in sample()
    assert NASTY not in sample()


def test_page_refers_to_no_other_file() -> None:
    text = sample().replace(page.plotly_js(), "")
    assert re.findall(r"(?:src|href)=\"(?!#)|url\(|@import", text) == []


def test_page_offers_no_button_that_uploads() -> None:
    script = page.asset("page.js")
    listed = re.search(r"modeBarButtons: \[(.+)\],$", script, re.MULTILINE)
    assert listed is not None, "plotly.js chooses the buttons"
    names = re.findall(r'"(\w+)"', listed[1])
    assert [name for name in names if f'name:"{name}"' not in page.plotly_js()] == []
    assert [name for name in names if re.search("cloud|share|send|edit|studio", name, re.I)] == []
    assert 'plotlyServerURL: ""' in script


def test_page_forbids_forms_and_loads() -> None:
    policy = re.search('Content-Security-Policy" content="([^"]+)"', sample())
    assert policy is not None
    assert {"default-src 'none'", "form-action 'none'", "base-uri 'none'"} <= {
        *policy[1].split("; ")
    }


def test_missing_plotly_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    with pytest.raises(MissingError, match=re.escape("pip install 'tile-autotune[report]'")):
        page.plotly_js()


def test_old_plotly_is_named_with_the_needed_one(monkeypatch: pytest.MonkeyPatch) -> None:
    old, offline = ModuleType("plotly"), ModuleType("plotly.offline")
    old.__version__ = "5.24.0"  # type: ignore[attr-defined]
    offline.get_plotlyjs = str  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "plotly", old)
    monkeypatch.setitem(sys.modules, "plotly.offline", offline)
    with pytest.raises(MissingError, match=r"plotly 5\.24\.0 is installed; pages need 6\.1\.1"):
        page.plotly_js()


def test_only_pages_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text("<!DOCTYPE html><title>My thesis</title>")
    with pytest.raises(AutotuneError, match="exists and is not a page of autotune"):
        page.write(path, sample())
    assert "My thesis" in path.read_text()
    path.unlink()
    for _ in range(2):
        page.write(path, sample())
    assert path.read_text("utf-8") == sample()


def test_unwritable_paths_are_one_clear_line(tmp_path: Path) -> None:
    for path, reason in (
        (tmp_path, "it is a directory"),
        (tmp_path / "missing" / "page.html", "No such file or directory"),
        (Path("/dev/full"), "No space left on device"),
    ):
        message = rf"cannot write {path}: {reason} \(4 bytes\); give another"
        with pytest.raises(AutotuneError, match=message):
            page.write(path, "text")


@pytest.mark.parametrize(
    ("value", "shown"),
    [(1234567.0, "1.235 s"), (188.27, "188.3 µs"), (0.5, "500.0 ns"), (99999.0, "100.00 ms")],
)
def test_times_have_four_digits(value: float, shown: str) -> None:
    assert page.time_us(value) == shown


def test_numbers_are_python_s_in_the_page(shown: OpenedPage) -> None:
    random = Random(1)
    values = [random.choice((1, -1)) * 10 ** random.uniform(-3, 9) for _ in range(500)]
    for name, form in FORMATS.items():
        script = f"values => values.map(value => page.{name}(value))"
        assert shown.page.evaluate(script, values) == [form(value) for value in values], name
    script = 'values => values.map(value => page.quantity(value, "B/s"))'
    quantities = {0.0: "0.000 B/s", 999.94: "999.9 B/s", 4.8144e12: "4.814 TB/s"}
    quantities |= {6.7e13: "67.00 TB/s", 3e15: "3,000 TB/s", 2.5e4: "25.00 kB/s"}
    assert shown.page.evaluate(script, [*quantities]) == [*quantities.values()]


# Adds a visible picture and one below the window, and says which are drawn with the first.
DRAW_TWO = """figure => new Promise(resolve => {
  const places = [["seen", 0], ["below", innerHeight + 50]].map(([name, top]) => {
    const place = document.createElement("div");
    place.dataset.figure = name;
    place.style = `position: absolute; top: ${top}px; width: 300px; height: 200px`;
    document.body.append(place);
    return place;
  });
  const isDrawn = place => place.querySelector(".main-svg") !== null;
  new MutationObserver(() => { if (places.some(isDrawn)) resolve(places.map(isDrawn)); })
    .observe(document.body, {subtree: true, childList: true});
  page.draw({seen: figure, below: figure});
})"""


def test_visible_pictures_are_drawn_before_those_below(shown: OpenedPage) -> None:
    assert shown.page.evaluate(DRAW_TWO, FIGURE) == [True, False]
    shown.page.locator("[data-figure=below] .main-svg").first.wait_for(state="attached")


@pytest.mark.parametrize(
    ("width", "schemes"), [(400, ("dark", "light")), (1600, ("light", "dark"))]
)
def test_page_draws_without_complaint(
    tmp_path: Path, width: int, schemes: tuple[Scheme, ...]
) -> None:
    with opened(written(tmp_path), width=width, scheme=schemes[0]) as shown:
        for scheme in schemes:
            shown.page.emulate_media(color_scheme=scheme)
            shown.draw_everything()
            assert len(texts(shown, ".main-svg .scatterlayer .trace")) == 2
            background = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert background == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(20, 24, 31)")
            assert shown.overflow == 0
            assert shown.faults == []
            assert shown.page.locator("h1").text_content() == NASTY


def test_pictures_follow_a_change_of_colours(shown: OpenedPage) -> None:
    expect = pytest.importorskip("playwright.sync_api").expect
    shown.draw_everything()
    tick = shown.page.locator("#p .xtick text").first
    for scheme, colour in INK.items():
        shown.page.emulate_media(color_scheme=scheme)
        expect(tick).to_have_css("fill", colour)


def test_table_sorts_filters_and_exports(shown: OpenedPage, tmp_path: Path) -> None:
    column = "#t tbody td:last-child"
    assert texts(shown, column) == ["2.000 µs", "10.00 µs", "–"]
    time = shown.page.get_by_role("button", name="time")
    time.click()
    time.click()
    assert texts(shown, column) == ["10.00 µs", "2.000 µs", "–"]
    assert shown.page.locator("th[aria-sort=descending]").inner_text().startswith("time")
    shown.page.get_by_label("Filter").fill("ALERT a")
    assert texts(shown, column) == ["10.00 µs"]
    assert "1 of 3 rows" in shown.page.locator("#t [role=status]").inner_text()
    with shown.page.expect_download() as download:
        shown.page.get_by_role("button", name="Save as CSV").click()
    saved = tmp_path / "rows.csv"
    download.value.save_as(saved)
    with saved.open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file)) == [["name", "time"], [f'a "{NASTY}", 1', "10"]]
    assert shown.faults == []
