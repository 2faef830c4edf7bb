"""The verb that searches and records: tune, of shapes, ranges, files and user kernels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from autotune.cli import completion
from autotune.cli.answers import names_kernel
from autotune.cli.options import (
    ProblemOptions,
    VerbCommand,
    family_option,
    json_option,
    objective_choice,
    problem_options,
    refuse,
    shape_argument,
)
from autotune.cli.output import SECONDS, Interrupted, show, show_json
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.api.shapes import Shapes
    from autotune.problem import Problem
    from autotune.problem.arguments import Span
    from autotune.records import KernelRecord, Record
    from autotune.report.progress import Tally
    from autotune.runners.objective import Objective
    from autotune.tuning.options import Search

_SIZES = re.compile(r"\s*-?\d[\d.\s]*[x×*,\s]")
"""The start of a shape or a range; everything else names a file."""

_GPUS = re.compile(r"(?:gpu|cuda):(all|\d+(?:,\d+)+)", re.IGNORECASE)


@dataclass(frozen=True)
class SearchPlace:
    """The device or several GPUs to tune on, and the kernel family to tune."""

    device: str
    devices: str | None
    family: str


@click.command("tune", cls=VerbCommand)
@shape_argument(
    "[MxNxK|FILE|SPEC.py]...",
    "Shapes, such as 4096x4096x4096:bf16, which share the budget; one range, such as "
    "1..512x4096x4096; a file of shapes; or the Python file of a user kernel.",
    nargs=-1,
)
@problem_options
@click.option("--from", "noted", type=click.Path(path_type=Path), metavar="FILE", hidden=True)
@click.option(
    "--device",
    metavar="NAME|FILE",
    shell_complete=completion.devices,
    help="Device, such as gpu, gpu:0,1 (several GPUs of one model share the work), replay:h100 or "
    "h100; see `autotune help devices`.  [default: gpu]",
)
@click.option("--devices", metavar="N,...|all", hidden=True)
@click.option(
    "--effort",
    metavar="NAME",
    shell_complete=completion.efforts,
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
    shell_complete=completion.samplers,
    help="Sampler: gp, tpe, random or exhaustive.  [default: gp]",
)
@family_option(
    "Kernel family, such as simt; see `autotune help families`.  [default: auto, all that "
    "serve the precision]"
)
@click.option(
    "--jobs", type=int, metavar="N", help="Compiler threads.  [default: one a core but one]"
)
@objective_choice("What to minimise")
@click.option(
    "--storage",
    metavar="URL",
    help="Optuna storage that shares the trials, such as sqlite:////tmp/trials.db; "
    "optuna-dashboard opens it too.",
)
@click.option("--quick", is_flag=True, hidden=True)
@click.option(
    "--recording",
    type=click.Path(path_type=Path),
    metavar="FILE.json.gz",
    help="Write all trials, for --device replay:FILE.json.gz.",
)
@click.option("--explain", is_flag=True, help="Count the rejected configurations by reason.")
@click.option("--quiet", is_flag=True, help="Print lines, not a progress bar.")
@click.option(
    "--loss",
    type=float,
    metavar="SHARE",
    help="Loss allowed in a range, against tuning every size.  [default: 0.05]",
)
@click.option(
    "--batch-invariant",
    is_flag=True,
    help="Tune a range of M in one order of summation for all M.",
)
@json_option
def tune(
    shapes: tuple[str, ...],
    options: ProblemOptions,
    noted: Path | None,
    device: str | None,
    devices: str | None,
    effort: str | None,
    trials: int | None,
    budget: str | None,
    seed: int | None,
    sampler: str | None,
    family: str | None,
    jobs: int | None,
    objective: str | None,
    storage: str | None,
    quick: bool,
    recording: Path | None,
    explain: bool,
    quiet: bool,
    loss: float | None,
    batch_invariant: bool,
    json: bool,
) -> None:
    """Search the fastest kernel of a shape and record it. Running it again continues.

    One size may be a range, such as 1..512x4096x4096: it is tuned at as few sizes as it takes.
    Several shapes share the budget, by how often they run and by what tuning may gain. The file of
    a user kernel runs as Python; options replace what its KERNEL says.
    """
    began = monotonic()  # before imports, which the budget includes
    from autotune.problem import problem_of
    from autotune.problem.arguments import Span
    from autotune.targets.sources import DEFAULT

    if device is not None and devices is None and (several := _GPUS.fullmatch(device)):
        device, devices = None, several[1].lower()
    if quick and effort not in (None, "quick"):
        raise UsageError(f"--quick and --effort {effort}; give one of both")
    stated: dict[str, object] = {"effort": "quick" if quick else effort, "trials": trials}
    stated |= {"sampler": sampler, "jobs": jobs, "objective": objective, "storage": storage}
    stated |= {"seed": seed, "seconds": None if budget is None else parse_seconds(budget)}
    fields = {name: value for name, value in stated.items() if value is not None}
    if specs := [word for word in shapes if word.endswith(".py")]:
        if len(shapes) > 1:
            raise UsageError("a user kernel is tuned alone; give one SPEC.py")
        refuse("a user kernel", **{"from": noted}, devices=devices, family=family)
        refuse("a user kernel", recording=recording, explain=explain, loss=loss, **options)
        refuse("a user kernel", batch_invariant=batch_invariant)
        _tune_spec(Path(specs[0]), device, fields, quiet, json)
        return
    place = SearchPlace(device or DEFAULT, devices, family or "auto")
    texts, files = _sorted_out(shapes, noted)
    own = _search(fields, texts)
    search = own.limited(place.family)
    ranged = not files and len(texts) == 1 and ".." in texts[0]
    if batch_invariant and not ranged:
        raise UsageError("batch invariance takes one range of M, such as 1..8192x4096x4096:bf16")
    if files or len(texts) != 1:
        if explain or recording:
            raise UsageError("several shapes take neither --explain nor --recording; give one")
        counted = _counted(texts, files, options)
        _tune_shapes(counted, own.each_limited(place.family), place, quiet, json)
        return
    search = search if own.seconds is None else search.begun(began)
    if ranged:
        if devices or explain or recording:
            raise UsageError(
                "a range takes no --devices, --explain and --recording; leave them out"
            )
        allowed_loss = 0.05 if loss is None else loss
        span = Span.parse(texts[0], **options)
        _tune_span(span, search, place, allowed_loss, batch_invariant, quiet, json)
        return
    problem = problem_of(texts[0], **options)
    _tune_problem(problem, search, place, recording, explain, quiet, json)


def parse_seconds(text: str) -> float:
    """Seconds of `60s`, `2m`, `1.5h` or `90`.

    Raises:
        UsageError: for another form.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smh]?)", text.strip().lower())
    if match is None:
        raise UsageError(f"malformed budget {text!r}; give 60s, 2m or 90 (seconds)")
    return float(match[1]) * SECONDS[match[2]]


def _sorted_out(words: Sequence[str], noted: Path | None) -> tuple[list[str], list[Path]]:
    """The shapes among the words of the command line, and the files of shapes.

    Raises:
        UsageError: for the name of a user kernel.
    """
    files = [Path(word) for word in words if not _SIZES.match(word) and _names_file(word)]
    texts = [word for word in words if Path(word) not in files]
    if names := [word for word in texts if names_kernel(word)]:
        raise UsageError(
            f"{names[0]} is a name; tune takes a shape, such as 4096x4096x4096, or the file of a "
            "user kernel: tune SPEC.py"
        )
    return texts, files + ([] if noted is None else [noted])


def _names_file(word: str) -> bool:
    """Whether a word that is not a shape is the path of a file."""
    return "/" in word or Path(word).suffix in (".json", ".txt") or Path(word).is_file()


def _search(fields: Mapping[str, Any], texts: Sequence[str]) -> Search:
    """The search of shapes that the options state."""
    from autotune.tuning.options import Search

    search = Search(**fields)
    if search.quick and any(".." in text for text in texts):
        raise UsageError("quick takes shapes; a range races the sizes between its ends anyway")
    return search


def _counted(texts: Sequence[str], files: Sequence[Path], options: ProblemOptions) -> Shapes:
    """The shapes of a command line and of files; the options complete the former.

    Raises:
        UsageError: for an impossible shape, a range, a file that is no list of shapes, or none.
    """
    from autotune.api.shapes import Shapes
    from autotune.problem import problems_of

    if any(".." in text for text in texts):
        raise UsageError("a range is tuned alone; give it without other shapes")
    shapes = Shapes.of(problems_of(texts, **options))
    for path in files:
        shapes.update(Shapes.load(path))
    if not shapes:
        raise UsageError("no shape to tune; give one, such as 4096x4096x4096, or a file of shapes")
    return shapes


def _tune_shapes(
    shapes: Shapes, search: Search, place: SearchPlace, quiet: bool, json: bool
) -> None:
    """Tunes shapes under one budget and prints a table; exit status 1 if a search failed."""
    from functools import partial

    from autotune.api import many
    from autotune.report import tuned_shapes
    from autotune.report.console import PlainConsole
    from autotune.report.progress_all import observing_all

    observing = partial(
        observing_all, console=PlainConsole(stderr=True), plain=quiet, objective=search.objective
    )
    where = place.device, place.devices, place.family
    try:
        report = many.tune_shapes(shapes, search, *where, observing=observing)
    except KeyboardInterrupt:
        raise Interrupted("the shapes tuned so far are kept; run again to go on") from None
    if json:
        show_json({"shapes": tuned_shapes.to_json(report)})
    else:
        show(tuned_shapes.render(report))
    if report.failed:
        raise click.exceptions.Exit(1)


def _tune_span(
    span: Span,
    search: Search,
    place: SearchPlace,
    loss: float,
    batch_invariant: bool,
    quiet: bool,
    json: bool,
) -> None:
    """Tunes a range and shows it, with a progress bar of each search."""
    from autotune.api import ranges
    from autotune.report import progress
    from autotune.report import ranges as report
    from autotune.report.console import PlainConsole

    limits = progress.Limits(search.trials, search.seconds)
    shown = progress.observing_each(
        limits, PlainConsole(stderr=True), plain=quiet, objective=search.objective
    )
    with shown as observed:
        try:
            tuned = ranges.tune(
                span,
                search,
                device=place.device,
                family=place.family,
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


def _tune_spec(
    spec: Path, device: str | None, fields: Mapping[str, object], quiet: bool, json: bool
) -> None:
    """Tunes a user kernel and shows its record."""
    from autotune.api import kernel_specs
    from autotune.records import codec
    from autotune.report import kernel_record

    changes = ({"device": device} if device else {}) | ({"progress": False} if quiet else {})
    try:
        record: KernelRecord = kernel_specs.tune_spec(spec, changes, fields)
    except KeyboardInterrupt:
        raise Interrupted("what was measured is kept; run again to go on") from None
    if json:
        show_json(codec.encode(record))
    else:
        show(kernel_record.render(record))


def _tune_problem(
    problem: Problem,
    search: Search,
    place: SearchPlace,
    recording: Path | None,
    explain: bool,
    quiet: bool,
    json: bool,
) -> None:
    """Tunes a shape and shows its record."""
    from autotune.api import tuning
    from autotune.report import progress
    from autotune.report.console import PlainConsole

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
                device=place.device,
                devices=place.devices,
                family=place.family,
                recording=recording,
                observer=tally,
            )
        except KeyboardInterrupt:
            raise Interrupted("what was measured is kept; run again to go on") from None
    rejected = _rejected(tuned, tally, place.family) if explain else None
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


def _rejected(tuned: Record, tally: Tally, family: str) -> Mapping[str, int]:
    """Configurations rejected before compilation, by reason.

    A recording never proposes a configuration that it lacks. There the counts are of the whole
    space, and legal configurations that were not recorded are one more reason.
    """
    from autotune.candidates import space
    from autotune.families.registry import families_of

    if tuned.evidence != "replayed":
        return tally.rejected
    names = families_of(family, tuned.problem)
    spaces = [space.feasible(tuned.problem, tuned.device, name) for name in names]
    legal = sum(len(feasible.configs) for feasible in spaces)
    reasons = sum((Counter(feasible.rejected) for feasible in spaces), Counter[str]())
    return {**reasons, "not recorded": max(0, legal - tally.feasible)}
