"""`autotune tune` of a range of sizes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.cli.output import Interrupted, show, show_json

if TYPE_CHECKING:
    from autotune.problem.span import Span
    from autotune.tuning.options import Search


def tune_span(
    span: Span,
    search: Search,
    device: str | None,
    family: str,
    loss: float,
    quiet: bool,
    json: bool,
    batch_invariant: bool,
) -> None:
    """Tunes a range and shows it, with a progress bar of each search."""
    from autotune.api import ranges
    from autotune.report import progress
    from autotune.report import ranges as report
    from autotune.report.console import PlainConsole
    from autotune.targets.sources import DEFAULT

    limits = progress.Limits(search.trials, search.seconds)
    shown = progress.observing_each(
        limits, PlainConsole(stderr=True), plain=quiet, objective=search.objective
    )
    with shown as observed:
        try:
            tuned = ranges.tune(
                span,
                search,
                device=device or DEFAULT,
                family=family,
                loss=loss,
                observed=observed,
                batch_invariant=batch_invariant,
            )
        except KeyboardInterrupt:
            raise Interrupted("the sizes tuned so far are kept; run again to go on") from None
    if json:
        show_json(tuned.to_json() | {"device": tuned.device.name})
    else:
        show(report.render(tuned))
