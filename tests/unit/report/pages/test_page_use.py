"""A record's page in use: by keyboard and screen reader, sorted, filtered and exported."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.chromium import OpenedPage, opened
from support.swept_page import page as page
from support.swept_page import swept as swept

from autotune.report.trials import Subject


@pytest.fixture(scope="module")
def shown(page: Path) -> Iterator[OpenedPage]:
    with opened(page) as result:
        result.draw_everything()
        yield result


def cells(shown: OpenedPage, column: int) -> list[str]:
    return shown.page.locator(f"#table-trials tbody td:nth-child({column})").all_inner_texts()


def test_record_page_is_fit_for_screen_readers(shown: OpenedPage) -> None:
    page = shown.page
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator("h1").count() == 1
    assert page.locator("[data-figure]:not([role=group])").count() == 0
    assert page.locator("[data-figure]:not([aria-label])").count() == 0
    assert page.locator("section:not([aria-labelledby])").count() == 0
    assert page.locator("table:not(:has(caption))").count() == 0
    for control in page.locator("select, input").all():
        assert control.evaluate("control => control.labels.length") == 1
    links = page.locator("nav a").evaluate_all("links => links.map(link => link.hash.slice(1))")
    sections = page.locator("section").evaluate_all("parts => parts.map(part => part.id)")
    assert links == sections


def test_axe_finds_nothing_in_a_record(shown: OpenedPage) -> None:
    shown.page.evaluate("for (const part of document.querySelectorAll('details')) part.open = true")
    shown.page.get_by_label("Filter").fill("naive")  # axe takes long over many rows
    assert shown.violations() == []
    shown.page.emulate_media(color_scheme="dark")
    assert shown.violations("color-contrast") == []
    shown.page.get_by_label("Filter").fill("")


def test_trials_sort_by_keyboard(shown: OpenedPage) -> None:
    heading = shown.page.locator("#table-trials th").nth(2)
    heading.locator("button").focus()
    shown.page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "ascending"
    numbers = shown.page.evaluate(
        "page.data('tables').trials.rows.map(row => row[2]).filter(time => time !== null)"
    )
    fastest = shown.page.evaluate("page.timeUs", min(numbers))
    assert cells(shown, 3)[0] == fastest
    shown.page.keyboard.press("Enter")
    assert heading.get_attribute("aria-sort") == "descending"
    assert cells(shown, 3)[0] == shown.page.evaluate("page.timeUs", max(numbers))


def test_filtered_trials_are_exported(shown: OpenedPage, swept: Subject, tmp_path: Path) -> None:
    shown.page.locator("#trials").get_by_label("Filter").fill("naive")
    with shown.page.expect_download() as download:
        shown.page.locator("#trials").get_by_role("button", name="Save as CSV").click()
    download.value.save_as(tmp_path / "trials.csv")
    shown.page.locator("#trials").get_by_label("Filter").fill("")
    with (tmp_path / "trials.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    naive = [row.trial for row in swept.trials if row.trial.config.family == "naive"]
    assert sorted(float(row["time_us"]) for row in rows) == sorted(trial.time_us for trial in naive)
