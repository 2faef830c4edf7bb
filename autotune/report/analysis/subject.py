"""A record with its trials: the input of every analysis."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from autotune.device import Device
from autotune.errors import AutotuneError, CacheError
from autotune.families import registry
from autotune.problem import Problem
from autotune.records import FamilyRecord, Provenance, Record, TuningRecord
from autotune.records.merging import KEPT
from autotune.runners.base import Candidate, Failure
from autotune.runners.recording import Recording
from autotune.tuning.trial_log import FinishedTrial, LoggedTrials, led_to, logs_in, read, studies_of
from autotune.tuning.trials import Trial

Source = Literal["log", "recording", "record"]


@dataclass(frozen=True)
class Subject:
    """A record and the trials that led to it.

    Attributes:
        record: the record.
        trials: in the order in which they finished; none if the record stands alone.
        source: where the trials are from: a trial log or a recording; `record` if there are none.
        note: why there are no trials, or that lines of the log are broken; else empty.
        families: the kernel families that were searched.
    """

    record: TuningRecord
    trials: tuple[FinishedTrial, ...]
    source: Source
    note: str
    families: tuple[str, ...]

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

    @property
    def device(self) -> Device:
        """The record's device."""
        return self.record.device


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
    kinds = [kind for log in same for kind in log.study.partition("@")[0].split("+")]
    return Subject(record, trials, "log", note, tuple(dict.fromkeys(kinds)))


def broken_lines(logs: Sequence[LoggedTrials]) -> str:
    """How many lines of logs are broken; empty if none are."""
    count = sum(log.broken for log in logs)
    return f"{count} broken lines of the trial log were skipped" if count else ""


def subject_of_recording(recording: Recording) -> Subject:
    """A recorded sweep or suite, with its fastest configurations as the record.

    Raises:
        AutotuneError: if no configuration has a time.
    """
    trials = tuple(FinishedTrial(trial, None) for trial in _trials(recording))
    entries = sorted(
        (entry for row in trials if (entry := row.trial.entry) is not None),
        key=lambda entry: entry.measurement.time_us,
    )
    if not entries:
        raise AutotuneError(f"no configuration of {recording.problem} has a time in the recording")
    made = recording.origin
    provenance = Provenance(
        *(made.driver, made.compiler, made.source, "", recording.date, 0, len(trials), 0.0)
    )
    record = Record(
        recording.device,
        "replayed",
        tuple(entries[:KEPT]),
        recording.baseline,
        provenance,
        recording.problem,
    )
    families = tuple(dict.fromkeys(row.config.family for row in recording.rows))
    return Subject(record, trials, "recording", "", families)


def _kinds(record: TuningRecord) -> str:
    """The kernels that a record's search tries, as `Tunable.kinds` names them."""
    if isinstance(record, FamilyRecord):
        return record.family
    if isinstance(record, Record):
        return "+".join(registry.tuned(record.problem))
    return record.best.config.family


def _alone(record: TuningRecord, why: str) -> Subject:
    count, tried = len(record.entries), record.provenance.trials
    kept = "best entry" if count == 1 else f"best {count} entries"
    note = f"{why}; the record has its {kept} of {tried:,} trials only"
    families = tuple(dict.fromkeys(entry.config.family for entry in record.entries))
    return Subject(record, (), "record", note, families)


def _merged(logs: Sequence[LoggedTrials]) -> tuple[FinishedTrial, ...]:
    """The trials of all logs: a configuration tried in several counts once."""
    merged = {row.trial.config: row for log in logs for row in log.trials}
    if len(logs) > 1:  # their seconds count from different starts
        return tuple(FinishedTrial(row.trial, None) for row in merged.values())
    return tuple(merged.values())


def _trials(recording: Recording) -> list[Trial]:
    trials = []
    for row in recording.rows:
        if isinstance(row.outcome, Failure):
            trials.append(Trial(row.config, row.outcome))
            continue
        try:
            plan = registry.plan(row.config, recording.problem)
        except AutotuneError:  # the family's parameters have changed since
            resident = row.resources.occupancy(recording.device)
            trials.append(
                Trial(row.config, row.outcome, row.resources, resident.occupancy, resident.limiter)
            )
        else:
            candidate = Candidate(row.config, plan, (), row.resources)
            trials.append(Trial.of(candidate, row.outcome, recording.device))
    return trials
