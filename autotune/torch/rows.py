"""The numbers of rows, M, with which the linear layers of a model run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from autotune import runtime, settings
from autotune.api.shapes import Shapes, tune_shapes
from autotune.api.tuning import shown_all
from autotune.errors import UsageError
from autotune.records import Store
from autotune.report.layers import Layer, LayerRecords
from autotune.report.tuned_shapes import ShapeRow, ShapesReport
from autotune.tuning.options import Search

Rows = tuple[int, ...] | Shapes | None
"""Numbers that hold for every layer, the shapes that a model ran, or all that have records."""


def checked_rows(rows: int | Iterable[int] | Shapes | None) -> Rows:
    """The rows that a caller gave, numbers ascending.

    Raises:
        UsageError: for anything but whole numbers of at least 1, or shapes.
    """
    if rows is None or isinstance(rows, Shapes):
        return rows
    numbers = (rows,) if isinstance(rows, int) else tuple(rows)
    for number in numbers or (0,):
        if not isinstance(number, int) or number < 1:
            raise UsageError(f"rows is {rows!r}; give whole numbers of at least 1")
    return tuple(sorted(set(numbers)))


def rows_of(rows: Rows, layer: Layer) -> dict[int, int] | None:
    """The numbers of rows of a layer with how often each runs; None for all that have records."""
    if rows is None:
        return None
    if not isinstance(rows, Shapes):
        return dict.fromkeys(rows, len(layer.names))
    counts = {
        problem.m: sum(rows[variant] for variant in layer.problems(problem.m))
        for problem in rows
        if problem in layer.problems(problem.m)
    }
    return dict(sorted(counts.items()))


def tune_noted(
    layers: Iterable[tuple[int, Layer]],
    shapes: Shapes,
    records: dict[int, LayerRecords],
    options: Search,
) -> ShapesReport:
    """Tunes the noted shapes of layers that have no record, those of a GPU under one budget.

    Args:
        layers: each with the GPU that holds it.
        shapes: what the model ran.
        records: those of each GPU, which are read again.
        options: of the searches; the budget is that of one shape.
    """
    rows: list[ShapeRow] = []
    for ordinal, recorded in records.items():
        missing = Shapes()
        for layer in (layer for place, layer in layers if place == ordinal):
            for m, count in (rows_of(shapes, layer) or {}).items():
                if recorded.answer(layer, m) is None:
                    missing[layer.problems(m)[0]] += count
        if not missing:
            continue
        shared = replace(options, seconds=(options.seconds or 0) * len(missing) or None)
        observing = partial(shown_all, options.objective, False)
        rows += tune_shapes(missing, shared, f"gpu:{ordinal}", observing=observing)
        for problem in missing:
            runtime.current().forget(problem)
        records[ordinal] = LayerRecords.on(recorded.device, Store(settings.cache_dir()))
    return ShapesReport(rows)
