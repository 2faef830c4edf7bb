"""Verbs that compare: machines by what would run on them, and today's times with a bundle's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import (
    BatchInvariant,
    DeviceSpec,
    Json,
    ObjectiveName,
    ProblemOptions,
    with_problem_options,
)
from autotune.cli.output import show, show_json

if TYPE_CHECKING:
    from autotune.maintenance.regression import TimeCheck
    from autotune.problem import Problem
    from autotune.runners.objective import Objective

ShapeList = Annotated[
    list[str] | None,
    typer.Argument(metavar="MxNxK...", help="Shapes.  [default: all that are recorded]"),
]


@with_problem_options
def fingerprint(
    options: ProblemOptions,
    shapes: ShapeList = None,
    device: DeviceSpec = None,
    batch_invariant: BatchInvariant = False,
    json: Json = False,
) -> None:
    """Print a hash of what would run, equal on two machines if both launch the same kernels."""
    from autotune.api.fingerprints import fingerprint
    from autotune.problem import problems_of
    from autotune.report import comparing
    from autotune.targets.sources import DEFAULT

    problems = problems_of(shapes or (), **options)
    ours = fingerprint(*problems, device=device or DEFAULT, batch_invariant=batch_invariant)
    if json:
        show_json(comparing.fingerprint_json(ours))
    elif shapes:
        show(comparing.fingerprint_table(ours))
    else:
        print(ours)


@with_problem_options
def check(
    options: ProblemOptions,
    shapes: ShapeList = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="BUNDLE", help="File of `autotune cache export` with the times."),
    ] = None,
    least: Annotated[
        float, typer.Option("--min", help="Least ratio of the bundle's time to today's.")
    ] = 0.95,
    device: DeviceSpec = None,
    objective: ObjectiveName = "hot",
    allow_predicted: Annotated[
        bool, typer.Option("--allow-predicted", help="Check predicted times too.")
    ] = False,
    json: Json = False,
) -> None:
    """Measure what would run and compare it with a bundle; exit status 1 if it is too slow."""
    from autotune.errors import UsageError
    from autotune.problem import problems_of
    from autotune.report import comparing
    from autotune.runners.objective import TIMES, objective_named
    from autotune.targets.sources import DEFAULT

    if against is None or not 0 < least < float("inf"):
        raise UsageError("give --against BUNDLE, and a --min above 0, such as 0.95")
    problems, decides = problems_of(shapes or (), **options), objective_named(objective, TIMES)
    checks = _checked(against, problems, device or DEFAULT, decides, allow_predicted)
    if json:
        show_json(comparing.checks_json(checks, least))
    else:
        show(comparing.checks_table(checks, least))
    if any(result.ratio < least for result in checks):
        raise typer.Exit(1)


def _checked(
    against: Path,
    problems: Sequence[Problem],
    device: str,
    objective: Objective,
    allow_predicted: bool,
) -> list[TimeCheck]:
    """The times of today beside those of a bundle."""
    from autotune import compiler, settings
    from autotune.api import lookups
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
