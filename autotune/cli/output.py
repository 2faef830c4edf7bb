"""How verbs print their results."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
"""Seconds of each unit of time on the command line."""

PIPE_WIDTH = 160
"""Columns of tables where the output is not a terminal: wide enough for all of them."""

RECORD_WIDTH = 80
"""Columns of a record where the output is not a terminal."""

LEAST_WIDTH = 80
"""Columns that tables of many columns take even on a narrower terminal."""


class Interrupted(Exception):
    """A signal ended the verb; the text, if any, says what became of its work."""


def show(renderable: RenderableType, width: int = PIPE_WIDTH, *, least: int = 0) -> None:
    """Prints a table.

    Args:
        renderable: the table.
        width: columns where the output is not a terminal.
        least: columns on a narrower terminal, which then wraps the lines: no figure is cut off.
    """
    from rich.console import Console

    # A closed standard output is None.
    terminal = sys.stdout is not None and sys.stdout.isatty()
    console = Console(width=None if terminal else width)
    if console.width < least:
        console = Console(width=least)
    if not console.options.ascii_only:
        console.print(renderable)
        return
    with console.capture() as captured:
        console.print(renderable)
    # An escape in its place would be six characters wide.
    print(captured.get().replace("…", "~"), end="")


def show_csv(names: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Prints rows as CSV with a header."""
    import csv

    if sys.stdout is None:  # closed
        return
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)


def show_json(data: object) -> None:
    """Prints data as indented JSON."""
    print(json.dumps(data, indent=2, allow_nan=False))
