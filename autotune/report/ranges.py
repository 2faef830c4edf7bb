"""A tuned range in a few lines."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from autotune.records.ranges import Range


def render(found: Range) -> RenderableType:
    """A line for each segment: its sizes and the one whose record they run."""
    dimension = found.dimension.upper()
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(dimension, justify="right", no_wrap=True)
    table.add_column("as tuned at", justify="right", no_wrap=True)
    for segment in found.segments:
        sizes = f"{segment.low}..{segment.high}" if segment.low < segment.high else f"{segment.low}"
        table.add_row(sizes, str(segment.point))
    title = Text(f"{found} on {found.device.name}: {found.evidence}", style="bold")
    end = Text(f"{len(found.points)} sizes tuned; at most {found.loss:.1%} expected to be lost")
    return Group(title, table, end)
