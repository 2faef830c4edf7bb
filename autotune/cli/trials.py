"""The verbs about a search: trials, dashboard."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import (
    DeviceSpec,
    Json,
    ProblemOptions,
    Shape,
    with_problem_options,
)
from autotune.cli.output import show, show_csv, show_json

if TYPE_CHECKING:
    from autotune.problem import Problem
    from autotune.report.trials import Trials


@with_problem_options
def trials(
    shape: Shape,
    options: ProblemOptions,
    device: DeviceSpec = None,
    family: Annotated[
        str | None, typer.Option(help="The search that was asked for this kernel family alone.")
    ] = None,
    top: Annotated[int, typer.Option(min=1, help="Number of the fastest to print.")] = 20,
    csv: Annotated[bool, typer.Option("--csv", help="Print all as CSV.")] = False,
    json: Json = False,
) -> None:
    """Print the trials of a problem: times, resources, parameters and failures."""
    from autotune.errors import UsageError
    from autotune.problem import problem_of
    from autotune.report import trials as report
    from autotune.report.analysis.trials import table_of

    if csv and json:
        raise UsageError("standard output takes --csv or --json, not both")
    selected = _found(problem_of(shape, **options), device, family)
    if selected.note:
        typer.echo(f"warning: {selected.title}: {selected.note}", err=True)
    table = table_of([*selected.trials], selected.problem)
    names = [column.name for column in table.columns]
    if csv:
        show_csv(names, table.rows)
    elif json:
        rows = [dict(zip(names, row, strict=True)) for row in table.rows]
        show_json({"title": selected.title, "note": selected.note, "trials": rows})
    else:
        show(report.render(selected, top))


def _found(problem: Problem, device: str | None, family: str | None) -> Trials:
    from autotune import settings
    from autotune.api import lookups
    from autotune.candidates.family_names import AUTO
    from autotune.errors import NotFoundError
    from autotune.report.trials import of_record, without_record
    from autotune.targets import sources, targets

    target, kernels = device or sources.DEFAULT, family or AUTO
    try:
        return of_record(lookups.recorded(problem, target, kernels), settings.cache_dir())
    except NotFoundError:
        resolved = targets.resolve(target)
        failed = without_record(problem, resolved, kernels, settings.cache_dir())
        if failed is None:
            raise
        return failed


@with_problem_options
def dashboard(
    shape: Shape,
    options: ProblemOptions,
    device: DeviceSpec = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to listen on.")] = 8080,
) -> None:
    """Start optuna-dashboard on the trials of a problem, also while it is tuned."""
    from autotune import settings
    from autotune.errors import NotFoundError
    from autotune.problem import problem_of
    from autotune.report.trials import journals
    from autotune.targets import sources, targets
    from autotune.tuning.search.journal.dashboard import serve, server

    problem, target = problem_of(shape, **options), device or sources.DEFAULT
    resolved = targets.resolve(target)
    journal = next(journals(problem, resolved, settings.cache_dir()), None)
    if journal is None:
        raise NotFoundError(
            f"{problem} has no trials on {resolved.name} in this cache; run "
            f"`autotune tune {problem}{sources.option(target)}`"
        )
    title = f"{problem} on {resolved.name}, {journal.evidence}"
    server()  # an error names what is missing before an address is printed
    print(f"{title}: http://{host}:{port}; Ctrl-C ends it", flush=True)
    serve(journal.path, title, host, port)
