"""The contract of tuning sessions on a GPU, and the same times through both libraries."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

import pytest
from attempts import repeated
from support.session_contract import PUT, SessionContract

from autotune.cuda import compiler
from autotune.cuda.program import Program
from autotune.errors import MissingError
from autotune.families.plan import Template
from autotune.measure.devices import probe
from autotune.measure.session import BindingsSession, PyCudaSession, Session
from autotune.measure.timing import Timer, WarmRun

pytestmark = pytest.mark.timing

SAME = 0.05
"""Share by which times of a kernel may differ from process to process and from run to run."""


class OnGpu(SessionContract):
    @pytest.fixture
    def program(self, tmp_path: Path) -> Program:
        return compiled(tmp_path)


def compiled(folder: Path) -> Program:
    """The kernel of the suite for this GPU."""
    try:
        arch = probe().arch
    except MissingError as error:
        pytest.skip(str(error))
    (folder / "put.cu").write_text(PUT)
    program = compiler.compile(
        Template("put.cu", "put", (("N", 1),)), arch, cache=None, sources=folder
    )
    assert isinstance(program, Program)
    return program


class TestPyCudaSession(OnGpu):
    @pytest.fixture
    def opened(self) -> Callable[[int], Session]:
        return opener(PyCudaSession)


class TestBindingsSession(OnGpu):
    @pytest.fixture
    def opened(self) -> Callable[[int], Session]:
        return opener(BindingsSession)


def opener(kind: Callable[[int], Session]) -> Callable[[int], Session]:
    """Opens sessions of a kind; skips the test where the machine has none."""

    def opened(index: int) -> Session:
        try:
            return kind(index)
        except MissingError as error:
            pytest.skip(str(error))

    return opened


def test_both_libraries_measure_the_same_times() -> None:
    def times(kind: Callable[[int], Session]) -> tuple[float, float]:
        """Hot and cold microseconds of a memset."""
        with opener(kind)(0) as session:
            memory = session.allocate(2**26)
            run = partial(session.fill, int(memory), 1, 2**24)
            run()
            samples = Timer(session).time(WarmRun(run, 60.0), None)
            return median(samples.hot), median(samples.cold)

    def attempt() -> None:
        ours, theirs = times(BindingsSession), times(PyCudaSession)
        assert ours == pytest.approx(theirs, rel=SAME)

    repeated(attempt)
