"""The verbs that look up: best, with its trials and reasons, and check, against a bundle or of the
vendor's results."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.options import (
    VerbArgument,
    VerbCommand,
    batch_invariant_option,
    complete_named,
    device_option,
    family_option,
    json_option,
    names_kernel,
    objective_choice,
    objective_option,
    path_option,
    refuse,
    shape_argument,
    show,
    show_csv,
    show_json,
)
from autotune.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from autotune.families.config import Value
    from autotune.lookup.answer import Answer
    from autotune.measure.objective import Objective
    from autotune.problem import Problem
    from autotune.records import Record
    from autotune.report.explanation import Explanation
    from autotune.report.trials import Trials

TOP = 20
"""Number of trials that are printed by default."""


@click.command("best", cls=VerbCommand)
@shape_argument(
    "MxNxK|KERNEL",
    "A shape, such as 512x512x64:bf16:batch=8:bias_relu (see `autotune help shapes`), or the "
    "name of a user kernel.",
    shell_complete=complete_named,
)
@click.argument(
    "config",
    cls=VerbArgument,
    required=False,
    metavar="[CONFIG]",
    text="With --why, a configuration to compare, such as tiled:tile_width=16. Parameters that it "
    "leaves open are the winner's, or the values of the fastest by the cost model.",
)
@device_option
@click.option("--exact", is_flag=True, help="Print tuned problems only; exit status 3 for others.")
@family_option("Print the record tuned for this family alone; exit status 3 without one.")
@objective_option
@batch_invariant_option
@click.option("--why", is_flag=True, help="Say why it won, and of a CONFIG why it did not.")
@click.option("--rules", is_flag=True, help="With --why: list every rule with its numbers.")
@click.option(
    "--trials", is_flag=True, help="Print its trials: times, resources, parameters, failures."
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    metavar="N",
    help=f"With --trials: number of the fastest to print, by default {TOP}.",
)
@click.option("--csv", is_flag=True, help="Print all trials as CSV.")
@json_option
def best(
    shape: str,
    config: str | None,
    device: str | None,
    exact: bool,
    family: str | None,
    objective: Objective,
    batch_invariant: bool,
    why: bool,
    rules: bool,
    trials: bool,
    top: int | None,
    csv: bool,
    json: bool,
) -> None:
    """Print the best kernel of a shape: as recorded, or else as its neighbours suggest.

    --why says why it won, --trials lists its trials. A configuration is printed in the form
    that --why takes.
    """
    from autotune.problem import problem_of

    why, trials = why or rules or config is not None, trials or csv or top is not None
    if csv and json:
        raise UsageError("standard output takes --csv or --json, not both")
    if why and trials:
        raise UsageError("give --why or --trials, not both")
    if why or trials:
        asked = "--why" if why else "--trials"
        refuse(asked, exact=exact, batch_invariant=batch_invariant, family=why and family)
    if names_kernel(shape):
        refuse("a user kernel", exact=exact, family=family, batch_invariant=batch_invariant)
        refuse("a user kernel", rules=rules)
        if config is not None:
            raise UsageError("the rules are for shapes; a user kernel takes no CONFIG")
        _show_kernels(shape, device, why, trials, top, csv, json)
        return
    problem = problem_of(shape)
    if trials:
        _show_trials([_found(problem, device, family)], top, csv, json)
    elif why:
        _show_why(problem, config, device, objective, rules, json)
    else:
        recorded = exact or family is not None
        _show_best(problem, device, objective, recorded, family, batch_invariant, json)


def _show_best(
    problem: Problem,
    device: str | None,
    objective: Objective,
    recorded: bool,
    family: str | None,
    batch_invariant: bool,
    json: bool,
) -> None:
    """Shows the answer to a look-up, or with `recorded` a record alone."""
    from autotune.api import lookups
    from autotune.families.registry import AUTO
    from autotune.measure.devices import DEFAULT
    from autotune.report import record

    target = device or DEFAULT
    if recorded:
        find: Callable[..., Record | Answer] = partial(lookups.best, family=family or AUTO)
    else:
        find = partial(lookups.choose, objective=objective)
    result = find(problem, device=target, batch_invariant=batch_invariant)
    for warning in lookups.warnings_of(result, target, objective):
        click.echo(f"warning: {warning}", err=True)
    show_json(record.to_json(result, objective)) if json else show(record.render(result, objective))


def _show_why(
    problem: Problem,
    text: str | None,
    device: str | None,
    objective: Objective,
    rules: bool,
    json: bool,
) -> None:
    from autotune.api import lookups
    from autotune.measure.devices import DEFAULT
    from autotune.report import explanation

    answer = lookups.choose(problem, device=device or DEFAULT, objective=objective)
    winner = explanation.explain(answer.config, answer)
    variant: Explanation | None = None
    added: Mapping[str, Value] = {}
    if text:
        config, added = explanation.completed(text, answer)
        variant = explanation.explain(config, answer)
    if json:
        show_json(explanation.to_json(answer, winner, variant))
    else:
        show(explanation.render(answer, winner, variant, added, rules=rules))


def _show_trials(selections: Sequence[Trials], top: int | None, csv: bool, json: bool) -> None:
    from autotune.report import trials as report
    from autotune.report.trials import table_of

    for selected in selections:
        if selected.note:
            click.echo(f"warning: {selected.title}: {selected.note}", err=True)
        table = table_of(selected.trials, selected.problem)
        names = [column.name for column in table.columns]
        if csv:
            show_csv(names, table.rows)
        elif json:
            rows = [dict(zip(names, row, strict=True)) for row in table.rows]
            show_json({"title": selected.title, "note": selected.note, "trials": rows})
        else:
            show(report.render(selected, top or TOP))


def _found(problem: Problem, device: str | None, family: str | None) -> Trials:
    """The trials of a record, or of searches that led to none."""
    from autotune import settings
    from autotune.api import lookups
    from autotune.errors import NotFoundError
    from autotune.families.registry import AUTO
    from autotune.measure import devices, targets
    from autotune.report.trials import of_record, without_record

    target, kernels = device or devices.DEFAULT, family or AUTO
    try:
        return of_record(lookups.best(problem, device=target, family=kernels), settings.cache_dir())
    except NotFoundError:
        resolved = targets.resolve(target)
        failed = without_record(problem, resolved, kernels, settings.cache_dir())
        if failed is None:
            raise
        return failed


def _show_kernels(
    name: str, device: str | None, why: bool, trials: bool, top: int | None, csv: bool, json: bool
) -> None:
    from autotune import settings
    from autotune.records import KernelRecord, Store, codec
    from autotune.report.explanation import why_it_won
    from autotune.report.record import render
    from autotune.report.selection import selected
    from autotune.report.trials import of_record

    root = settings.cache_dir()
    selection = selected((name.strip(),), device, Store(root))
    records = [record for record in selection.records if isinstance(record, KernelRecord)]
    if trials:
        if len(records) > 1 and (csv or json):
            calls = ", ".join(record.title for record in records)
            raise UsageError(f"several records: {calls}; give a call, or --device")
        _show_trials([of_record(record, root) for record in records], top, csv, json)
        return
    reasons = [why_it_won(record.entries, record.best) for record in records]
    if json:
        listed = [codec.encode(record) for record in records]
        pairs = zip(listed, reasons, strict=True)
        show_json({"records": [row | {"why": reason} if why else row for row, reason in pairs]})
        return
    for record, reason in zip(records, reasons, strict=True):
        show(render(record))
        if why:
            print(reason)


@click.command("check", cls=VerbCommand)
@shape_argument(
    "[MxNxK]...",
    "Shapes.  [default: all that are recorded in the bundle; with --vendor a suite in every "
    "precision, odd K included]",
    nargs=-1,
)
@path_option("--against", "BUNDLE", "File of `autotune cache export` with the times.")
@click.option("--vendor", is_flag=True, help="Verify cuBLAS's results instead; print wrong ones.")
@click.option(
    "--min",
    "least",
    type=float,
    metavar="RATIO",
    help="Least ratio of the bundle's time to today's.  [default: 0.95]",
)
@device_option
@objective_choice("What chooses the kernel, and is compared", default="hot", timed=True)
@json_option
def check(
    shapes: tuple[str, ...],
    against: Path | None,
    vendor: bool,
    least: float | None,
    device: str | None,
    objective: Objective,
    json: bool,
) -> None:
    """Measure what would run and compare it with a bundle, or verify cuBLAS.

    Exit status 1 if something is too slow, or a result of cuBLAS wrong.
    """
    from autotune import settings
    from autotune.api import lookups
    from autotune.cuda import compiler
    from autotune.measure import devices, targets
    from autotune.measure.objective import HOT
    from autotune.problem import problems_of
    from autotune.records import Record, exchange
    from autotune.report import cache
    from autotune.tuning import retiming

    if kernels := [word for word in shapes if names_kernel(word)]:
        raise UsageError(
            f"{kernels[0]}: a bundle has no times of user kernels; give shapes, or run "
            "`autotune tune SPEC.py` again"
        )
    problems, target = problems_of(shapes), device or devices.DEFAULT
    if vendor:
        refuse("--vendor", against=against, min=least, objective=objective != HOT)
        _check_vendor(problems, target, json)
        return
    least = 0.95 if least is None else least
    if against is None or not 0 < least < float("inf"):
        raise UsageError("give --against BUNDLE and a --min above 0, such as 0.95, or --vendor")
    records = [item for item in exchange.read(against) if isinstance(item, Record)]
    times = retiming.references(records, problems, targets.resolve(target), objective)
    opened = partial(targets.opened, device=target)
    chosen = partial(lookups.choose, device=target, objective=objective)
    build = partial(compiler.compile, cache=settings.cache_dir())
    checks = [*retiming.check(times, opened, chosen, build, objective)]
    show_json(cache.checks_json(checks, least)) if json else show(cache.checks_table(checks, least))
    if any(result.ratio < least for result in checks):
        raise click.exceptions.Exit(1)


def _check_vendor(problems: Sequence[Problem], device: str, json: bool) -> None:
    """Verifies cuBLAS and cuBLASLt's algorithms on shapes, by default on a suite, and shows what is
    wrong."""
    from autotune.errors import DeviceError
    from autotune.measure import baseline, devices, vendor_check
    from autotune.report import cache

    if (gpu := devices.local_gpu(device)) is None:
        raise DeviceError(f"{device}: cuBLAS is verified on a GPU of this machine, such as `gpu`")
    asked = problems or vendor_check.default_problems()
    checks = vendor_check.check_vendor(asked, gpu.index, [baseline.ALGORITHMS])
    show_json(cache.vendor_json(checks)) if json else show(cache.vendor_table(checks))
    if checks.wrong:
        raise click.exceptions.Exit(1)
