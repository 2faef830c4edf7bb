"""The verb that compares today's times with those of a bundle: check."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.answers import names_kernel
from autotune.cli.options import (
    ProblemOptions,
    VerbCommand,
    device_option,
    json_option,
    objective_option,
    problem_options,
    shape_argument,
)
from autotune.cli.output import show, show_json
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.maintenance.regression import TimeCheck
    from autotune.problem import Problem
    from autotune.runners.objective import Objective


@click.command("check", cls=VerbCommand)
@shape_argument("[MxNxK]...", "Shapes.  [default: all that are recorded in the bundle]", nargs=-1)
@problem_options
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="BUNDLE",
    help="File of `autotune cache export` with the times.",
)
@click.option(
    "--min",
    "least",
    type=float,
    default=0.95,
    metavar="RATIO",
    help="Least ratio of the bundle's time to today's.  [default: 0.95]",
)
@device_option
@objective_option
@click.option("--allow-predicted", is_flag=True, help="Check predicted times too.")
@json_option
def check(
    shapes: tuple[str, ...],
    options: ProblemOptions,
    against: Path | None,
    least: float,
    device: str | None,
    objective: str,
    allow_predicted: bool,
    json: bool,
) -> None:
    """Measure what would run and compare it with a bundle; exit status 1 if it is too slow."""
    from autotune.problem import problems_of
    from autotune.report import comparing
    from autotune.runners.objective import TIMES, objective_named
    from autotune.targets.sources import DEFAULT

    if against is None or not 0 < least < float("inf"):
        raise UsageError("give --against BUNDLE, and a --min above 0, such as 0.95")
    if kernels := [word for word in shapes if names_kernel(word)]:
        raise UsageError(
            f"{kernels[0]}: a bundle has no times of user kernels; give shapes, or run "
            "`autotune tune SPEC.py` again"
        )
    problems, decides = problems_of(shapes, **options), objective_named(objective, TIMES)
    checks = _checked(against, problems, device or DEFAULT, decides, allow_predicted)
    if json:
        show_json(comparing.checks_json(checks, least))
    else:
        show(comparing.checks_table(checks, least))
    if any(result.ratio < least for result in checks):
        raise click.exceptions.Exit(1)


def _checked(
    against: Path,
    problems: Sequence[Problem],
    device: str,
    objective: Objective,
    allow_predicted: bool,
) -> list[TimeCheck]:
    """The times of today beside those of a bundle."""
    from autotune import settings
    from autotune.api import lookups
    from autotune.cuda import compiler
    from autotune.maintenance import exchange, regression
    from autotune.records import Record
    from autotune.targets import targets

    records = [item for item in exchange.read(against) if isinstance(item, Record)]
    allowed = {"allow_predicted": allow_predicted}
    resolved = targets.resolve(device)
    times = regression.references(records, problems, resolved, objective, **allowed)
    opened = partial(targets.opened, device=device)
    chosen = partial(lookups.answered, device=device, objective=objective)
    build = partial(compiler.compile, cache=settings.cache_dir())
    return [*regression.check(times, opened, chosen, build, objective, **allowed)]
