"""The verbs about a problem: tune, best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import (
    BatchInvariant,
    DeviceNumbers,
    DeviceSpec,
    EffortName,
    Json,
    ObjectiveName,
    ProblemOptions,
    Shape,
    search_fields,
    with_problem_options,
)
from autotune.cli.output import Interrupted, show, show_json
from autotune.cli.ranges import tune_span
from autotune.cli.shapes import counted_shapes, tune_shapes

if TYPE_CHECKING:
    from autotune.lookup.answer import Answer
    from autotune.problem import Problem
    from autotune.records import Record
    from autotune.report.progress import Tally
    from autotune.runners.base import Objective
    from autotune.tuning.options import Search


@with_problem_options
def tune(
    options: ProblemOptions,
    shapes: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="MxNxK...",
            help="Sizes of the GEMM, such as 4096x4096x4096 or 512x512x64:bf16:batch=8:bias_relu; "
            "several share one budget.",
        ),
    ] = None,
    noted: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", help="Shapes with counts, as autotune.torch.recording notes."
        ),
    ] = None,
    device: DeviceSpec = None,
    devices: DeviceNumbers = None,
    effort: EffortName = None,
    trials: Annotated[
        int | None,
        typer.Option(help="Stop at this number of trials, earlier and concurrent runs included."),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            help="Time limit of all: 60s, 2m or 90 (seconds).  [default: 60s; of a range, for each "
            "search; several shapes: 20s each]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    sampler: Annotated[
        str | None, typer.Option(help="Sampler: gp, tpe, random or exhaustive.  [default: gp]")
    ] = None,
    family: Annotated[
        str,
        typer.Option(help="Kernel family: auto (the fastest for the precision), {families}."),
    ] = "auto",
    jobs: Annotated[
        int | None, typer.Option(help="Compiler threads.  [default: one a core but one]")
    ] = None,
    objective: Annotated[
        str,
        typer.Option(help="What to minimise: hot or cold (L2 flushed) time, or energy."),
    ] = "hot",
    storage: Annotated[
        str | None,
        typer.Option(help="Optuna storage of the trials.  [default: a journal in the cache]"),
    ] = None,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick", help="Race the 14 most promising configurations and cuBLAS, in seconds."
        ),
    ] = False,
    recording: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json.gz", help="Write all trials, for --device replay:FILE.json.gz."
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Count the rejected configurations by reason.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", help="Print lines, not a progress bar.")
    ] = False,
    loss: Annotated[
        float, typer.Option(help="Loss allowed in a range, against tuning every size.")
    ] = 0.05,
    batch_invariant: Annotated[
        bool,
        typer.Option(
            "--batch-invariant", help="Tune a range of M in one order of summation for all M."
        ),
    ] = False,
    json: Json = False,
) -> None:
    """Search the fastest kernel of a problem and record it. Running it again continues.

    One size may be a range, such as 1..512x4096x4096: it is tuned at as few sizes as it takes.
    Several shapes share the budget, by how often they run and by what tuning may gain.
    """
    from autotune.errors import UsageError
    from autotune.problem import problem_of
    from autotune.problem.span import Span
    from autotune.tuning.options import Search

    began = monotonic()
    if quick and effort not in (None, "quick"):
        raise UsageError(f"--quick and --effort {effort}; give one of both")
    limits = {"effort": "quick" if quick else effort, "trials": trials, "seed": seed}
    means = {"sampler": sampler, "jobs": jobs, "objective": objective, "storage": storage}
    own = Search(**search_fields(budget, **limits, **means))
    if own.quick and (shapes is None or len(shapes) != 1 or ".." in shapes[0]):
        raise UsageError("quick takes one shape; a range races the sizes between its ends anyway")
    search = own.limited(family)
    one_range = noted is None and shapes is not None and len(shapes) == 1 and ".." in shapes[0]
    if batch_invariant and not one_range:
        raise UsageError("batch invariance takes one range of M, such as 1..8192x4096x4096:bf16")
    if noted is not None or shapes is None or len(shapes) != 1:
        if explain or recording:
            raise UsageError("several shapes take neither --explain nor --recording; give one")
        counted = counted_shapes(shapes or (), noted, options)
        tune_shapes(counted, own.each_limited(family), device, devices, family, quiet, json)
        return
    (shape,) = shapes
    search = search if own.seconds is None else search.begun(began)
    if ".." not in shape:
        problem = problem_of(shape, **options)
        place = device, devices, family, recording
        _tune_problem(problem, search, *place, explain, quiet, json)
        return
    if devices or explain or recording:
        raise UsageError("a range takes no --devices, --explain and --recording; leave them out")
    span = Span.parse(shape, **options)
    tune_span(span, search, device, family, loss, quiet, json, batch_invariant)


def _tune_problem(
    problem: Problem,
    search: Search,
    device: str | None,
    devices: str | None,
    family: str,
    recording: Path | None,
    explain: bool,
    quiet: bool,
    json: bool,
) -> None:
    from autotune.api import tuning
    from autotune.report import progress
    from autotune.report.console import PlainConsole
    from autotune.targets.sources import DEFAULT

    limits = progress.Limits(search.trials, search.seconds)
    shown = progress.observing(
        problem, limits, PlainConsole(stderr=True), plain=quiet, objective=search.objective
    )
    with shown as inner:
        tally = progress.Tally(inner)
        try:
            tuned = tuning.search(
                problem,
                search,
                device=device or DEFAULT,
                devices=devices,
                family=family,
                recording=recording,
                observer=tally,
            )
        except KeyboardInterrupt:
            raise Interrupted("what was measured is kept; run again to go on") from None
    rejected = _rejected(tuned, tally, family) if explain else None
    _show_tuned(tuned, search.objective, rejected, tally.failed, json)


def _show_tuned(
    tuned: Record,
    objective: Objective,
    rejected: Mapping[str, int] | None,
    failed: Mapping[str, int],
    json: bool,
) -> None:
    """Shows the record, and with --explain the counts of rejected and failed configurations."""
    # Imported after the search, so that its workers start without waiting for them.
    from autotune.api.lookups import best_of_all
    from autotune.report import record, rejections

    overall = best_of_all(tuned)
    if json:
        counts = {} if rejected is None else {"rejected": rejected, "failed": failed}
        show_json(record.to_json(tuned, objective, overall) | counts)
        return
    show(record.render(tuned, objective, overall))
    if rejected is not None:
        show(rejections.render(rejected, failed))


@with_problem_options
def best(
    shape: Shape,
    options: ProblemOptions,
    device: DeviceSpec = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Print tuned problems only; exit status 3 for others.")
    ] = False,
    family: Annotated[
        str | None,
        typer.Option(help="Print what was tuned for this family alone; exit status 3 if nothing."),
    ] = None,
    objective: ObjectiveName = "hot",
    batch_invariant: BatchInvariant = False,
    json: Json = False,
) -> None:
    """Print the best kernel of a problem: as recorded, or else as its neighbours suggest."""
    from autotune.api import lookups
    from autotune.candidates.family_names import AUTO
    from autotune.problem import problem_of
    from autotune.report import record
    from autotune.runners.base import objective_named
    from autotune.targets.sources import DEFAULT

    problem, decides = problem_of(shape, **options), objective_named(objective)
    target = device or DEFAULT
    if exact or family is not None:
        alone = family or AUTO, batch_invariant
        result: Record | Answer = lookups.recorded(problem, target, *alone)
    else:
        result = lookups.answered(problem, target, decides, batch_invariant)
    for warning in lookups.warnings_of(result, target, decides):
        typer.echo(f"warning: {warning}", err=True)
    if (changed := lookups.other_tools(result)) is not None:
        typer.echo(f"note: it was measured with {changed}", err=True)
    overall = lookups.best_of_all(result)
    if json:
        show_json(record.to_json(result, decides, overall))
    else:
        show(record.render(result, decides, overall))


def _rejected(tuned: Record, tally: Tally, family: str) -> Mapping[str, int]:
    """Configurations rejected before compilation, by reason.

    A recording never proposes a configuration that it lacks. There the counts are of the whole
    space, and legal configurations that were not recorded are one more reason.
    """
    from autotune.candidates import space
    from autotune.candidates.family_names import families_of

    if tuned.evidence != "replayed":
        return tally.rejected
    names = families_of(family, tuned.problem)
    spaces = [space.feasible(tuned.problem, tuned.device, name) for name in names]
    legal = sum(len(feasible.configs) for feasible in spaces)
    reasons = sum((Counter(feasible.rejected) for feasible in spaces), Counter[str]())
    return {**reasons, "not recorded": max(0, legal - tally.feasible)}
