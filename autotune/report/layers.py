"""The replaced and kept linear layers of a model, as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from autotune.lookup.layers import FASTER, Report, Row
from autotune.report import cell
from autotune.report.tables import FittedTable

NOTE = "gain: cuBLAS's time over the tuned kernel's, less 1"


def render(report: Report) -> RenderableType:
    """A line for each shape and number of rows, with the reason why layers are kept."""
    replaced, kept = len(report.replaced), len(report.kept)
    title = Text(f"{replaced} of {replaced + kept} linear layers replaced", style="bold")
    if report.devices:
        title.append(f" on {', '.join(report.devices)}")
    if not report.rows:
        return title
    table = layer_table("layers", ("M", "N", "K", "type", "ours", "cuBLAS", "gain"))
    for row in report.rows:
        table.add_row(*_cells(row), style=None if row.replaced else "dim")
    return Group(title, table, Text(NOTE, style="dim"))


def layer_table(first: str, figures: Sequence[str]) -> FittedTable:
    """An empty table of layers: their names, a column for each figure, and a verdict."""
    table = FittedTable()
    table.add(first, "prose")
    for header in figures:
        table.add(header)
    table.add("", "prose", worth=-0.5)
    return table


def _cells(row: Row) -> tuple[str, ...]:
    layer = row.layer
    return (
        _names(layer.names),
        cell(row.m, "{}"),
        *(str(layer.outputs), str(layer.inputs), layer.compute),
        cell(row.ours_us, "{:.1f} us"),
        cell(row.cublas_us, "{:.1f} us"),
        cell(row.gain, "{:+.1%}"),
        _verdict(row),
    )


def _names(names: tuple[str, ...]) -> str:
    # A model that is itself a linear layer has no name.
    first = names[0] or "the model"
    return first if len(names) == 1 else f"{len(names)}: {first}, ..."


def _verdict(row: Row) -> str:
    point = row.problem.m if row.problem else row.m
    times = "" if point == row.m else f" (times of M={point})"
    if not row.replaced:
        return f"kept: {row.why}{times}"
    if row.why is None:
        return f"replaced{times}"
    remark = "but cuBLAS serves this M" if row.why == FASTER else row.why
    return f"replaced, {remark}{times}"
