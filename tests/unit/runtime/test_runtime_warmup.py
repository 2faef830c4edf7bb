"""Warm-up of the shapes of a program, on the fake GPU."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from support.runtime_case import SPLIT, Case
from support.waiting import HANG_S

from autotune import gpu, runtime, warmup
from autotune.api import tuning
from autotune.cuda.program import CompileFailure, Program
from autotune.errors import AutotuneError, NotFoundError, ProblemError
from autotune.families.plan import Template
from autotune.problem import Problem
from autotune.runners.objective import HOT
from autotune.runtime.state import Runtime
from autotune.settings import Policy
from autotune.targets.workplace import Workplace
from autotune.tuning.options import Search

SHAPES = Problem(5, 7, 3), Problem(4, 8, 16)


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    case = Case()
    case.cuda.make_context()
    monkeypatch.setattr(runtime.process, "current", lambda: case.matmul)
    monkeypatch.setattr(runtime, "current", lambda: case.matmul)
    return case


def test_first_call_after_warmup_compiles_and_loads_nothing(case: Case) -> None:
    warmup(SHAPES)
    before = len(case.built), len(case.looked_up)
    calls = case.calls(lambda: case.matmul(*case.operands(5, 7, 3)))
    assert (len(case.built), len(case.looked_up)) == before
    assert "cuLibraryLoadData" not in calls


def test_first_cold_call_after_a_cold_warmup_loads_nothing(case: Case) -> None:
    case.config_cold = SPLIT
    assert [answer.config for answer in warmup(SHAPES, policy=Policy(cold=True))] == [SPLIT] * 2
    before = len(case.built), len(case.looked_up)
    case.matmul(*case.operands(5, 7, 3), policy=Policy(cold=True))
    assert (len(case.built), len(case.looked_up)) == before


def test_warmup_returns_the_answer_for_each_shape(case: Case) -> None:
    case.config = SPLIT
    answers = warmup(SHAPES)
    assert [(answer.problem, answer.config) for answer in answers] == [
        (problem, SPLIT) for problem in SHAPES
    ]


@pytest.mark.parametrize("tune", [True, "quick"])
@pytest.mark.parametrize(("cold", "objective"), [(False, "hot"), (True, "cold")])
def test_tuning_warmup_tunes_each_unrecorded_shape_first(
    case: Case, cold: bool, objective: str, tune: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced: list[tuple[Problem, str, bool]] = []

    def search(_: Workplace, problem: Problem, options: Search) -> None:
        assert not case.looked_up  # the race comes before the look-up
        raced.append((problem, options.objective, options.quick))

    recorded = case._find(SHAPES[1], case.runtime.gpu(0).device, HOT)
    case.looked_up.clear()
    monkeypatch.setattr(tuning, "search_at", search)
    monkeypatch.setattr(runtime, "probe", lambda _: case.runtime.gpu(0).device)
    monkeypatch.setattr(gpu, "probe", lambda _: case.runtime.gpu(0).device)
    monkeypatch.setattr(
        "autotune.lookup.lookup.recorded",
        lambda problem, *_: recorded if problem == SHAPES[1] else None,
    )
    warmup([*SHAPES, SHAPES[0]], policy=Policy(tune=tune, cold=cold))
    assert raced == [(SHAPES[0], objective, tune == "quick")]
    assert len(case.built) == 1


def test_tuning_warmup_runs_what_the_race_found(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    warmup(SHAPES[:1])

    def search(*_: object, **__: object) -> None:
        case.config = SPLIT

    monkeypatch.setattr(tuning, "search_at", search)
    monkeypatch.setattr(runtime, "probe", lambda _: case.runtime.gpu(0).device)
    monkeypatch.setattr(gpu, "probe", lambda _: case.runtime.gpu(0).device)
    monkeypatch.setattr("autotune.lookup.lookup.recorded", lambda *_: None)
    (answer,) = warmup(SHAPES[:1], policy=Policy(tune="quick"))
    assert answer.config == SPLIT


@pytest.mark.parametrize("shape", ["5x7x3:nt", (5, 7, 3), [5, 7, 3], Problem(5, 7, 3, layout="nt")])
def test_shapes_are_texts_sizes_or_problems(case: Case, shape: Any) -> None:
    warmup([shape], layout="nt")
    assert case.looked_up == [Problem(5, 7, 3, layout="nt")]


def test_shape_text_overrides_the_keywords(case: Case) -> None:
    warmup(["5x7x3:tn", (5, 7, 3)], layout="nt", epilogue="relu")
    assert [str(problem) for problem in case.looked_up] == [
        "5x7x3:f32:tn:relu",
        "5x7x3:f32:nt:relu",
    ]


@pytest.mark.usefixtures("case")
def test_wrong_number_of_sizes_is_refused() -> None:
    with pytest.raises(ProblemError, match=r"shape \(5, 7\) has 2 sizes; give \(m, n, k\)"):
        warmup([(5, 7)])


def test_shapes_that_share_a_kernel_compile_it_once(case: Case) -> None:
    warmup(SHAPES)
    assert len(case.built) == 1


def test_warmup_compiles_in_parallel(case: Case) -> None:
    together = threading.Barrier(2, timeout=HANG_S)

    def build(template: Template, arch: str) -> Program | CompileFailure:
        together.wait()
        return case._build(template, arch)

    made = Runtime(case.runtime.driver, case._find, case._plan, build)
    case.config = SPLIT  # two kernels
    assert len(made.warm([Problem(4, 8, 16)], 0, 2)) == 1


def test_warmup_uses_the_device_of_the_current_context(case: Case) -> None:
    case.cuda.make_context(1)
    warmup(["5x7x3"])
    a, b, out = (case.array(*shape, ordinal=1) for shape in ((5, 3), (3, 7), (5, 7)))
    case.matmul(a, b, out)
    assert len(case.built) == 1


def test_shape_without_a_kernel_is_refused(case: Case) -> None:
    case.config = None
    with pytest.raises(NotFoundError, match="no kernel can run 5x7x3:f32:nn"):
        warmup(["5x7x3"])


def test_compile_error_is_reported(case: Case) -> None:
    case.reason = "error: too many registers"
    with pytest.raises(AutotuneError, match="does not compile for sm_90: error: too many"):
        warmup(["5x7x3"])


def test_second_warmup_does_nothing(case: Case) -> None:
    warmup(SHAPES)
    before = len(case.plans), len(case.built)
    calls = case.calls(lambda: warmup(SHAPES))
    assert (len(case.plans), len(case.built)) == before
    assert "cuLibraryLoadData" not in calls
