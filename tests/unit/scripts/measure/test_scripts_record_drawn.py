"""The script that records drawn shapes, on predicted times."""

from __future__ import annotations

from pathlib import Path

import pytest
import record
from support.sample_records import H100
from typer import Typer
from typer.testing import CliRunner

from autotune.lookup.promising import contenders
from autotune.measure.recording import Recording
from autotune.model import cost
from autotune.problem import Problem
from autotune.records import Records, Store

SHAPES = [Problem(64, 64, 64), Problem(96, 80, 64, "bf16", "nt")]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(record, "drawn", lambda count, _: SHAPES[:count])
    return tmp_path / "cache"


def run(folder: Path, count: int) -> str:
    app = Typer()
    app.command()(record.drawn_shapes)
    words = [str(folder), "--device", "h100", "--count", str(count), "--configs", "6"]
    return CliRunner().invoke(app, words, catch_exceptions=False).output


def test_run_continues(tmp_path: Path) -> None:
    folder = tmp_path / "drawn"
    run(folder, 1)
    (first,) = folder.iterdir()
    written = first.read_bytes()
    assert "1 of 2 shapes are there already" in run(folder, 2)
    assert first.read_bytes() == written
    recordings = [Recording.load(path) for path in folder.iterdir()]
    assert {recording.problem for recording in recordings} == {*SHAPES}
    assert {len(recording.rows) for recording in recordings} == {6}


def test_half_is_promising_and_the_rest_not_hopeless(cache: Path) -> None:
    problem = SHAPES[1]
    configs = record.chosen(problem, H100, 12, 1)
    assert len({*configs}) == 12
    best = contenders(problem, H100, Records(Store(cache)), count=6).first
    assert tuple(configs[:6]) == best
    times = cost.times(configs, problem, H100)
    assert max(times[6:]) <= record.SLOWEST * min(times) * 1.01
    assert configs == record.chosen(problem, H100, 12, 1)
    assert configs[6:] != record.chosen(problem, H100, 12, 2)[6:]
