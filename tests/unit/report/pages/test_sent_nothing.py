"""Pages drawn by plotly.js in a browser: they ask for nothing and offer nothing that uploads."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from support.chromium import opened
from support.fake_runner import UNKNOWN
from support.sample_subject import by_hand
from support.swept_page import analysis

from autotune.report.pages.overview import Overview, record_row
from autotune.report.pages.page import write


def overview() -> str:
    record = by_hand().record
    row = record_row(record, UNKNOWN)
    return Overview((row,)).page()


PAGES: dict[str, Callable[[], str]] = {
    "report": lambda: analysis(by_hand()).page(),
    "overview": overview,
}


@pytest.mark.parametrize("kind", PAGES)
def test_page_asks_for_nothing_and_uploads_nothing(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    write(path, PAGES[kind]())
    with opened(path) as shown:
        shown.page.locator(".plot .modebar-btn").first.wait_for(state="attached")
        shown.draw_everything()
        titles = shown.page.locator(".modebar-btn").evaluate_all(
            "all => all.map(button => button.dataset.title)"
        )
        server = shown.page.evaluate(
            "[...document.querySelectorAll('.plot')].map(p => p._context?.plotlyServerURL ?? '')"
        )
    assert len({*titles}) == 6
    assert [title for title in titles if re.search("share|cloud|send|edit", title, re.I)] == []
    assert {*server} == {""}
    assert shown.faults == []
