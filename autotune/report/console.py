"""The console that everything is printed through: texts are plain, never markup.

Tables hold paths, reasons, names of devices and words of the command line. rich reads `[b]` in a
text as a style and `[/b]` without one as an error, `:x:` as a picture, and passes escape sequences
on to the terminal. Styles come from `Text` and columns alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
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
            # Those that move the cursor are rich's own.
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                lines = map(visible, segment.text.split("\n"))
                yield Segment("\n".join(lines), segment.style)
