"""Algorithms of cuBLASLt in the measuring process: listed, refused where known to be wrong, run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from support.fake_cublaslt import STREAM, operands_of
from support.sample_records import H100

from autotune.cuda.cublaslt import CublasLt, Found
from autotune.errors import MissingError, RunnerError
from autotune.families import registry
from autotune.families.cublaslt import config_of
from autotune.families.plan import OWN_RESOURCES, Algorithm
from autotune.measure import bench as module
from autotune.measure.bench import GemmBench
from autotune.measure.gpu_runner import GpuRunner
from autotune.measure.measurement import Failure
from autotune.measure.runner import Candidate, WithLibrary
from autotune.measure.session import BindingsSession, CudaError
from autotune.problem import Problem
from autotune.tuning.pipeline import prepare

PROBLEM = Problem(5, 7, 3)
FOUND = [Found(Algorithm(66, 20, split, 1, 0, 0, 35, 0, 5), 256) for split in (1, 9)]


def candidate(problem: Problem, found: Found) -> Candidate:
    config = config_of(*found)
    return Candidate(config, registry.plan(config, problem), (), OWN_RESOURCES)


class NoRuns:
    """Stands for what a refused candidate must not reach."""

    Error = CudaError
    device = H100

    def __init__(self, cublaslt: Any) -> None:
        self._cublaslt = cublaslt

    @property
    def cublaslt(self) -> Any:
        if isinstance(self._cublaslt, Exception):
            raise self._cublaslt
        return self._cublaslt


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Callable[[Problem, Any], GemmBench]:
    operands = lambda _session, problem, *_: SimpleNamespace(problem=problem)  # noqa: E731
    monkeypatch.setattr(module, "Operands", operands)
    monkeypatch.setattr(module, "Verifier", lambda *_: None)
    monkeypatch.setattr(module, "Timer", lambda _: None)
    return lambda problem, library: GemmBench(NoRuns(library), problem, cache=None)  # type: ignore[arg-type]


def library(version: str = "13.0.0") -> Any:
    return SimpleNamespace(version=version, heuristic=lambda _: FOUND)


Opened = Callable[[Problem, Any], GemmBench]


def test_heuristic_is_listed_as_configurations(bench: Opened) -> None:
    assert bench(PROBLEM, library()).algorithms() == [config_of(*found) for found in FOUND]


@pytest.mark.parametrize("error", [MissingError("no cuBLAS"), RunnerError("status 1")])
def test_missing_library_lists_nothing(bench: Opened, error: Exception) -> None:
    assert bench(PROBLEM, error).algorithms() == []


def test_epilogue_that_it_lacks_lists_nothing(bench: Opened) -> None:
    silu = Problem(5, 7, 3, "bf16", epilogue="silu")
    assert bench(silu, None).algorithms() == []


def test_algorithm_known_to_be_wrong_is_never_run(bench: Opened) -> None:
    long = Problem(64, 64, 11528, "bf16", "nt")
    outcome = bench(long, library("13.1.0")).measure(candidate(long, FOUND[1]), None)
    assert isinstance(outcome, Failure)
    assert (outcome.stage, "6580689" in outcome.reason) == ("verify", True)


def test_algorithm_without_the_library_is_a_failure(bench: Opened) -> None:
    outcome = bench(PROBLEM, MissingError("no cuBLAS")).measure(candidate(PROBLEM, FOUND[0]), None)
    assert outcome == Failure("launch", "no cuBLAS")


def test_gpu_runner_has_a_library() -> None:
    assert issubclass(GpuRunner, WithLibrary)


def test_call_of_a_library_needs_no_compiler() -> None:
    config = config_of(*FOUND[0])
    made = prepare(registry.plan(config, PROBLEM), None, None)  # type: ignore[arg-type]
    assert isinstance(made, Candidate)
    assert (made.programs, made.resources, made.code) == ((), OWN_RESOURCES, "")
    assert (made.plan.launches, made.plan.workspace) == ((), 256)


# Runs, with the fake library on host memory.


@pytest.fixture
def session(_fake_cublaslt: None) -> Any:
    made = object.__new__(BindingsSession)
    made.stream = STREAM
    return made


def best(session: BindingsSession) -> Found:
    assert isinstance(session.cublaslt, CublasLt)
    return session.cublaslt.heuristic(PROBLEM)[0]


def test_session_runs_an_algorithm(session: BindingsSession) -> None:
    operands = operands_of(PROBLEM)
    session.bind(candidate(PROBLEM, best(session)))(operands.values(1.0, 0.0))()
    expected = operands.a.matrix @ operands.b.matrix
    np.testing.assert_allclose(operands.c.matrix, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "said"),
    [({"id": 1}, "AlgoCheck returned"), ({"tile": 1}, "cublasLtMatmul returned")],
)
def test_refusal_is_an_error_of_the_candidate(
    session: BindingsSession, changed: Mapping[str, Any], said: str
) -> None:
    refused = Found(best(session).algorithm._replace(**changed), 0)
    with pytest.raises(CudaError, match=said):
        session.bind(candidate(PROBLEM, refused))(operands_of(PROBLEM).values(1.0, 0.0))()


def test_larger_workspace_than_recorded_is_refused(session: BindingsSession) -> None:
    last = session.cublaslt.heuristic(PROBLEM)[-1]._replace(workspace=0)
    with pytest.raises(CudaError, match="takes 768 bytes of workspace"):
        session.bind(candidate(PROBLEM, last))(operands_of(PROBLEM).values(1.0, 0.0))
