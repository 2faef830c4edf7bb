"""`autotune best --trials`."""

from __future__ import annotations

import csv
import io
import shutil
from pathlib import Path

import pytest
from support.command_line import answer, printed, run
from support.sample_recording import DEVICE, FASTEST, PROBLEM

from autotune import settings
from autotune.measure.measurement import Failure
from autotune.measure.without_gpu import ReplayRunner

SHAPE = PROBLEM.shape
TUNE = ("tune", SHAPE, "--device", DEVICE, "--sampler", "exhaustive")


def log() -> Path:
    (path,) = settings.cache_dir().glob("studies/*/*.jsonl")
    return path


def test_trials_are_printed_fastest_first(capsys: pytest.CaptureFixture[str]) -> None:
    run(*TUNE)
    capsys.readouterr()
    text = printed(capsys, "best", "--trials", SHAPE, "--device", DEVICE, "--top", "3")
    title, _, first, *_ = text.splitlines()
    assert title.startswith(f"{PROBLEM} on NVIDIA H100 80GB HBM3, replayed: 25 trials")
    assert "simt" in first
    assert "21 more; --top 24 prints them, --csv all" in text
    assert "failed, verify: 1, such as " in text


def test_trials_as_csv_have_a_row_each(capsys: pytest.CaptureFixture[str]) -> None:
    run(*TUNE)
    capsys.readouterr()
    rows = [
        *csv.DictReader(
            io.StringIO(printed(capsys, "best", "--trials", SHAPE, "--device", DEVICE, "--csv"))
        )
    ]
    assert len(rows) == 25
    best = min((row for row in rows if row["time_us"]), key=lambda row: float(row["time_us"]))
    assert {name: best[name] for name in FASTEST.values} == {
        name: str(value) for name, value in FASTEST.values.items()
    }
    (failed,) = (row for row in rows if row["failure"])
    assert failed["time_us"] == ""


def test_trials_as_json_are_objects(capsys: pytest.CaptureFixture[str]) -> None:
    run(*TUNE, "--family", "tiled")
    capsys.readouterr()
    data = answer(capsys, "best", "--trials", SHAPE, "--device", DEVICE, "--family", "tiled")
    trials = data["trials"]
    assert isinstance(trials, list)
    assert {trial["family"] for trial in trials} == {"tiled"}


def test_one_trial_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    run("tune", SHAPE, "--device", DEVICE, "--trials", "1")
    capsys.readouterr()
    assert ": 1 trials" in printed(capsys, "best", "--trials", SHAPE, "--device", DEVICE)


def test_trials_without_a_record_are_shown(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Failure("verify", "the largest error is 3.0")
    monkeypatch.setattr(ReplayRunner, "measure", lambda *_: wrong)
    assert run(*TUNE) == 1
    capsys.readouterr()
    assert run("best", "--trials", SHAPE, "--device", DEVICE) == 0
    shown = capsys.readouterr()
    assert shown.err.endswith("replayed: no record was made of them\n")
    assert "failed, verify: 25, such as " in shown.out


def test_record_without_its_log_shows_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    run(*TUNE)
    shutil.rmtree(log().parent)
    capsys.readouterr()
    assert run("best", "--trials", SHAPE, "--device", DEVICE) == 0
    shown = capsys.readouterr()
    assert "its log of trials is not in this cache; the record has its best 10" in shown.err
    assert "replayed: 10 trials" in shown.out


def test_broken_lines_of_the_log_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    run(*TUNE)
    with log().open("ab") as file:
        file.write(b"{\n{\n")
    capsys.readouterr()
    assert run("best", "--trials", SHAPE, "--device", DEVICE) == 0
    shown = capsys.readouterr()
    assert "2 broken lines of the trial log were skipped" in shown.err
    assert ": 25 trials" in shown.out


def test_problem_without_trials_says_how_to_tune(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("best", "--trials", SHAPE, "--device", DEVICE) == 3
    assert f"run `autotune tune {PROBLEM} --device {DEVICE}`" in capsys.readouterr().err


def test_csv_and_json_exclude_each_other() -> None:
    assert run("best", "--trials", SHAPE, "--device", DEVICE, "--csv", "--json") == 2
