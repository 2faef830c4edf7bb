"""The verb that compares kernels from naive to the best: ladder."""

from __future__ import annotations

import click

from autotune.cli.options import VerbArgument, VerbCommand, device_option, json_option
from autotune.cli.output import Interrupted, show, show_json


@click.command("ladder", cls=VerbCommand)
@click.argument("n", type=int, cls=VerbArgument, metavar="N", text="Side of the square matrices.")
@device_option
@click.option(
    "--tune/--no-tune",
    default=None,
    help="Tune the best simt kernel first.  [default: on a GPU of this machine]",
)
@json_option
def ladder(n: int, device: str | None, tune: bool | None, json: bool) -> None:
    """Compare the naive, the tiled and the best kernels, with and without tensor cores, and cuBLAS.

    Without a GPU and without --device it prints the times recorded on an H100.
    """
    from autotune.api.ladder import ladder as climb
    from autotune.problem import Problem
    from autotune.report import ladder, progress
    from autotune.report.console import PlainConsole
    from autotune.tuning.options import BUDGET_S

    problem, limits = Problem(n, n, n), progress.Limits(None, BUDGET_S)
    with progress.observing(problem, limits, PlainConsole(stderr=True), plain=False) as observer:
        try:
            climbed = climb(n, device=device or _local_or_recorded(), tune=tune, observer=observer)
        except KeyboardInterrupt:
            raise Interrupted("what was measured is kept; run again to go on") from None
    if json:
        show_json(ladder.to_json(climbed))
    else:
        show(ladder.render(climbed))


def _local_or_recorded() -> str:
    """The GPU of this machine, or without one the recording of an H100."""
    from autotune.errors import MissingError
    from autotune.measure import devices, targets

    try:
        targets.resolve()
    except MissingError:
        click.echo("no GPU here: the recorded ladder of an H100 (--device replay:h100)", err=True)
        return "replay:h100"
    return devices.DEFAULT
