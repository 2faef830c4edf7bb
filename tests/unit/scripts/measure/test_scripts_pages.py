"""Tables of the documents that are made from result files."""

from __future__ import annotations

import json
from types import ModuleType

import batch_invariant
import compiled_models
import pytest
import results
from results import PAGE, table_of, with_table

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
    path = results.PAGE.parent / file
    if path.exists():
        rows = json.loads(path.read_text("utf-8"))["rows"]
        assert with_table(text, script.TITLE, file, script.markdown(rows)) == text
    else:  # it is not measured yet
        assert lines == ""
