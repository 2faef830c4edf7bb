"""Worker processes that switch to another problem verify and time it."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from autotune.cuda import compiler
from autotune.errors import MissingError
from autotune.families import registry
from autotune.measure.gpu_runner import GpuRunner, open_runner
from autotune.measure.measurement import Measurement
from autotune.measure.runner import Candidate
from autotune.model import cost, space
from autotune.problem import Problem
from autotune.tuning.pipeline import prepare

PROBLEMS = (
    Problem(512, 512, 512),
    Problem(1023, 257, 129, "bf16", "nt"),
    Problem(2048, 1024, 1024, "f16"),
)


def measured(runner: GpuRunner, problem: Problem, programs: Path) -> Measurement:
    """The best configuration of a family by the cost model, verified and timed."""
    family = registry.tuned(problem)[0]
    configs = space.spread(space.feasible(problem, runner.device, family).configs, 300)
    (_, config), *_ = cost.rank(configs, problem, runner.device)
    build = partial(compiler.compile, cache=programs)
    candidate = prepare(registry.plan(config, problem), runner, build)
    assert isinstance(candidate, Candidate)
    outcome = runner.measure(candidate, None)
    assert isinstance(outcome, Measurement)
    return outcome


def test_same_processes_measure_problem_after_problem(programs: Path) -> None:
    try:
        runner = open_runner(PROBLEMS[0])
        _ = runner.device
    except MissingError as error:
        pytest.skip(str(error))
    try:
        baselines = [runner.baseline()]
        if baselines[0] is None:
            pytest.skip("neither PyTorch with a GPU nor cuBLAS")
        measured(runner, PROBLEMS[0], programs)
        for problem in PROBLEMS[1:]:
            runner.switch_to(problem)
            outcome = measured(runner, problem, programs)
            assert outcome.error is not None
            baselines.append(runner.baseline())
    finally:
        runner.close()
    # Errors of random operands differ even if two problems took the same time.
    errors = {baseline.relative_error for baseline in baselines if baseline}
    assert len(errors) == len(PROBLEMS)
