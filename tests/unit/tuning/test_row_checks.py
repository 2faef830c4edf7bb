"""The runner that has rows compared with those of a reference."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.candidates import space
from autotune.candidates.legality import is_legal
from autotune.compiler import CompileFailure, Program
from autotune.device import find
from autotune.errors import AutotuneError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Resources, Template
from autotune.problem import Problem
from autotune.runners.base import Candidate, Measurement
from autotune.tuning.row_checks import ROWS, RowChecked

H100 = find("h100")
ORDER = "wgmma bf16 swap=1 shared 1024"
PROBLEM = Problem(700, 512, 1024, "bf16", "nt")
REFERENCES = space.feasible(replace(PROBLEM, m=1), H100, "wgmma", ORDER).configs
CONFIGS = space.feasible(PROBLEM, H100, "wgmma", ORDER).configs


class LoggingRunner:
    """Measures nothing, and keeps what it was asked for."""

    device, evidence, baseline_ready = H100, "measured", True

    def __init__(self) -> None:
        self.asked: list[Candidate] = []

    def resources(self, _: Config) -> None:
        return None

    def measure(self, candidate: Candidate, *_: object) -> Measurement:
        self.asked.append(candidate)
        return Measurement(1.0)

    def rematch(self, candidates: list[Candidate]) -> list[Measurement]:
        return [self.measure(candidate) for candidate in candidates]

    def examine(self, candidate: Candidate) -> None:
        self.asked.append(candidate)


def compiled(template: Template, arch: str) -> Program | CompileFailure:
    return Program(template, arch, b"", "kernel", 64, 0, 0, 0, 0, "NVRTC", "key", "")


def candidate(config: Config, problem: Problem = PROBLEM) -> Candidate:
    return Candidate(config, registry.plan(config, problem), (), Resources(128, 64, 0))


def checked(runner: Any, problem: Problem = PROBLEM, compile: Any = compiled) -> RowChecked:
    return RowChecked(runner, problem, ORDER, REFERENCES[:2], compile)


def test_every_request_compares_rows() -> None:
    runner = LoggingRunner()
    rows = checked(runner)
    item = candidate(CONFIGS[0])
    rows.measure(item, None)
    rows.rematch([item])
    rows.examine(item)
    assert [asked.rows is not None for asked in runner.asked] == [True] * 3
    assert [replace(asked, rows=None) for asked in runner.asked] == [item] * 3


def test_candidates_are_compared_at_many_pairs_of_m() -> None:
    rows, windows = checked(LoggingRunner()), set()
    for config in CONFIGS:
        window = rows.compared(candidate(config)).rows
        assert window is not None
        few = replace(PROBLEM, m=window.rows)
        assert is_legal(window.candidate.config, few, H100, ORDER)
        assert window.candidate.plan.main.grid == registry.plan(REFERENCES[0], few).main.grid
        assert window.first % 16 == 0
        assert window.first + window.rows <= PROBLEM.m
        windows.add((window.first > 0, window.rows))
    assert len(windows) > len(ROWS) - 4


def test_smallest_m_is_compared_whole() -> None:
    problem = replace(PROBLEM, m=1)
    window = checked(LoggingRunner(), problem).compared(candidate(REFERENCES[2], problem)).rows
    assert window is not None
    assert (window.first, window.rows) == (0, 1)


def test_reference_that_does_not_compile_is_passed_over() -> None:
    failing = {launch.template for launch in registry.plan(REFERENCES[0], PROBLEM).launches}

    def compile(template: Template, arch: str) -> Program | CompileFailure:
        if template in failing:
            return CompileFailure(template, arch, "too large", "")
        return compiled(template, arch)

    window = checked(LoggingRunner(), compile=compile).compared(candidate(CONFIGS[0])).rows
    assert window is not None
    assert window.candidate.config == REFERENCES[1]
    failing |= {launch.template for launch in registry.plan(REFERENCES[1], PROBLEM).launches}
    with pytest.raises(AutotuneError, match="none of 2 references of rows compiles"):
        checked(LoggingRunner(), compile=compile).compared(candidate(CONFIGS[0]))
