"""All trials of a record as a table, and its leaders."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.families.plan import Resources
from autotune.problem import Problem
from autotune.records import Entry
from autotune.report.analysis.subject import Subject
from autotune.runners.base import Failure
from autotune.tuning.trials import Trial

Cell = str | int | float | None


@dataclass(frozen=True)
class Column:
    """A column: its name, and how a page shows its values (`text`, `time`, `percent`, `number`)."""

    name: str
    kind: str


@dataclass(frozen=True)
class TrialTable:
    """Rows of trials in the order of the search; a value that does not apply is None."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]


@dataclass(frozen=True)
class Leader:
    """An entry of a record: its time with the spread, the loss against the fastest (0.05 is 5 %
    longer), its time with L2 flushed, and the parameters in which it differs from the winner."""

    config: str
    time_us: float
    spread_us: float
    loss: float
    cold_us: float | None
    occupancy: float
    limiter: str
    registers: int
    shared: int
    differs: str


_OUTCOME = (
    Column("time_us", "time"),
    Column("spread_us", "time"),
    Column("cold_us", "time"),
    Column("tflops", "number"),
)
_RESOURCES = (
    Column("occupancy", "percent"),
    Column("limiter", "text"),
    Column("threads", "number"),
    Column("registers", "number"),
    Column("shared", "number"),
    Column("local", "number"),
)
_END = (Column("samples", "number"), Column("error", "number"), Column("failure", "text"))


def trial_table(subject: Subject) -> TrialTable:
    """Every trial with its time, resources and parameters; those of all families side by side."""
    return table_of([row.trial for row in subject.trials], subject.problem)


def table_of(trials: list[Trial], problem: Problem | None) -> TrialTable:
    """The table of trials of a problem, or of a user kernel, which has no known operations."""
    names = tuple(dict.fromkeys(name for trial in trials for name in trial.config.values))
    numeric = {name: _numeric(name, trials) for name in names}
    parameters = tuple(Column(name, "number" if numeric[name] else "text") for name in names)
    start = (Column("trial", "number"), Column("family", "text"))
    rows = (_row(number, trial, problem, names) for number, trial in enumerate(trials, start=1))
    return TrialTable((*start, *_OUTCOME, *_RESOURCES, *parameters, *_END), tuple(rows))


def leaders(subject: Subject) -> tuple[Leader, ...]:
    """The record's entries, fastest first."""
    entries = sorted(subject.record.entries, key=lambda entry: entry.measurement.time_us)
    fastest, best = entries[0].measurement.time_us, subject.record.best
    return tuple(
        Leader(
            config=str(entry.config),
            time_us=entry.measurement.time_us,
            spread_us=entry.measurement.spread_us,
            loss=entry.measurement.time_us / fastest - 1,
            cold_us=entry.measurement.cold_us,
            occupancy=entry.occupancy,
            limiter=entry.limiter,
            registers=entry.resources.registers,
            shared=entry.resources.shared,
            differs="the winner" if entry == best else _difference(entry, best),
        )
        for entry in entries
    )


def _difference(entry: Entry, best: Entry) -> str:
    if entry.config.family != best.config.family:
        return str(entry.config)
    pairs = (pair for pair in entry.config.params if pair not in best.config.params)
    return ", ".join(f"{name}={value}" for name, value in pairs)


def _numeric(name: str, trials: list[Trial]) -> bool:
    values = (trial.config.values.get(name, 0) for trial in trials)
    return all(isinstance(value, int) for value in values)


def _row(
    number: int, trial: Trial, problem: Problem | None, names: tuple[str, ...]
) -> tuple[Cell, ...]:
    values, outcome = trial.config.values, trial.outcome
    if isinstance(outcome, Failure):
        timed: tuple[Cell, ...] = (None, None, None, None)
        end: tuple[Cell, ...] = (None, None, f"{outcome.stage}: {outcome.reason}")
    else:
        rate = problem.speed(outcome.time_us) / 1e12 if problem else None
        timed = (outcome.time_us, outcome.spread_us, outcome.cold_us, rate)
        end = (outcome.samples, outcome.error, "")
    return (
        *(number, trial.config.family, *timed, trial.occupancy, trial.limiter or ""),
        *_resources(trial.resources),
        *(values.get(name) for name in names),
        *end,
    )


def _resources(resources: Resources | None) -> tuple[Cell, ...]:
    if resources is None:
        return (None, None, None, None)
    return (resources.threads, resources.registers, resources.shared, resources.local)
