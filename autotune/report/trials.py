"""The trials behind a record, or of searches in which nothing worked, and their tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from autotune.device import Device
from autotune.errors import CacheError
from autotune.families import registry
from autotune.measure.measurement import Failure
from autotune.problem import Problem
from autotune.records import FamilyRecord, Record, TuningRecord
from autotune.records.record import BEST_FIRST
from autotune.report import cell, us
from autotune.report.tables import ConfigText, FittedTable
from autotune.tuning.trial_log import FinishedTrial, LoggedTrials, led_to, logs_in, read, studies_of
from autotune.tuning.trials import Trial


@dataclass(frozen=True)
class Subject:
    """A record and the trials that led to it.

    Attributes:
        record: the record.
        trials: in the order in which they finished; none if the record stands alone.
        note: why there are no trials, or that lines of the log are broken; else empty.
    """

    record: TuningRecord
    trials: tuple[FinishedTrial, ...]
    note: str

    @property
    def problem(self) -> Problem | None:
        """The GEMM; None for a user kernel."""
        return self.record.problem if isinstance(self.record, Record) else None

    @property
    def entries(self) -> tuple[Trial, ...]:
        """The record's entries as trials: the best few of its search, fastest first."""
        return tuple(
            Trial(entry.config, entry.measurement, entry.resources, entry.occupancy, entry.limiter)
            for entry in self.record.entries
        )


def subject_of(record: TuningRecord, root: Path) -> Subject:
    """A record with the trials of its log in the cache `root`.

    Trials count if they have the record's driver, compiler and kernel sources. Without such trials
    the record stands alone, with a note that says why.
    """
    slug = record.problem.slug if isinstance(record, Record) else record.slug
    paths = logs_in(*studies_of(root, record.device, record.evidence, slug))
    if not paths:
        return _alone(record, "its log of trials is not in this cache")
    try:
        logs = [read(path) for path in paths]
    except CacheError as error:
        return _alone(record, str(error))
    same = [log for log in logs if led_to(log.study, record)]
    kinds_of = _kinds(record)
    own = [log for log in same if log.study.partition("@")[0] == kinds_of]
    same = own or same  # a record of an earlier version takes what searches of any family found
    trials, note = _merged(same), broken_lines(same)
    if not trials:
        return _alone(record, "its log has no trials of the record's kernel sources")
    return Subject(record, trials, note)


def broken_lines(logs: Sequence[LoggedTrials]) -> str:
    """The number of broken lines in logs, as text; empty if none are."""
    count = sum(log.broken for log in logs)
    return f"{count} broken lines of the trial log were skipped" if count else ""


def _kinds(record: TuningRecord) -> str:
    if isinstance(record, FamilyRecord):
        return record.family
    if isinstance(record, Record):
        return "+".join(registry.competing(registry.AUTO, record.problem))
    return record.best.config.family


def _alone(record: TuningRecord, why: str) -> Subject:
    count, tried = len(record.entries), record.provenance.trials
    kept = "best entry" if count == 1 else f"best {count} entries"
    note = f"{why}; the record has its {kept} of {tried:,} trials only"
    return Subject(record, (), note)


def _merged(logs: Sequence[LoggedTrials]) -> tuple[FinishedTrial, ...]:
    """The trials of all logs: a configuration tried in several counts once."""
    merged = {row.trial.config: row for log in logs for row in log.trials}
    if len(logs) > 1:  # their seconds count from different starts
        return tuple(FinishedTrial(row.trial, None) for row in merged.values())
    return tuple(merged.values())


@dataclass(frozen=True)
class Trials:
    """The trials of a problem or user kernel on a device, in the order in which they finished.

    Attributes:
        title: the problem or the kernel's call, and the device.
        problem: the problem; None for a user kernel.
        trials: the trials.
        note: why they are not all; empty if they are.
    """

    title: str
    problem: Problem | None
    trials: tuple[Trial, ...]
    note: str = ""


def of_record(record: TuningRecord, root: Path) -> Trials:
    """The trials that led to a record, as far as the cache has them."""
    subject = subject_of(record, root)
    title = f"{record.title} on {record.device.name}, {record.evidence}"
    trials = tuple(row.trial for row in subject.trials) or subject.entries
    return Trials(title, subject.problem, trials, subject.note)


def without_record(problem: Problem, device: Device, family: str, root: Path) -> Trials | None:
    """The trials of searches that led to no record; None if there are none.

    Raises:
        CacheError: if their log cannot be read.
    """
    kinds = "+".join(registry.competing(family, problem))
    for evidence in BEST_FIRST:
        logs = [read(path) for path in logs_in(*studies_of(root, device, evidence, problem.slug))]
        same = [log for log in logs if log.study.partition("@")[0] == kinds]
        if rows := [row.trial for log in same for row in log.trials]:
            title = f"{problem} on {device.name}, {evidence}"
            note = "; ".join(filter(None, ("no record was made of them", broken_lines(same))))
            return Trials(title, problem, tuple(rows), note)
    return None


def render(shown: Trials, top: int) -> RenderableType:
    """The fastest `top` trials, and the number of failures by stage with an example of each."""
    timed = [trial for trial in shown.trials if math.isfinite(trial.time_us)]
    timed.sort(key=lambda trial: trial.time_us)
    table = FittedTable()
    speeds = () if shown.problem is None else ("TFLOP/s",)
    table.add("time", "spread", *speeds, "regs", "occ.")
    table.add("configuration", kind="prose", worth=-0.5)
    for trial in timed[:top]:
        table.add_row(*_cells(trial, shown.problem))
    rest = len(timed) - top
    lines = [f"{rest:,} more; --top {len(timed)} prints them, --csv all"] if rest > 0 else []
    lines += _failures(shown.trials)
    title = f"{shown.title}: {len(shown.trials):,} trials"
    return Group(Text(title, style="bold"), table, *(Text(line, style="dim") for line in lines))


def _cells(trial: Trial, problem: Problem | None) -> tuple[RenderableType, ...]:
    measured, resources = trial.outcome, trial.resources
    assert not isinstance(measured, Failure)
    speed = () if problem is None else (f"{problem.speed(measured.time_us) / 1e12:.2f}",)
    return (
        us(measured.time_us),
        us(measured.spread_us) if measured.spread_us else "",
        *speed,
        str(resources.registers) if resources and resources.threads else "",
        cell(trial.occupancy if resources and resources.threads else None, "{:.0%}"),
        ConfigText(str(trial.config)),
    )


def _failures(trials: Sequence[Trial]) -> Iterator[str]:
    stages: dict[str, list[tuple[Trial, Failure]]] = {}
    for trial in trials:
        if isinstance(trial.outcome, Failure):
            stages.setdefault(trial.outcome.stage, []).append((trial, trial.outcome))
    for stage, failed in sorted(stages.items(), key=lambda pair: -len(pair[1])):
        trial, failure = failed[0]
        yield f"failed, {stage}: {len(failed)}, such as {trial.config}: {failure.reason}"


Cell = str | int | float | None


@dataclass(frozen=True)
class Column:
    """A column: its name, and how a page shows its values (`text`, `time`, `speed`, `percent`,
    `number`)."""

    name: str
    kind: str


@dataclass(frozen=True)
class TrialTable:
    """Rows of trials in the order of the search; a value that does not apply is None."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


_TIMES = ("time_us", "spread_us", "cold_us")

_RESOURCES = ("threads", "registers", "shared", "local")


def table_of(trials: Sequence[Trial], problem: Problem | None) -> TrialTable:
    """Every trial of a problem, or of a user kernel, which has no known operations: its time, its
    resources and the parameters of all families side by side."""
    names = tuple(dict.fromkeys(name for trial in trials for name in trial.config.values))
    words = {
        name for trial in trials for name, value in trial.config.params if isinstance(value, str)
    }
    kinds = [
        *(("trial", "number"), ("family", "text")),
        *((name, "time") for name in _TIMES),
        *(("tflops", "speed"), ("occupancy", "percent"), ("limiter", "text")),
        *((name, "number") for name in _RESOURCES),
        *((name, "text" if name in words else "number") for name in names),
        *(("samples", "number"), ("error", "number"), ("failure", "text")),
    ]
    rows = (_trial_row(number, trial, problem, names) for number, trial in enumerate(trials, 1))
    return TrialTable(tuple(Column(*pair) for pair in kinds), tuple(rows))


def _trial_row(
    number: int, trial: Trial, problem: Problem | None, names: Sequence[str]
) -> tuple[Cell, ...]:
    outcome, values = trial.outcome, trial.config.values
    measured = None if isinstance(outcome, Failure) else outcome
    rate = problem.speed(measured.time_us) / 1e12 if problem and measured else None
    return (
        *(number, trial.config.family),
        *(getattr(measured, name, None) for name in _TIMES),
        *(rate, trial.occupancy, trial.limiter or ""),
        *(getattr(trial.resources, name, None) for name in _RESOURCES),
        *(values.get(name) for name in names),
        *(getattr(measured, name, None) for name in ("samples", "error")),
        f"{outcome.stage}: {outcome.reason}" if isinstance(outcome, Failure) else "",
    )


def rejection_table(rejected: Mapping[str, int], failed: Mapping[str, int]) -> FittedTable:
    """A row for each reason, the most frequent first.

    Args:
        rejected: before compilation, by the rule broken.
        failed: from compilation on, by the stage that failed.
    """
    table = FittedTable(title="rejected configurations", title_justify="left")
    table.add("reason", kind="text")
    table.add("configurations")
    for title, counts in (("before compilation", rejected), ("after that", failed)):
        table.add_row(title, f"{sum(counts.values()):,}", style="bold")
        for reason, count in sorted(counts.items(), key=lambda pair: (-pair[1], pair[0])):
            table.add_row(f"  {reason}", f"{count:,}")
    return table
