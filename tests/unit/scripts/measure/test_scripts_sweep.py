"""A sweep records every configuration of a problem."""

from __future__ import annotations

from pathlib import Path

import pytest
from record import record
from support.fake_runner import ORIGIN, FakeRunner, by_width, compiled, crash, program, tiled
from support.sample_recording import recorded
from support.sample_records import SQUARE

from autotune.cuda.program import Program
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.recording import Recording
from autotune.measure.runner import Candidate
from autotune.measure.without_gpu import ReplayRunner
from autotune.tuning.pipeline import prepare

NAIVE = Config.parse("naive:mapping=coalesced,block=32")


def live(config: Config) -> Measurement | Failure:
    return by_width(config) if config.family == "tiled" else crash(config)


def test_sweep_records_every_configuration(tmp_path: Path) -> None:
    path = tmp_path / "h100" / "sweep.json.gz"
    configs = [NAIVE, *(tiled(width, kind) for width in range(4, 33) for kind in (0, 1))]
    record(SQUARE, FakeRunner(live), configs, path, compile=compiled, origin=ORIGIN)
    rows = Recording.load(path).rows
    assert {row.config: row.outcome for row in rows} == {config: live(config) for config in configs}


def test_sweep_keeps_compile_failures(tmp_path: Path) -> None:
    def spilling(template: Template, arch: str) -> Program:
        return program(template, arch, spills=48)

    path = tmp_path / "sweep.json.gz"
    swept = record(SQUARE, FakeRunner(), [tiled(8)], path, compile=spilling, origin=ORIGIN)
    (row,) = swept.rows
    runner = ReplayRunner(swept)
    candidate = prepare(registry.plan(tiled(8), SQUARE), runner, compiled)
    assert isinstance(candidate, Candidate)
    assert runner.measure(candidate, None) == row.outcome
    assert isinstance(row.outcome, Failure)


def test_interrupted_sweep_keeps_both_recordings(tmp_path: Path) -> None:
    left = iter(range(7))

    def outcome(config: Config) -> Measurement:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return by_width(config)

    path = tmp_path / "sweep.json.gz"
    recorded().save(path)
    earlier = path.read_bytes()
    configs = [tiled(width) for width in range(4, 33)]
    with pytest.raises(KeyboardInterrupt):
        record(SQUARE, FakeRunner(outcome), configs, path, compile=compiled, origin=ORIGIN)
    assert len(Recording.load(tmp_path / "sweep.json.gz.partial").rows) == 7
    assert path.read_bytes() == earlier


def test_sweep_compiles_shared_programs_once(tmp_path: Path) -> None:
    built: list[str] = []

    def build(template: Template, arch: str) -> Program:
        built.append(template.label)
        return program(template, arch)

    configs = [tiled(width, kind) for width in range(4, 33) for kind in (0, 1)]
    path = tmp_path / "sweep.json.gz"
    record(SQUARE, FakeRunner(), configs, path, compile=build, origin=ORIGIN)
    assert len(built) == len(set(built)) == 30
