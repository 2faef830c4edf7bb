"""How verbs print their results."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

from autotune.files.decoding import visible

if TYPE_CHECKING:
    from rich.console import RenderableType

SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}
"""Seconds of each unit of time on the command line."""


class Interrupted(Exception):
    """A signal ended the verb; the text, if any, says what became of its work."""


def show(renderable: RenderableType) -> None:
    """Prints texts and tables: as wide as the terminal, elsewhere without wrapping a line."""
    from autotune.report.console import PlainConsole
    from autotune.report.tables import natural_width

    # A closed standard output is None.
    terminal = sys.stdout is not None and sys.stdout.isatty()
    console = PlainConsole()
    if not terminal:
        console = PlainConsole(width=natural_width(console, renderable))
    console.print(renderable, crop=False)


def show_line(text: str, file: TextIO | None = None) -> None:
    """Prints one line, whatever a path or a reason in it holds."""
    print(visible(text), file=file)


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
