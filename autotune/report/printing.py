"""Records, answers and tables as plain text for `print`, and as HTML for notebooks."""

from __future__ import annotations

from io import StringIO

from rich.console import RenderableType

from autotune.lookup.answer import Answer
from autotune.records import KernelRecord, Record, TuningRecord
from autotune.report import kernel_record, record
from autotune.report.console import PlainConsole

WIDTH = 80
"""Columns of a printed record, as on the command line."""

_PAGE = (
    '<pre style="white-space:pre;overflow-x:auto;line-height:normal;'
    "font-family:Menlo,'DejaVu Sans Mono',consolas,'Courier New',monospace\">{code}</pre>"
)


def record_text(shown: TuningRecord) -> str:
    """A record as the command line prints it."""
    return text_of(_rendered(shown))


def record_html(shown: TuningRecord) -> str:
    """The same as HTML."""
    return html_of(_rendered(shown))


def answer_text(answer: Answer) -> str:
    """An answer to a look-up as the command line prints it."""
    return text_of(record.render(answer))


def answer_html(answer: Answer) -> str:
    """The same as HTML."""
    return html_of(record.render(answer))


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


def _rendered(shown: TuningRecord) -> RenderableType:
    if isinstance(shown, Record):
        return record.render(shown)
    assert isinstance(shown, KernelRecord)
    return kernel_record.render(shown)
