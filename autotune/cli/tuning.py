"""The verbs that search: tune, of shapes, ranges, files and user kernels; and ladder."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.options import (
    Interrupted,
    VerbArgument,
    VerbCommand,
    complete_devices,
    complete_efforts,
    complete_samplers,
    device_option,
    family_option,
    json_option,
    names_kernel,
    objective_choice,
    path_option,
    refuse,
    seconds_of,
    shape_argument,
    show,
    show_json,
)
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.api.shapes import Shapes
    from autotune.api.tuning import ProgressLike
    from autotune.measure.objective import Objective
    from autotune.problem import Problem
    from autotune.problem.arguments import Span
    from autotune.records import Record
    from autotune.report.progress import Shown
    from autotune.tuning.options import Search

_BUDGETS = "60s, 2m or 90 (seconds)"

_SIZES = re.compile(r"\s*-?\d[\d.\s]*[x×*,\s]")
"""The start of a shape or a range; everything else names a file."""


@click.command("tune", cls=VerbCommand)
@shape_argument(
    "[MxNxK|FILE|SPEC.py]...",
    "Shapes, such as 4096x4096x4096:bf16, which share the budget; one range, such as "
    "1..512x4096x4096; a file of shapes; or the Python file of a user kernel.",
    nargs=-1,
)
@click.option(
    "--device",
    metavar="NAME|FILE",
    shell_complete=complete_devices,
    help="Device, such as gpu, gpu:0,1 (several GPUs of one model share the work), replay:h100 or "
    "h100; see `autotune help devices`.  [default: gpu]",
)
@click.option(
    "--effort",
    metavar="NAME",
    shell_complete=complete_efforts,
    help="Effort of the search: quick (a race, in seconds), default, long or exhaustive.",
)
@click.option(
    "--trials",
    type=int,
    metavar="N",
    help="Stop at this number of trials, earlier and concurrent runs included.",
)
@click.option(
    "--budget",
    metavar="TIME",
    help="Time limit of all: 60s, 2m or 90 (seconds).  [default: 60s; of a range, for each search; "
    "several shapes: 20s each]",
)
@click.option("--seed", type=int, metavar="N", help="Random seed.  [default: 0]")
@click.option(
    "--sampler",
    metavar="NAME",
    shell_complete=complete_samplers,
    help="Sampler: gp, tpe, random or exhaustive.  [default: gp]",
)
@family_option(
    "Kernel family, such as simt; see `autotune help families`.  [default: auto, all that "
    "serve the precision]"
)
@click.option(
    "--jobs",
    type=int,
    metavar="N",
    help="Compiler threads.  [default: the number of cores less one]",
)
@objective_choice("What to minimise")
@click.option(
    "--storage",
    metavar="URL",
    help="Optuna storage that shares the trials, such as sqlite:////tmp/trials.db; "
    "optuna-dashboard opens it too.",
)
@path_option("--recording", "FILE.json.gz", "Write all trials, for --device replay:FILE.json.gz.")
@click.option("--explain", is_flag=True, help="Count the rejected configurations by reason.")
@click.option("--quiet", is_flag=True, help="Print lines, not a progress bar.")
@click.option(
    "--batch-invariant", is_flag=True, help="Tune a range of M in one order of summation for all M."
)
@json_option
def tune(
    shapes: tuple[str, ...],
    device: str | None,
    effort: str | None,
    trials: int | None,
    budget: str | None,
    seed: int | None,
    sampler: str | None,
    family: str | None,
    jobs: int | None,
    objective: Objective | None,
    storage: str | None,
    recording: Path | None,
    explain: bool,
    quiet: bool,
    batch_invariant: bool,
    json: bool,
) -> None:
    """Search the fastest kernel of a shape and record it. Running it again continues.

    One size may be a range, such as 1..512x4096x4096: it is tuned at one size of each octave.
    Several shapes share the budget by their number of runs and the time that tuning may save. The
    file of a user kernel runs as Python; options replace the values of its KERNEL.
    """
    began = monotonic()  # before imports, which the budget includes
    seconds = None if budget is None else seconds_of(budget, "budget", _BUDGETS, units=" smh")
    stated: dict[str, Any] = {"effort": effort, "trials": trials, "seconds": seconds, "seed": seed}
    stated |= {"sampler": sampler, "jobs": jobs, "objective": objective, "storage": storage}
    stated["recording"] = recording
    fields = {name: value for name, value in stated.items() if value is not None}
    specs = [word for word in shapes if word.endswith(".py")]
    if specs or (device and not shapes):
        if len(shapes) > 1:
            raise UsageError("a user kernel is tuned alone; give one SPEC.py")
        refuse("a user kernel", family=family, explain=explain)
        refuse("a user kernel", batch_invariant=batch_invariant)
        _tune_kernel(Path(specs[0]) if specs else None, device, fields, quiet, json)
        return
    from autotune.problem import Problem
    from autotune.tuning.options import Search

    search, asked = Search(**fields), _asked(shapes)
    if not isinstance(asked, Problem):
        refuse("a range or a list of shapes", explain=explain)
    if not isinstance(asked, Counter):
        search = search.begun(began)  # several shapes share the seconds
    options: dict[str, Any] = {"device": device or "gpu", "family": family or "auto"}
    options["batch_invariant"] = batch_invariant
    _tune_shapes(asked, search, options, explain, "lines" if quiet else True, json)


def _asked(words: Sequence[str]) -> Problem | Span | Shapes:
    """The problem, the range or the shapes that a command line names."""
    from autotune.problem import problem_of
    from autotune.problem.arguments import Span

    files = [word for word in words if not _SIZES.match(word) and _names_file(word)]
    texts = [word for word in words if word not in files]
    if names := [word for word in texts if names_kernel(word)]:
        raise UsageError(
            f"{names[0]} is a name; tune takes a shape, such as 4096x4096x4096, or the file of a "
            "user kernel: tune SPEC.py"
        )
    if len(texts) == 1 and not files:
        return Span.parse(texts[0]) if ".." in texts[0] else problem_of(texts[0])
    from autotune.api.shapes import Shapes

    shapes = Shapes.of(texts)
    for file in files:
        shapes.update(Shapes.load(file))
    if not shapes:
        raise UsageError("no shape to tune; give one, such as 4096x4096x4096, or a file of shapes")
    return shapes


def _names_file(word: str) -> bool:
    """Whether a word that is not a shape is the path of a file."""
    return "/" in word or Path(word).suffix in (".json", ".txt") or Path(word).is_file()


@contextmanager
def _kept() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted("the measurements are kept; run again to continue") from None


def _tune_shapes(
    asked: Problem | Span | Shapes,
    search: Search,
    options: Mapping[str, Any],
    explain: bool,
    progress: ProgressLike,
    json: bool,
) -> None:
    """Tunes a shape, a range or several shapes and shows the result; exit status 1 if the search of
    one of several failed."""
    import autotune
    from autotune.api import tuning
    from autotune.problem import Problem
    from autotune.records import Record
    from autotune.report import listing
    from autotune.report.progress import Shown

    counts: dict[str, Mapping[str, int]] = {}
    family: str = options["family"]
    with _kept():
        if explain and isinstance(asked, Problem):
            with tuning.shown(asked, search.limited(family), progress) as shown:
                assert isinstance(shown, Shown)  # as progress is shown
                tuned: Any = autotune.tune(asked, search=search, progress=shown, **options)
            counts = {"rejected": _rejected(tuned, shown, family), "failed": shown.failed}
        else:
            tuned = autotune.tune(asked, search=search, progress=progress, **options)
    if isinstance(tuned, Record):
        _show_record(tuned, search.objective, counts, json)
    elif isinstance(asked, Counter):
        data = {"shapes": listing.shapes_json(tuned)}
        show_json(data) if json else show(listing.shape_table(tuned))
        if tuned.failed:
            raise click.exceptions.Exit(1)
    else:
        data = tuned.to_json() | {"device": tuned.device.name}
        show_json(data) if json else show(listing.range_table(tuned))


def _show_record(
    tuned: Record, objective: Objective, counts: Mapping[str, Mapping[str, int]], json: bool
) -> None:
    from autotune.report import record, trials

    if json:
        show_json({**record.to_json(tuned, objective), **counts})
        return
    show(record.render(tuned, objective))
    if counts:
        show(trials.rejection_table(**counts))


def _tune_kernel(
    spec: Path | None, device: str | None, fields: Mapping[str, object], quiet: bool, json: bool
) -> None:
    """Tunes a user kernel, or without a specification searches the recording of one, and shows the
    record."""
    from autotune.api import kernels, specifications
    from autotune.records import codec
    from autotune.report.record import render

    changes: dict[str, Any] = {"device": device} if device else {}
    changes |= {"progress": "lines"} if quiet else {}
    with _kept():
        if spec is None:
            record = kernels.tune_recording(fields, **changes)
        else:
            record = specifications.tune_spec(spec, changes, fields)
    show_json(codec.encode(record)) if json else show(render(record))


def _rejected(tuned: Record, shown: Shown, family: str) -> Mapping[str, int]:
    """Configurations rejected before compilation, by reason.

    A recording never proposes a configuration that it lacks. There the counts are of the whole
    space, and legal configurations that were not recorded are one more reason.
    """
    from autotune.families.registry import families_of
    from autotune.model import space

    if tuned.evidence != "replayed":
        return shown.rejected
    names = families_of(family, tuned.problem)
    spaces = [space.feasible(tuned.problem, tuned.device, name) for name in names]
    legal = sum(len(feasible.configs) for feasible in spaces)
    reasons = sum((Counter(feasible.rejected) for feasible in spaces), Counter[str]())
    return {**reasons, "not recorded": max(0, legal - shown.feasible)}


@click.command("ladder", cls=VerbCommand)
@click.argument(
    "n",
    type=int,
    default=4096,
    cls=VerbArgument,
    metavar="[N]",
    text="Side of the square matrices.  [default: 4096]",
)
@device_option
@click.option(
    "--tune/--no-tune",
    default=None,
    help="Tune the kernels at the end first.  [default: on a GPU of this machine]",
)
@click.option(
    "--show",
    "shown",
    type=int,
    metavar="RUNG",
    help="Print the source of a rung and the diff from the one before.",
)
@click.option(
    "--why",
    type=int,
    metavar="RUNG",
    help="Print what a rung removed, by the counters of an H100.",
)
@json_option
def ladder(
    n: int,
    device: str | None,
    tune: bool | None,
    shown: int | None,
    why: int | None,
    json: bool,
) -> None:
    """Climb from the naive kernel to tensor cores, beside the tuned kernels and cuBLAS.

    Each rung is a kernel of its own that changes one thing. Without a GPU and without --device it
    prints the times recorded on an H100.
    """
    from dataclasses import asdict

    from autotune.report import ladder

    if shown is not None:
        rung = ladder.numbered(shown)
        parts = {"source": ladder.source(rung), "diff": ladder.difference(rung)}
        show_json({**asdict(rung), **parts}) if json else click.echo(ladder.explained(rung))
        return
    if why is not None:
        from autotune.tuning.ladder import counters

        rung, counted = ladder.numbered(why), counters()
        show_json(counted.get(why)) if json else show(ladder.why(rung, counted))
        return
    from autotune.api.ladder import ladder as climb

    with _kept():
        climbed = climb(n, device=device or _local_or_recorded(), tune=tune, progress=True)
    show_json(asdict(climbed)) if json else show(ladder.render(climbed))


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
