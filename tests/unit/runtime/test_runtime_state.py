"""Kernels loaded beforehand, by several threads, or without a compiler, on the fake GPU."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from support.runtime_case import SPLIT, Case
from support.waiting import HANG_S, happens

from autotune import runtime, warmup
from autotune.api import tuning
from autotune.cuda.program import CompileFailure, Program
from autotune.errors import AutotuneError, MissingError, NotFoundError, ProblemError
from autotune.families.plan import Alignment, Template
from autotune.measure import devices
from autotune.measure.objective import HOT
from autotune.measure.targets import TargetOpener
from autotune.problem import Problem
from autotune.runtime.state import Runtime
from autotune.settings import Policy
from autotune.tuning.options import Search

PROBLEM, OTHER = Problem(4, 8, 16), Problem(5, 9, 17)


DENSE = Alignment.dense(PROBLEM)


class SlowCase(Case):
    """A case whose compiler waits for `go`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.go = threading.Event()
        self.runtime = Runtime(self.runtime.driver, self._find, self._plan, self._slowly)

    def _slowly(self, template: Template, arch: str) -> Program | CompileFailure:
        program = self._build(template, arch)
        assert self.go.wait(HANG_S)
        return program

    def load(self) -> object:
        assert self.config is not None
        return self.runtime.executable(self.config, PROBLEM, 0, DENSE)


def test_others_work_while_a_kernel_compiles() -> None:
    case = SlowCase()
    with ThreadPoolExecutor(2) as pool:
        loading = pool.submit(case.load)
        assert happens(lambda: bool(case.built))
        answer = pool.submit(case.runtime.answer, OTHER, 0)
        try:
            assert answer.result(HANG_S).problem == OTHER
            assert not loading.done()
        finally:
            case.go.set()
        assert loading.result(HANG_S) is case.load()


def test_threads_that_want_one_kernel_compile_it_once() -> None:
    case = SlowCase()
    with ThreadPoolExecutor(4) as pool:
        loading = [pool.submit(case.load) for _ in range(4)]
        assert happens(lambda: bool(case.built))
        case.go.set()
        assert len({id(executable.result(HANG_S)) for executable in loading}) == 1
    assert len(case.built) == 1


def test_failed_kernel_compiles_again_when_asked() -> None:
    case = SlowCase(reason="no")
    case.go.set()
    with pytest.raises(AutotuneError, match="no"):
        case.load()
    case.reason = None
    assert case.load() is case.load()


SINGLE = Alignment(1, 1, 1)


class InstalledCase(Case):
    """A case without a compiler, in which only programs for these alignments came along."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.came: tuple[Alignment, ...] = (SINGLE,)
        self.runtime = Runtime(self.runtime.driver, self._find, self._plan, self._installed)

    def _installed(self, template: Template, arch: str) -> Program | CompileFailure:
        if self.alignments[-1] not in self.came:
            raise MissingError("no CUDA compiler")
        return self._build(template, arch)

    def load(self) -> object:
        assert self.config is not None
        return self.runtime.executable(self.config, PROBLEM, 0, Alignment.dense(PROBLEM))


def test_narrow_program_serves_where_no_wider_one_came() -> None:
    case = InstalledCase()
    assert case.load() is case.load()
    assert case.alignments == [Alignment.dense(PROBLEM), SINGLE]


def test_program_for_the_alignment_comes_first() -> None:
    case = InstalledCase()
    case.came = (Alignment.dense(PROBLEM),)
    case.load()
    assert case.alignments == [Alignment.dense(PROBLEM)]


def test_missing_compiler_is_an_error_where_no_program_came() -> None:
    case = InstalledCase()
    case.came = ()
    with pytest.raises(MissingError, match="no CUDA compiler"):
        case.load()


SHAPES = Problem(5, 7, 3), Problem(4, 8, 16)


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    case = Case()
    case.cuda.make_context()
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

    def search(_: TargetOpener, problem: Problem, options: Search) -> None:
        assert not case.looked_up  # the race comes before the look-up
        raced.append((problem, options.objective, options.quick))

    recorded = case._find(SHAPES[1], case.runtime.gpu(0).device, HOT)
    case.looked_up.clear()
    monkeypatch.setattr(tuning, "search_at", search)
    monkeypatch.setattr(runtime, "probe", lambda _: case.runtime.gpu(0).device)
    monkeypatch.setattr(devices, "probe", lambda _: case.runtime.gpu(0).device)
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
    monkeypatch.setattr(devices, "probe", lambda _: case.runtime.gpu(0).device)
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
