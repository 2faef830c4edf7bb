"""The report's page of a recording, for tests in a browser."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from autotune.report.analysis.subject import Subject, subject_of_recording
from autotune.report.analysis.whole import Analysis, analysed
from autotune.report.page import write
from autotune.report.record_page import record_page
from support.sample_recording import recorded

NOW = datetime(2026, 11, 22, 12, tzinfo=timezone.utc)


def analysis(subject: Subject) -> Analysis:
    return analysed(subject, stale=None, now=NOW)


@pytest.fixture(scope="module")
def swept() -> Subject:
    return subject_of_recording(recorded())


@pytest.fixture(scope="module")
def page(swept: Subject, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    write(path, record_page(analysis(swept)))
    return path
