"""The trials of a problem: those of its record, or of searches in which nothing worked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.device import Device
from autotune.families.registry import families_of
from autotune.problem import Problem
from autotune.records import TuningRecord
from autotune.records.standing import BEST_FIRST
from autotune.report.analysis.subject import broken_lines, subject_of
from autotune.report.entries import us
from autotune.report.formatting import cell
from autotune.runners.base import Failure
from autotune.tuning.trial_log import logs_in, read, studies_of
from autotune.tuning.trials import Trial

if TYPE_CHECKING:
    from rich.console import RenderableType


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
    kinds = "+".join(families_of(family, problem))
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
    from rich.console import Group
    from rich.text import Text

    from autotune.report.tables import FittedTable

    timed = sorted(_timed(shown.trials), key=lambda trial: trial.time_us)
    table = FittedTable()
    speeds = () if shown.problem is None else ("TFLOP/s",)
    for heading in ("time", "spread", *speeds, "regs", "occ."):
        table.add(heading)
    table.add("configuration", "prose", worth=-0.5)
    for trial in timed[:top]:
        table.add_row(*_cells(trial, shown.problem))
    rest = len(timed) - top
    lines = [f"{rest:,} more; --top {len(timed)} prints them, --csv all"] if rest > 0 else []
    lines += _failures(shown.trials)
    title = f"{shown.title}: {len(shown.trials):,} trials"
    return Group(Text(title, style="bold"), table, *(Text(line, style="dim") for line in lines))


def _timed(trials: Iterable[Trial]) -> list[Trial]:
    return [trial for trial in trials if math.isfinite(trial.time_us)]


def _cells(trial: Trial, problem: Problem | None) -> tuple[RenderableType, ...]:
    from autotune.report.tables import ConfigText

    measured, resources = trial.outcome, trial.resources
    assert not isinstance(measured, Failure)
    speed = () if problem is None else (f"{problem.speed(measured.time_us) / 1e12:.2f}",)
    return (
        us(measured.time_us),
        us(measured.spread_us) if measured.spread_us else "",
        *speed,
        str(resources.registers) if resources else "",
        cell(trial.occupancy, "{:.0%}"),
        ConfigText(str(trial.config)),
    )


def _failures(trials: Sequence[Trial]) -> Iterator[str]:
    """A line for each stage."""
    stages: dict[str, list[tuple[Trial, Failure]]] = {}
    for trial in trials:
        if isinstance(trial.outcome, Failure):
            stages.setdefault(trial.outcome.stage, []).append((trial, trial.outcome))
    for stage, failed in sorted(stages.items(), key=lambda pair: -len(pair[1])):
        trial, failure = failed[0]
        yield f"failed, {stage}: {len(failed)}, such as {trial.config}: {failure.reason}"
