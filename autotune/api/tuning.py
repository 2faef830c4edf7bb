"""Searches of one problem: their progress, their recording, and the device that measures."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from autotune import files, settings
from autotune.cuda import compiler
from autotune.errors import AutotuneError, NotFoundError, UsageError
from autotune.families import cublaslt
from autotune.families.registry import AUTO
from autotune.files import output
from autotune.measure import kernel_tuner, targets
from autotune.measure.devices import DEFAULT, DeviceLike
from autotune.measure.measurement import completed
from autotune.measure.objective import Objective
from autotune.measure.recording import KernelRecording, Origin, Recording, SweepRow
from autotune.measure.targets import TargetOpener
from autotune.model.space import unserved
from autotune.problem import Problem
from autotune.records import KernelRecord, Record, Store, TuningRecord
from autotune.records.merging import made_from
from autotune.tuning.options import Search
from autotune.tuning.trials import Observer

if TYPE_CHECKING:
    from autotune.measure.runner import Runner
    from autotune.tuning.tunable import QuickTunable

T4 = output.OutputKind("file of T4 results", (b'{"results":',))

ProgressLike = bool | Literal["lines"] | Observer
"""Progress of a search: shown as a bar or as lines, hidden, or given to the caller's observer."""


@contextmanager
def shown(
    problem: Problem | None, options: Search, progress: ProgressLike, *, named: bool = False
) -> Iterator[Observer | None]:
    """The observer of a search: the caller's, or one that shows it on standard error.

    Args:
        problem: problem to tune; None for a user kernel.
        options: the search, with its limits.
        progress: as for `tune`.
        named: whether to print the problem first, as one of several.
    """
    if progress is not True and progress != "lines":
        yield None if progress is False else progress
        return
    from autotune.report.progress import Limits, observing
    from autotune.report.tables import PlainConsole

    console, lines = PlainConsole(stderr=True), progress == "lines"
    if named:
        console.print(f"tuning {problem}", highlight=False)
    with observing(console, plain=lines, objective=options.objective) as observed:
        yield observed(problem, Limits(options.trials, options.seconds))


@contextmanager
def shown_all(
    count: int, objective: Objective, progress: ProgressLike
) -> Iterator[Callable[[Problem, float], Observer | None]]:
    """A function to the observer of each of up to `count` searches that share a budget."""
    if progress is not True and progress != "lines":
        yield lambda _problem, _seconds: None if progress is False else progress
        return
    from autotune.report.progress import Limits, observing
    from autotune.report.tables import PlainConsole

    console, lines = PlainConsole(stderr=True), progress == "lines"
    with observing(console, plain=lines, objective=objective, count=count) as observed:
        yield lambda problem, seconds: observed(problem, Limits(None, seconds))


def search(
    problem: Problem,
    options: Search,
    device: DeviceLike = DEFAULT,
    devices: str | Sequence[int] | None = None,
    family: str = AUTO,
    *,
    progress: ProgressLike = False,
) -> Record:
    """Searches one problem: `autotune.tune` with its arguments decoded.

    Raises:
        UsageError: for several devices and quick options, or a recording without a GPU.
    """
    if options.quick and devices is not None:
        raise UsageError("quick takes no devices; leave either out")
    recording = options.recording
    if recording is not None and devices is None and not targets.measures(device):
        raise UsageError(f"{device} has no times to record; give a GPU of this machine, or none")
    settings.refuse_frozen(f"cannot tune {problem}")
    with (
        shown(problem, options, progress) as observer,
        TargetOpener(device, numbers=devices, seed=options.seed, quick=options.quick) as opener,
    ):
        record = search_at(opener, problem, options, family=family, observer=observer)
    if recording is not None:
        save_recording(record, Store(settings.cache_dir()), Path(recording))
    return record


def search_at(
    opener: TargetOpener,
    problem: Problem,
    options: Search,
    *,
    family: str = AUTO,
    observer: Observer | None = None,
) -> Record:
    """Searches a problem with an opener, which others may have used before; races it if
    the options are quick."""
    cache = settings.cache_dir()
    with opener.starting(problem) as opened:
        import_ahead(options)
        from autotune.tuning.loop import tune
        from autotune.tuning.tunable import GemmTunable

        target, store = opened(), Store(files.ensure(cache))
        tunable = GemmTunable(problem, family)
        if options.quick:
            tunable = raced(problem, target.runner, store, options.objective)
        return tune(
            tunable,
            target.runner,
            store,
            options,
            compile=partial(compiler.compile, cache=cache),
            origin=target.origin,
            observer=observer,
            further=target.further,
        )


def import_ahead(options: Search) -> None:
    """Imports in a thread what the model of a search is fitted with, if it has one."""
    if options.modelled:
        from autotune.model import gaussian_process

        gaussian_process.import_ahead()


def raced(problem: Problem, runner: Runner, store: Store, objective: Objective) -> QuickTunable:
    """The problem with its most promising configurations, by the records of the store.

    Raises:
        NotFoundError: if there is none.
    """
    from autotune.lookup.promising import contenders
    from autotune.records import Records
    from autotune.tuning.tunable import QuickTunable

    recorded = runner.known()
    kernels = recorded and [each for each in recorded if each.family != cublaslt.NAME]
    considered = contenders(problem, runner.device, Records(store), objective, configs=kernels)
    if not considered.first:
        raise NotFoundError(unserved(problem, runner.device))
    return QuickTunable(problem, raced=considered)


def swept(record: TuningRecord, store: Store, path: Path) -> tuple[SweepRow, ...]:
    """The trials of a record's search, which are in the cache, for a file.

    Raises:
        AutotuneError: if the trials are kept elsewhere.
    """
    from autotune.report.trials import subject_of  # imports Optuna

    subject = subject_of(record, store.root)
    if not subject.trials:
        raise AutotuneError(f"{path} is not written: {subject.note}")
    leaders = {entry.config: entry.measurement for entry in record.entries}
    rows = {
        trial.config: SweepRow(
            trial.config, trial.resources, completed(trial.outcome, leaders.get(trial.config))
        )
        for trial in (finished.trial for finished in subject.trials)
        if trial.resources is not None
    }
    return tuple(rows.values())


def save_t4(record: TuningRecord, store: Store, path: Path) -> int:
    """Writes the trials of a record's search as T4 results, compressed if the file ends with `.gz`,
    and returns how many they are.

    Raises:
        AutotuneError: if the trials are kept elsewhere, or the file cannot be written.
    """
    rows = swept(record, store, path)
    kernel = record.call.name if isinstance(record, KernelRecord) else record.title
    plain = ((row.config, row.resources, row.outcome) for row in rows)
    content = kernel_tuner.t4(plain, device=record.device.name, kernel=kernel)
    text = json.dumps(content, separators=(",", ":")).encode()
    output.write(path, gzip.compress(text, mtime=0) if path.suffix == ".gz" else text, T4)
    return len(rows)


def save_recording(record: Record | KernelRecord, store: Store, path: Path) -> None:
    """Writes the trials of a record's search, which are in the cache, as a recording.

    Raises:
        AutotuneError: if the trials are kept elsewhere, or the file cannot be written.
    """
    rows = swept(record, store, path)
    run, today = record.provenance, targets.here().source
    # A record names the sources of its entries' families alone; trials are of other families too.
    source = today if made_from(record, today) else run.source
    origin = Origin(run.driver, run.compiler, source)
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    made = record.device, origin, date
    if isinstance(record, KernelRecord):
        KernelRecording(record.call, *made, rows).save(path)
    else:
        Recording(record.problem, *made, record.baseline, rows).save(path)
