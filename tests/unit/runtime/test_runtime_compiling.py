"""Compiling a kernel while other threads use the runtime."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.runtime_case import Case
from support.waiting import HANG_S, happens

from autotune.cuda.program import CompileFailure, Program
from autotune.errors import AutotuneError
from autotune.families.plan import Alignment, Template
from autotune.problem import Problem
from autotune.runtime.state import Runtime

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
