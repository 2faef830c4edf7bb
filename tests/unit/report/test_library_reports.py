"""Reports on a record with algorithms of cuBLASLt, whose resources are not known."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console, RenderableType
from support.fake_runner import tiled
from support.sample_records import H100, SQUARE, entry, record
from support.swept_page import analysis

from autotune.cuda import cublaslt
from autotune.families.cublaslt import config_of
from autotune.families.plan import OWN, OWN_RESOURCES, Algorithm
from autotune.lookup.answer import recorded_answer
from autotune.measure.measurement import Measurement
from autotune.records import Entry, Record
from autotune.report import explanation
from autotune.report import record as records
from autotune.report.pages.occupancy import residency
from autotune.report.pages.roofline import roofline
from autotune.report.trials import Subject, Trials, render
from autotune.tuning.trial_log import FinishedTrial
from autotune.tuning.trials import Trial

ALGORITHM = config_of(Algorithm(66, 20, 2, 1, 0, 0, 35, 0, 5), 4096)
KERNEL = replace(entry(16, 3000.0), config=tiled(16))


def of_library(time_us: float) -> Entry:
    return Entry(ALGORITHM, Measurement(time_us, 0.1, 20), OWN_RESOURCES, 0.0, OWN)


def made(time_us: float) -> Record:
    return record(of_library(time_us), KERNEL, source="cublaslt:13.0.0 tiled:5e1f")


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cublaslt, "version", lambda: "13.0.0")


def text(shown: RenderableType) -> str:
    console = Console(file=StringIO(), width=100)
    console.print(shown)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


def test_table_has_the_library_in_place_of_resources() -> None:
    shown = text(records.render(made(2500.0)))
    assert "best algorithm" in shown
    assert "cuBLASLt 13.0.0: 2500.00 us; the best kernel is 0.833 times as fast" in shown
    assert "the library's own" in shown
    assert "occupancy" not in shown


@pytest.mark.parametrize(
    ("time_us", "why"),
    [
        (2500.0, "It is 20.00% faster than the next of 2"),
        (2999.0, "Tied with 1 within 0.03%, and up to 0.5% is a tie; it runs with every version"),
    ],
)
def test_explanation_compares_times_alone(time_us: float, why: str) -> None:
    answer = recorded_answer(SQUARE, H100, made(time_us), "exact", 0.0)
    assert answer is not None
    winner = explanation.explain(answer.config, answer)
    algorithm = explanation.explain(ALGORITHM, answer)
    assert why in explanation.why(answer, winner)[0]
    assert explanation.compared(answer, winner, algorithm)[0].startswith("recorded: ")
    assert algorithm.fit is None


def test_pages_leave_out_what_is_not_known() -> None:
    of = made(2500.0)
    trial = Trial(ALGORITHM, of.best.measurement, OWN_RESOURCES, 0.0, OWN)
    subject = Subject(of, (FinishedTrial(trial, 1.0),), "")
    assert residency(subject) is None
    found = roofline(subject)
    assert found is not None
    assert found.trials == ()
    page = analysis(subject).page()
    assert "cublaslt:id=66" in str(page)
    assert "limited by the library" not in str(page)


def test_table_of_trials_has_no_registers_of_it() -> None:
    trial = Trial(ALGORITHM, Measurement(2500.0, 0.1, 20), OWN_RESOURCES, 0.0, OWN)
    shown = text(render(Trials("title", SQUARE, (trial,)), top=5))
    assert "0%" not in shown
