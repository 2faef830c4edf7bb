"""Products without a compiler: programs that came with the package serve single elements."""

from __future__ import annotations

import pytest
from support.runtime_case import Case

from autotune.cuda.program import CompileFailure, Program
from autotune.errors import MissingError
from autotune.families.plan import Alignment, Template
from autotune.problem import Problem
from autotune.runtime.state import Runtime

PROBLEM = Problem(4, 8, 16)
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
