"""The tables of all reports: numbers are never cut, columns of less worth go first."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import replace
from io import StringIO
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.containers import Lines
from rich.measure import Measurement
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from autotune.files.decoding import visible


class PlainConsole(Console):
    """A console that prints texts as they are, their control characters as escapes such as `\\x1b`.

    Takes the arguments of `rich.console.Console`.
    """

    def __init__(self, **arguments: Any) -> None:
        super().__init__(markup=False, emoji=False, **arguments)

    def render_str(self, text: str, **arguments: Any) -> Text:
        return super().render_str(visible(text), **arguments)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            # Control segments, which move the cursor, come from rich itself.
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                lines = map(visible, segment.text.split("\n"))
                yield Segment("\n".join(lines), segment.style)


Kind = Literal["number", "text", "prose"]
"""The setting of a column: numbers to the right and texts to the left, both whole; prose in
lines."""

PADDING = 2
"""Blanks behind each column."""

PROSE = 24
"""Columns of the terminal that prose takes at least, unless it is shorter."""

ROOM = 12
"""Columns of the terminal for the words of `OneLine`, at least."""

WIDTH = 80
"""Columns of a printed record, as on the command line, and of its title unless that is longer."""

WIDE = 120
"""Columns of a table of several problems in Python."""

_BREAKS = re.compile(r"\s+|,(?=[A-Za-z_])")
"""The places where a text may end a line."""

UNLIMITED = 1_000_000
"""Columns in which nothing wraps."""


class FittedTable(Table):
    """A table that leaves out columns where the terminal is too narrow for all of them.

    Columns go from the right, or by their worth; those that stay are wider than the terminal rather
    than cut.
    """

    def __init__(self, **settings: Any) -> None:
        super().__init__(box=None, padding=(0, PADDING, 0, 0), header_style="dim", **settings)
        self._worth: list[float] = []

    def add(self, *headings: str, kind: Kind = "number", worth: float | None = None) -> None:
        """Adds columns; by default the first stays, and each is worth less than the one before."""
        right = kind == "number"
        for heading in headings:
            first = math.inf if not self._worth else -len(self._worth)
            self._worth.append(first if worth is None else worth)
            self.add_column(
                Text(heading),  # of the package itself, so that its lines stay lines
                justify="right" if right else "left",
                no_wrap=kind != "prose",
                overflow="fold",
            )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        wide = options.update(width=UNLIMITED)
        measured = [self._measure_column(console, wide, column) for column in self.columns]
        kept = [*range(len(measured))]
        while sum(self._needed(place, measured) for place in kept) > options.max_width:
            last = min(kept, key=self._worth.__getitem__)
            if self._worth[last] == math.inf:
                break
            kept.remove(last)
        widths = {place: self._least(place, measured) for place in kept}
        for place in kept:  # what is left is for prose, and nothing is left of a narrow terminal
            room = max(0, options.max_width - sum(widths.values()))
            widths[place] = min(measured[place].maximum, widths[place] + room)
        options = options.update(width=max(options.max_width, sum(widths.values())))
        fitted = copy(self)
        fitted.columns = [
            replace(self.columns[place], _index=number, width=width - PADDING)
            for number, (place, width) in enumerate(widths.items())
        ]
        yield from Table.__rich_console__(fitted, console, options)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        widths = [self._measure_column(console, options, column).maximum for column in self.columns]
        return Measurement(0, sum(widths))

    def _least(self, place: int, measured: Sequence[Measurement]) -> int:
        """The width, with its padding, below which a column would cut words."""
        whole = self.columns[place].no_wrap
        return measured[place].maximum if whole else measured[place].minimum

    def _needed(self, place: int, measured: Sequence[Measurement]) -> int:
        """The width for which columns of less worth go."""
        return max(self._least(place, measured), min(measured[place].maximum, PROSE))


class ConfigText(Text):
    """A text that also wraps after the commas of a configuration, such as `tiled:a=1,b=2`."""

    def wrap(self, console: Console, width: int, **settings: Any) -> Lines:
        """The lines, each as long as the width allows."""
        lines: list[Text] = []
        for piece in self.divide(self._ends()):
            if lines and lines[-1].cell_len + cell_len(piece.plain.rstrip()) <= width:
                lines[-1].append_text(piece)
            else:
                lines.append(piece)
        wrapped = (Text.wrap(line, console, width, **settings) for line in lines)
        return Lines(part for parts in wrapped for part in parts)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        pieces = [cell_len(piece.plain.rstrip()) for piece in self.divide(self._ends())]
        return Measurement(max(pieces, default=0), self.cell_len)

    def _ends(self) -> list[int]:
        """The ends of the pieces that a line keeps together."""
        return [match.end() for match in _BREAKS.finditer(self.plain)]


class OneLine:
    """Words in one line; `...` stands for those that the terminal has no room for."""

    def __init__(self, words: str) -> None:
        self._words = words

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = self._words
        while cell_len(shown) > options.max_width:
            whole = shown.removesuffix(" ...")
            if not (breaks := [*_BREAKS.finditer(whole)]):
                break
            shown = f"{whole[: breaks[-1].start()]} ..."
        yield Text(shown.lstrip(), no_wrap=True, overflow="ignore")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(min(ROOM, cell_len(self._words)), cell_len(self._words))


class Titled:
    """A text with a word at the right end of a line of `WIDTH` columns, or behind it where the
    terminal has no room."""

    def __init__(self, text: Text, word: Text) -> None:
        self._text, self._word = text, word

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        words = self._text.cell_len + self._word.cell_len
        room = min(options.max_width, max(WIDTH, words + 2)) - words
        yield Text.assemble(self._text, " " * max(2, room), self._word)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        width = self._text.cell_len + 2 + self._word.cell_len
        return Measurement(1, max(width, WIDTH))


def natural_width(console: Console, renderable: Any) -> int:
    """The columns in which nothing of a text or table wraps."""
    options = console.options.update(width=UNLIMITED)
    return Measurement.get(console, options, renderable).maximum


_PAGE = (
    '<pre style="white-space:pre;overflow-x:auto;line-height:normal;'
    "font-family:Menlo,'DejaVu Sans Mono',consolas,'Courier New',monospace\">{code}</pre>"
)


def text_of(renderable: RenderableType, width: int = WIDTH) -> str:
    """Lines of plain text without trailing blanks."""
    console = PlainConsole(width=width, file=StringIO(), color_system=None, force_jupyter=False)
    with console.capture() as captured:
        console.print(renderable, crop=False)
    return "\n".join(line.rstrip() for line in captured.get().splitlines())


def html_of(renderable: RenderableType, width: int = WIDTH) -> str:
    """One HTML element, with inline styles and escaped text."""
    console = PlainConsole(width=width, file=StringIO(), record=True, force_jupyter=False)
    console.print(renderable, crop=False)
    return console.export_html(inline_styles=True, code_format=_PAGE)
