"""Texts in tables are printed as they are."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.table import Table
from rich.text import Text

from autotune.report.tables import PlainConsole


def shown(*cells: str | Text, title: str = "") -> str:
    table = Table(title=title, box=None)
    for _ in cells:
        table.add_column("[b]name[/b]", overflow="fold")
    table.add_row(*cells)
    console = PlainConsole(file=StringIO(), width=200, force_terminal=True, color_system=None)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


@pytest.mark.parametrize("text", ["k[/nope].json", "a[bold red]b", "[/b]", ":smile:", "[link=x]"])
def test_markup_is_plain_text(text: str) -> None:
    assert text in shown(text, title=text)


def test_escape_sequences_become_visible() -> None:
    assert r"x\x1b[2J\x1b]0;t\x9b" in shown("x\x1b[2J\x1b]0;t\x9b")


def test_escape_sequences_of_styled_texts_stay_off_the_terminal() -> None:
    assert "\x1b" not in shown(Text("x\x1b[2J\x1b]0;t\x9b", "bold"))


def test_line_end_in_a_cell_forges_no_line() -> None:
    assert not any(
        line.strip() == "error: forged" for line in shown("a\nerror: forged").split("\n")
    )


def test_printed_line_stays_one_line() -> None:
    console = PlainConsole(file=StringIO(), width=200)
    with console.capture() as captured:
        console.print("a\nerror: forged [b]x[/b]")
    assert captured.get() == "a\\nerror: forged [b]x[/b]\n"
