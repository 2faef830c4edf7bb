"""What the bench makes of verdicts and times; verification and timing are fakes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.families.config import Config
from autotune.families.plan import LaunchPlan, Resources
from autotune.gpu.benches import base
from autotune.gpu.benches import gemm as module
from autotune.gpu.benches.gemm import VENDOR, GemmBench
from autotune.gpu.session import Run
from autotune.gpu.timing import Contestant, Samples
from autotune.gpu.verify import Verdict
from autotune.problem import Problem
from autotune.runners.base import Candidate, Failure, Measurement, Objective

PROBLEM = Problem(64, 64, 64)
VENDOR_ERROR = 5.7e-7


class Error(Exception):
    """PyCUDA's."""


class Named:
    """A run with a name; its error and time are in it."""

    def __init__(self, name: str, error: float = VENDOR_ERROR, time_us: float = 100.0) -> None:
        self.name, self.error, self.time_us = name, error, time_us

    def __call__(self) -> None:
        """Runs in no time."""


class FakeSession:
    """Binds a candidate to what its parameters say."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.cuda = SimpleNamespace(Error=Error)

    def bind(self, candidate: Candidate) -> Callable[[Any], Run]:
        values = candidate.config.values
        if values["act"] == "refused":
            raise Error("invalid argument")
        run = Named(str(values["act"]), float(values["error"]) * 1e-9)
        return lambda _: run

    def broken(self) -> bool:
        return False


class FakeOperands:
    def __init__(self, session: FakeSession, problem: Problem, *_: object) -> None:
        self.problem, self._log = problem, session.log

    def reserve(self, workspace: int, counters: int) -> None:
        self._log.append(f"reserve {workspace} {counters}")

    def clear_counters(self) -> None:
        self._log.append("clear counters")

    def values(self, alpha: float, beta: float) -> tuple[float, float]:
        return alpha, beta


class FakeVerifier:
    def __init__(self, session: FakeSession, *_: object) -> None:
        self._log = session.log

    def refresh(self) -> None:
        self._log.append("refresh")

    def verify(self, bound: Callable[[Any], Run], *_: object) -> Verdict | Failure:
        run = bound(None)
        assert isinstance(run, Named)
        self._log.append(f"verify {run.name}")
        if run.name == "wrong":
            return Failure("verify", "wrong result")
        return Verdict(1e-5, 1e-3, run.error, run.time_us)


class FakeTimer:
    def __init__(self, session: FakeSession) -> None:
        self._log = session.log

    def time(
        self, contestant: Contestant, _: float | None, objective: Objective = "hot"
    ) -> Samples:
        assert isinstance(contestant.run, Named)
        self._log.append(f"time {contestant.run.name} {objective}")
        return Samples((contestant.run.time_us,))

    def interleave(self, contestants: Sequence[Contestant]) -> list[Samples]:
        self._log.append(f"race {len(contestants)}")
        return [Samples((one.first_us,), (2 * one.first_us,)) for one in contestants]


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, log: list[str]) -> GemmBench:
    monkeypatch.setattr(module, "Operands", FakeOperands)
    monkeypatch.setattr(module, "Verifier", FakeVerifier)
    monkeypatch.setattr(base, "Timer", FakeTimer)
    monkeypatch.setattr(module, "baseline", lambda *_: Named("vendor", time_us=50.0))
    session: Any = FakeSession(log)
    return GemmBench(session, PROBLEM, cache=None)


def candidate(act: str, error: int = 570, workspace: int = 0, counters: int = 0) -> Candidate:
    """The error is in billionths."""
    config = Config.of("fake", {"act": act, "error": error})
    plan = LaunchPlan(config, (), workspace, counters)
    return Candidate(config, plan, (), Resources(32, 32, 0))


def open_rivals(session: FakeSession, operands: FakeOperands) -> list[tuple[str, Run]]:
    assert (operands.problem, session.log[0]) == (PROBLEM, "reserve 0 0")
    return [("rival 1", Named("rival 1", time_us=40.0)), ("rival 2", Named("wrong"))]


def test_a_measurement_tells_its_relative_error(bench: GemmBench) -> None:
    outcome = bench.measure(candidate("right"), None)
    assert isinstance(outcome, Measurement)
    assert outcome.relative_error == pytest.approx(570e-9)


def test_a_refused_launch_is_a_failure(bench: GemmBench) -> None:
    outcome = bench.measure(candidate("refused"), None)
    assert outcome == Failure("launch", "invalid argument")


def test_the_objective_says_what_is_timed(bench: GemmBench, log: list[str]) -> None:
    bench.measure(candidate("right"), None, "cold")
    assert log[-1] == "time right cold"


def test_measuring_does_not_judge_accuracies(bench: GemmBench) -> None:
    assert isinstance(bench.measure(candidate("coarse", 1200), None), Measurement)


def test_measuring_keeps_the_operands(bench: GemmBench, log: list[str]) -> None:
    bench.measure(candidate("right"), None)
    assert "refresh" not in log


def test_a_rematch_begins_with_new_operands_and_room_for_all(
    bench: GemmBench, log: list[str]
) -> None:
    both = [candidate("a", workspace=8, counters=1), candidate("b", workspace=4, counters=9)]
    bench.rematch(both, against_vendor=True)
    assert log[:3] == ["reserve 8 9", "refresh", "verify vendor"]


def test_counters_are_cleared_between_verification_and_the_race(
    bench: GemmBench, log: list[str]
) -> None:
    bench.rematch([candidate("a", counters=1), candidate("b", counters=9)], against_vendor=False)
    assert log[-2:] == ["clear counters", "race 2"]


def test_a_rematch_judges_by_the_vendors_error_of_the_moment(bench: GemmBench) -> None:
    outcomes, vendor = bench.rematch(
        [candidate("right"), candidate("coarse", 1200), candidate("wrong")], against_vendor=True
    )
    stages = [one.stage if isinstance(one, Failure) else None for one in outcomes]
    assert (stages, vendor and vendor.time_us) == ([None, "accuracy", "verify"], 50.0)


def test_a_rematch_without_the_vendor_has_no_time_of_it(bench: GemmBench) -> None:
    outcomes, vendor = bench.rematch([candidate("coarse", 1200)], against_vendor=False)
    assert ([type(one) for one in outcomes], vendor) == ([Measurement], None)


def test_a_comparison_has_everyone_by_name(bench: GemmBench) -> None:
    ours = [candidate("ours", 1200)]
    outcomes = bench.compare(ours, ["test_gemm_bench:open_rivals"])
    times = {
        name: one.time_us if isinstance(one, Measurement) else one.stage
        for name, one in outcomes.items()
    }
    wanted = {str(ours[0].config): 100.0, VENDOR: 50.0, "rival 1": 40.0, "rival 2": "verify"}
    assert times == wanted


def test_a_comparison_races_all_that_is_right(bench: GemmBench, log: list[str]) -> None:
    bench.compare([candidate("ours"), candidate("wrong")], ["test_gemm_bench:open_rivals"])
    assert log[-1] == "race 3"


def test_the_baseline_tells_its_relative_error(bench: GemmBench) -> None:
    baseline = bench.baseline()
    assert baseline is not None
    assert baseline.relative_error == VENDOR_ERROR
