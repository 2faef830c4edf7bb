"""Tables of the documents that are made from result files."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import batch_invariant
import compiled_models
import pytest
import results
from results import PAGE, measured_page, table_of, with_table

LINES = ["| a | b |", "|---|---|", "| 1 | 2 |"]


def test_table_replaces_that_of_the_page() -> None:
    page = "before\n\n<!-- some title: old.json -->\n| old |\n<!-- end -->\n\nafter\n"
    written = with_table(page, "some title", "new.json", LINES)
    assert table_of(written, "some title") == ("new.json", "\n" + "\n".join(LINES) + "\n\n")
    assert written.startswith("before\n\n<!-- some title: new.json -->\n\n| a | b |\n")
    assert written.endswith("|\n\n<!-- end -->\n\nafter\n")
    assert with_table(written, "some title", "new.json", LINES) == written


@pytest.mark.parametrize("page", ["", 2 * "<!-- some title: old.json -->\n<!-- end -->\n"])
def test_page_needs_one_place_for_a_table(page: str) -> None:
    with pytest.raises(ValueError, match=r"results\.md has [02] places for the table"):
        with_table(page, "some title", "new.json", LINES)


@pytest.mark.parametrize("script", [batch_invariant, compiled_models])
def test_documents_have_the_table_of_their_file(script: ModuleType) -> None:
    file, lines = table_of(text := PAGE.read_text("utf-8"), script.TITLE)
    path = PAGE.parent / file
    if path.exists():
        assert measured_page(text, script.TITLE, path, script.markdown) == text
    else:
        assert lines == "\nNot measured yet.\n\n"


def test_table_has_its_caption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "ROOT", tmp_path)
    monkeypatch.setattr(results, "PAGE", page := tmp_path / "docs" / "results.md")
    path = page.parent / "results" / "h100" / "new.json"
    path.parent.mkdir(parents=True)
    made = results.provenance("NVIDIA H100", "", "", cublas="13.1.0", date="2026-11-26T12:00")
    path.write_text(json.dumps({**made, "rows": [{"a": 1}]}))
    page.write_text("<!-- some title: results/old.json -->\n\nNot measured yet.\n\n<!-- end -->\n")
    results.write_table("some title", path, lambda rows: [f"| {row['a']} |" for row in rows])
    assert page.read_text() == (
        "<!-- some title: results/h100/new.json -->\n\n"
        "*NVIDIA H100, 2026-11-26, cuBLAS 13.1.0.* <!-- h100/new.json -->\n\n"
        "| 1 |\n\n<!-- end -->\n"
    )
