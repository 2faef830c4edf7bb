"""Runners that stay open from one problem to the next."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.fake_runner import ORIGIN, FakeRunner

from autotune.errors import AutotuneError, ProblemError, RunnerError
from autotune.measure.targets import Target, TargetOpener
from autotune.problem import Problem

SMALL, LARGE = Problem(8, 8, 8), Problem(8, 8, 16)


class SwitchingRunner(FakeRunner):
    """Switches problems and lists them."""

    def __init__(self) -> None:
        super().__init__()
        self.switched: list[Problem] = []

    def switch_to(self, problem: Problem) -> None:
        self.switched.append(problem)


class Machine:
    """Opens targets, and counts those that are open.

    Attributes:
        runner: makes a runner.
        opened: the targets, in order.
        closed: how many of them are closed again.
    """

    def __init__(self) -> None:
        self.runner: Callable[[], FakeRunner] = SwitchingRunner
        self.opened: list[Target] = []
        self.closed = 0

    def started(self, opener: TargetOpener, _: Problem) -> Callable[[], Target]:
        def close() -> None:
            self.closed += 1

        self.opened.append(Target(self.runner(), ORIGIN))
        opener._stack.callback(close)
        return lambda: self.opened[-1]


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(TargetOpener, "_started", lambda *arguments: machine.started(*arguments))
    return machine


def test_next_problem_reuses_the_processes(machine: Machine) -> None:
    with TargetOpener() as opener:
        first, second = (opener.target(problem) for problem in (SMALL, LARGE))
        assert first is second is opener.current
        assert isinstance(first.runner, SwitchingRunner)
        assert first.runner.switched == [LARGE]
        assert machine.closed == 0
    assert (len(machine.opened), machine.closed) == (1, 1)


def test_runner_that_cannot_switch_is_closed(machine: Machine) -> None:
    machine.runner = FakeRunner
    with TargetOpener() as opener:
        first, second = (opener.target(problem) for problem in (SMALL, LARGE))
        assert first is not second
        assert machine.closed == 1
    assert machine.closed == 2


def test_all_gpus_switch_or_none(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    pair = SwitchingRunner(), FakeRunner()
    with TargetOpener() as opener:
        opener.target(SMALL)
        monkeypatch.setattr(opener, "_target", Target(pair[0], ORIGIN, pair[1:]))
        opener.target(LARGE)
    assert pair[0].switched == []
    assert len(machine.opened) == 2


def test_error_closes_the_runners(machine: Machine) -> None:
    with TargetOpener() as opener:
        with pytest.raises(AutotuneError, match="no kernel"), opener.opening(SMALL):
            raise AutotuneError("no kernel works")
        assert machine.closed == 1
        opener.target(SMALL)
        assert len(machine.opened) == 2


def test_problem_that_does_not_fit_is_refused(machine: Machine) -> None:
    with TargetOpener() as opener:
        opener.target(SMALL)
        with pytest.raises(ProblemError, match="GiB"):
            opener.target(Problem(10**6, 10**6, 10**6))
    assert len(machine.opened) == 1


@pytest.mark.usefixtures("machine")
def test_no_target_is_current_at_first() -> None:
    with pytest.raises(RunnerError, match="nothing is open"):
        _ = TargetOpener().current
