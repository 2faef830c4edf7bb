"""A tuned range as a table."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.text import Text

from autotune.records.ranges import Range
from autotune.report.tables import FittedTable


def render(tuned: Range) -> RenderableType:
    """A line for each segment: its sizes, and the size whose record they run."""
    dimension = tuned.dimension.upper()
    table = FittedTable()
    table.add(dimension)
    table.add("as tuned at")
    for segment in tuned.segments:
        sizes = f"{segment.low}..{segment.high}" if segment.low < segment.high else f"{segment.low}"
        table.add_row(sizes, str(segment.point))
    evidence = f"{tuned.evidence}{tuned.objective.suffix(', ')}"
    title = Text(f"{tuned} on {tuned.device.name}: {evidence}", style="bold")
    end = Text(f"{len(tuned.points)} sizes tuned; expected loss at most {tuned.loss:.1%}")
    order = [Text(f"batch-invariant, in one order of summation: {tuned.order}")]
    return Group(title, *(order if tuned.order else []), table, end)
