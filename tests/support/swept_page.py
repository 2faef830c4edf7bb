"""The report's page of a recording, for tests in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.families.registry import plan
from autotune.measure.measurement import Failure
from autotune.measure.runner import Candidate
from autotune.records import Entry, Provenance, Record
from autotune.records.merging import KEPT
from autotune.report.pages.page import write
from autotune.report.pages.record import Analysis, analysed
from autotune.report.trials import Subject
from autotune.tuning.trial_log import FinishedTrial
from autotune.tuning.trials import Trial
from support.fake_runner import UNKNOWN
from support.sample_recording import recorded


def analysis(subject: Subject) -> Analysis:
    return analysed(subject, UNKNOWN)


def swept_subject() -> Subject:
    """The rows of a recording as trials, with the fastest as the record."""
    recording = recorded()
    trials = []
    for row in recording.rows:
        if isinstance(row.outcome, Failure):
            trials.append(Trial(row.config, row.outcome))
            continue
        candidate = Candidate(row.config, plan(row.config, recording.problem), (), row.resources)
        trials.append(Trial.of(candidate, row.outcome, recording.device))
    made = recording.origin
    record = Record(
        recording.device,
        "replayed",
        tuple(sorted(filter(None, (trial.entry for trial in trials)), key=time_of)[:KEPT]),
        recording.baseline,
        Provenance(
            *(made.driver, made.compiler, made.source, "", recording.date, 0, len(trials), 0.0)
        ),
        recording.problem,
    )
    rows = tuple(FinishedTrial(trial, None) for trial in trials)
    return Subject(record, rows, "")


def time_of(entry: Entry) -> float:
    return entry.measurement.time_us


@pytest.fixture(scope="module")
def swept() -> Subject:
    return swept_subject()


@pytest.fixture(scope="module")
def page(swept: Subject, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write(path, analysis(swept).page())
    return path
