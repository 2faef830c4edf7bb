"""Rows of every candidate are compared with those of a reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fake_runner import ORIGIN, FakeRunner, program
from support.sample_records import SQUARE

from autotune.api.invariant import ROWS, RowChecks, checked
from autotune.cuda.program import CompileFailure, Program
from autotune.device import find
from autotune.errors import AutotuneError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Resources, Template
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import HOT, BestTimes, Objective
from autotune.measure.runner import Candidate, RowReference
from autotune.model import space
from autotune.model.legality import Legality
from autotune.problem import Problem
from autotune.records import Store
from autotune.tuning.loop import Search, tune
from autotune.tuning.tunable import GemmTunable

H100 = find("h100")


ORDER = "wgmma bf16 swap=1 shared 1024"


PROBLEM = Problem(700, 512, 1024, "bf16", "nt")


REFERENCES = space.feasible(replace(PROBLEM, m=1), H100, "wgmma", ORDER).configs


CONFIGS = space.feasible(PROBLEM, H100, "wgmma", ORDER).configs


class LoggingRunner(FakeRunner):
    """Keeps the candidates that it is asked for, by request."""

    def __init__(self) -> None:
        super().__init__(device=H100)
        self.asked: dict[str, list[Candidate]] = {"measure": [], "rematch": [], "examine": []}

    def measure(
        self, candidate: Candidate, best: BestTimes | None, objective: Objective = HOT
    ) -> Measurement | Failure:
        self.asked["measure"].append(candidate)
        return super().measure(candidate, best, objective)

    def rematch(self, candidates: Sequence[Candidate]) -> list[Measurement | Failure]:
        self.asked["rematch"] += candidates
        return super().rematch(candidates)

    def examine(self, candidate: Candidate) -> Failure | None:
        self.asked["examine"].append(candidate)
        return super().examine(candidate)


def compiled(template: Template, arch: str) -> Program | CompileFailure:
    return Program(template, arch, b"", "kernel", 64, 0, 0, 0, 0, "NVRTC", "key", "")


def candidate(config: Config, problem: Problem = PROBLEM) -> Candidate:
    return Candidate(config, registry.plan(config, problem), (), Resources(128, 64, 0))


def checks(problem: Problem = PROBLEM, compile: Any = compiled) -> RowChecks:
    return RowChecks(FakeRunner(device=H100), problem, ORDER, REFERENCES[:2], compile)


def test_every_request_compares_rows(tmp_path: Path) -> None:
    runner = LoggingRunner()
    tune(
        GemmTunable(SQUARE, "tiled"),
        checked(runner, lambda item: replace(item, rows=RowReference(0, 1, item))),
        Store(tmp_path),
        Search(trials=3, sampler="random"),
        compile=program,
        origin=ORIGIN,
    )
    for candidates in runner.asked.values():
        assert candidates
        assert all(item.rows and item.rows.candidate.config == item.config for item in candidates)


def test_candidates_are_compared_at_many_pairs_of_m() -> None:
    rows, windows = checks(), set()
    for config in CONFIGS:
        window = rows.compared(candidate(config)).rows
        assert window is not None
        few = replace(PROBLEM, m=window.rows)
        assert Legality(few, H100, ORDER)(window.candidate.config)
        assert window.candidate.plan.main.grid == registry.plan(REFERENCES[0], few).main.grid
        assert window.first % 16 == 0
        assert window.first + window.rows <= PROBLEM.m
        windows.add((window.first > 0, window.rows))
    assert len(windows) > len(ROWS) - 4


def test_smallest_m_is_compared_whole() -> None:
    problem = replace(PROBLEM, m=1)
    window = checks(problem).compared(candidate(REFERENCES[2], problem)).rows
    assert window is not None
    assert (window.first, window.rows) == (0, 1)


def test_reference_that_does_not_compile_is_passed_over() -> None:
    failing = {launch.template for launch in registry.plan(REFERENCES[0], PROBLEM).launches}

    def compile(template: Template, arch: str) -> Program | CompileFailure:
        if template in failing:
            return CompileFailure(template, arch, "too large", "")
        return compiled(template, arch)

    window = checks(compile=compile).compared(candidate(CONFIGS[0])).rows
    assert window is not None
    assert window.candidate.config == REFERENCES[1]
    failing |= {launch.template for launch in registry.plan(REFERENCES[1], PROBLEM).launches}
    with pytest.raises(AutotuneError, match="none of 2 references of rows compiles"):
        checks(compile=compile).compared(candidate(CONFIGS[0]))
