"""Several shapes of one command line, which share a budget."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from autotune.cli.options import ProblemOptions
from autotune.cli.output import Interrupted, show, show_json

if TYPE_CHECKING:
    from autotune.api.shapes import Shapes
    from autotune.tuning.options import Search


def counted_shapes(texts: Sequence[str], noted: Path | None, options: ProblemOptions) -> Shapes:
    """The shapes of a command line and of a file; the options complete those of the former.

    Raises:
        UsageError: for an impossible shape, a range, a file that is no list of shapes, or none.
    """
    from autotune.api.shapes import Shapes
    from autotune.errors import UsageError
    from autotune.problem import problems_of

    if any(".." in text for text in texts):
        raise UsageError("a range is tuned alone; give it without other shapes")
    shapes = Shapes.of(problems_of(texts, **options))
    if noted is not None:
        shapes.update(Shapes.load(noted))
    if not shapes:
        raise UsageError("no shape to tune; give one, such as 4096x4096x4096, or --from FILE")
    return shapes


def tune_shapes(
    shapes: Shapes,
    search: Search,
    device: str | None,
    devices: str | None,
    family: str,
    quiet: bool,
    json: bool,
) -> None:
    """Tunes shapes under one budget and prints a table; exit status 1 if a search failed."""
    from functools import partial

    from autotune.api import many
    from autotune.report import tuned_shapes
    from autotune.report.console import PlainConsole
    from autotune.report.progress_all import observing_all
    from autotune.targets.sources import DEFAULT

    observing = partial(
        observing_all, console=PlainConsole(stderr=True), plain=quiet, objective=search.objective
    )
    place = device or DEFAULT, devices, family
    try:
        report = many.tune_shapes(shapes, search, *place, observing=observing)
    except KeyboardInterrupt:
        raise Interrupted("the shapes tuned so far are kept; run again to go on") from None
    if json:
        show_json({"shapes": tuned_shapes.to_json(report)})
    else:
        show(tuned_shapes.render(report))
    if report.failed:
        raise typer.Exit(1)
