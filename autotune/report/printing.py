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


def rendered(result: TuningRecord | Answer) -> RenderableType:
    """A record or an answer to a look-up as the command line prints it."""
    if isinstance(result, (Record, Answer)):
        return record.render(result)
    assert isinstance(result, KernelRecord)
    return kernel_record.render(result)


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
