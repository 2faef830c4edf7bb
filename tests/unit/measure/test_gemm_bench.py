"""The bench of a problem, with fake verification and timing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from support.paths import ROOT

from autotune.cuda import cublaslt
from autotune.errors import AutotuneError, MissingError, RunnerError
from autotune.families.config import Config
from autotune.families.plan import Algorithm, LaunchPlan, LibraryCall, Resources
from autotune.measure import bench as module
from autotune.measure.bench import BASELINE, LEADER, WINNER, BaselineBench, GemmBench
from autotune.measure.measurement import Energy, Failure, Measurement
from autotune.measure.objective import COLD, HOT, Objective
from autotune.measure.operands import row_fault, shifted
from autotune.measure.runner import Candidate, RowReference
from autotune.measure.session import Run
from autotune.measure.timing import HOST_US, LIBRARY_US, Samples, WarmRun
from autotune.measure.verify import KERNEL, THOROUGH, Checks, Passed
from autotune.problem import Problem

PROBLEM = Problem(64, 64, 64)
BASELINE_ERROR = 5.7e-7


class Error(Exception):
    """The error class of the fake PyCUDA."""


class Named:
    """A run with a name, an error and a time."""

    def __init__(self, name: str, error: float = BASELINE_ERROR, time_us: float = 100.0) -> None:
        self.name, self.error, self.time_us = name, error, time_us

    def __call__(self) -> None:
        """Runs in no time."""


class FakeSession:
    """Binds a candidate to the run that its parameters describe."""

    def __init__(self, log: list[str]) -> None:
        self.log = log
        self.full = False
        self.Error, self.MemoryError = Error, MemoryError

    def bind(self, candidate: Candidate) -> Callable[[Any], Run]:
        values = candidate.config.values
        if values["act"] == "refused":
            raise Error("invalid argument")
        run = Named(str(values["act"]), float(values["error"]) * 1e-9)
        return lambda _: run

    def pci_address(self) -> str:
        return "0000:3b:00.0"

    def broken(self) -> bool:
        return False


class FakeOperands:
    def __init__(
        self,
        session: FakeSession,
        problem: Problem,
        leading_dimensions: tuple[int, int, int] | None = None,
        strides: object = None,
    ) -> None:
        assert strides is None
        self.problem, self._log = problem, session.log
        if leading_dimensions:
            if session.full:
                raise RunnerError("no memory")
            session.log.append(f"gaps {leading_dimensions}")

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

    def verify(self, bound: Callable[[Any], Run], checks: Checks = KERNEL) -> Passed | Failure:
        run = bound(None)
        assert isinstance(run, Named)
        how = " thoroughly" if checks is THOROUGH else ""
        self._log.append(f"verify {run.name}{how}")
        if run.name == "wrong" or (how and run.name == "gapless"):
            return Failure("verify", "wrong result")
        self._name = run.name
        return Passed(1e-5, 1e-3, run.error, run.time_us)

    def repeat(self, bound: Callable[[Any], Run], launches: int) -> Failure | None:
        run = bound(None)
        assert isinstance(run, Named)
        self._log.append(f"repeat {run.name} {launches}")
        return Failure("verify", "not always the same") if run.name == "racing" else None

    def recheck(self) -> Failure | None:
        self._log.append("recheck")
        return Failure("verify", "wrong after timing") if self._name == "tired" else None


class FakeTimer:
    def __init__(self, session: FakeSession) -> None:
        self._log = session.log

    def time(self, warm: WarmRun, _: float | None, objective: Objective = HOT) -> Samples:
        assert isinstance(warm.run, Named)
        self.host_us = warm.host_us
        self._log.append(f"time {warm.run.name} {objective}")
        return Samples((warm.run.time_us,))

    def interleave(self, warm_runs: Sequence[WarmRun]) -> list[Samples]:
        self._log.append(f"interleave {len(warm_runs)}")
        return [Samples((warm.first_us,), (2 * warm.first_us,)) for warm in warm_runs]


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, log: list[str]) -> GemmBench:
    monkeypatch.setattr(module, "Operands", FakeOperands)
    monkeypatch.setattr(module, "Verifier", FakeVerifier)
    monkeypatch.setattr(module, "Timer", FakeTimer)
    monkeypatch.setattr(module, "open_counter", lambda _: None)
    monkeypatch.setattr(module, "open_baseline", lambda *_: Named("vendor", time_us=50.0))
    session: Any = FakeSession(log)
    return GemmBench(session, PROBLEM, cache=None)


def candidate(act: str, error: int = 570, workspace: int = 0, counters: int = 0) -> Candidate:
    """A candidate whose relative error is `error` billionths."""
    config = Config.of("fake", {"act": act, "error": error})
    plan = LaunchPlan(config, (), workspace, counters)
    return Candidate(config, plan, (), Resources(32, 32, 0))


def open_further(session: FakeSession, operands: FakeOperands) -> list[tuple[str, Run]]:
    assert (operands.problem, session.log[0]) == (PROBLEM, "reserve 0 0")
    return [("library 1", Named("library 1", time_us=40.0)), ("library 2", Named("wrong"))]


def test_measurement_has_its_relative_error(bench: GemmBench) -> None:
    outcome = bench.measure(candidate("right"), None)
    assert isinstance(outcome, Measurement)
    assert outcome.relative_error == pytest.approx(570e-9)


def test_refused_launch_is_a_failure(bench: GemmBench) -> None:
    outcome = bench.measure(candidate("refused"), None)
    assert outcome == Failure("launch", "invalid argument")


def test_timer_gets_the_objective(bench: GemmBench, log: list[str]) -> None:
    bench.measure(candidate("right"), None, COLD)
    assert log[-2:] == ["time right cold", "recheck"]


def test_wrong_c_after_timing_is_a_failure(bench: GemmBench) -> None:
    assert bench.measure(candidate("tired"), None) == Failure("verify", "wrong after timing")


def test_measure_does_not_check_accuracy(bench: GemmBench) -> None:
    assert isinstance(bench.measure(candidate("coarse", 1200), None), Measurement)


def test_measure_keeps_the_operands(bench: GemmBench, log: list[str]) -> None:
    bench.measure(candidate("right"), None)
    assert "refresh" not in log


def test_rematch_draws_operands_and_reserves_the_largest(bench: GemmBench, log: list[str]) -> None:
    both = [candidate("a", workspace=8, counters=1), candidate("b", workspace=4, counters=9)]
    bench.rematch(both, with_baseline=True)
    assert log[:3] == ["reserve 8 9", "refresh", "verify vendor"]


def test_counters_are_cleared_before_interleaved_timing(bench: GemmBench, log: list[str]) -> None:
    bench.rematch([candidate("a", counters=1), candidate("b", counters=9)], with_baseline=False)
    assert log[-2:] == ["clear counters", "interleave 2"]


def test_leaders_are_launched_many_times(bench: GemmBench, log: list[str]) -> None:
    outcomes, _ = bench.rematch([candidate("right"), candidate("racing")], with_baseline=False)
    assert [type(outcome) for outcome in outcomes] == [Measurement, Failure]
    assert [line for line in log if "repeat" in line] == ["repeat right 50", "repeat racing 50"]


@pytest.mark.parametrize(
    ("limits", "each_us", "launches"),
    [(LEADER, 100.0, 50), (LEADER, 1000.0, 20), (LEADER, 1e5, 4), (WINNER, 1.0, 800)],
)
def test_launches_shrink_with_the_kernels_time(
    limits: tuple[tuple[int, int], float], each_us: float, launches: int
) -> None:
    assert module._launches(*limits, each_us) == launches


def test_winner_is_examined_with_gaps(bench: GemmBench, log: list[str]) -> None:
    assert bench.examine(candidate("right")) is None
    assert log == [
        *("reserve 0 0", "verify right", "repeat right 800"),
        *("gaps (76, 76, 76)", "reserve 0 0", "verify right thoroughly"),
    ]


def test_winner_is_examined_without_gaps_if_memory_is_short(
    bench: GemmBench, log: list[str]
) -> None:
    session: Any = bench._session
    session.full = True
    assert bench.examine(candidate("right")) is None
    assert log[-1] == "verify right thoroughly"


CALL = LibraryCall(PROBLEM, Algorithm(21, 20, 1, 0, 0, 0, 35, 0, 0))


@pytest.mark.parametrize(("library", "host_us"), [(None, HOST_US), (CALL, LIBRARY_US)])
def test_library_may_take_the_host_longer(
    bench: GemmBench, library: LibraryCall | None, host_us: float
) -> None:
    session, one = cast("Any", bench._session), candidate("right")
    session.cublaslt = SimpleNamespace(version="13.8.0")
    session.device = SimpleNamespace(compute_capability=(9, 0))
    bench.measure(replace(one, plan=replace(one.plan, library=library)), None)
    assert cast("Any", bench._timer).host_us == host_us


@pytest.mark.parametrize("refuses", [False, True])
def test_library_that_refuses_gaps_is_examined_without(
    bench: GemmBench, log: list[str], monkeypatch: pytest.MonkeyPatch, refuses: bool
) -> None:
    winner = candidate("right")
    winner = replace(winner, plan=replace(winner.plan, library=CALL))

    def bind(_: object) -> Callable[[Any], Run]:
        def bound(values: Any) -> Run:
            if refuses and values == "gaps":
                raise Error("cublasLtMatmulAlgoCheck returned status 15")
            return Named("right")

        return bound

    session, dense = cast("Any", bench._session), bench._verifier
    session.cublaslt = SimpleNamespace(version="13.8.0")
    session.device = SimpleNamespace(compute_capability=(9, 0))
    monkeypatch.setattr(session, "bind", bind)
    monkeypatch.setattr(FakeOperands, "values", lambda *_: "gaps")
    monkeypatch.setattr(bench.operands, "values", lambda *_: "dense", raising=False)

    def verified(*_: object) -> Passed:
        log.append("dense")
        return Passed(0, 1, 0, 1)

    monkeypatch.setattr(dense, "verify", verified)
    assert bench.examine(winner) is None
    assert log[-1] == ("dense" if refuses else "verify right thoroughly")


@pytest.mark.parametrize("act", ["wrong", "racing", "gapless", "refused"])
def test_bad_winner_is_a_failure(bench: GemmBench, act: str) -> None:
    assert isinstance(bench.examine(candidate(act)), Failure)


def test_rematch_checks_by_the_baselines_current_error(bench: GemmBench) -> None:
    outcomes, baseline = bench.rematch(
        [candidate("right"), candidate("coarse", 1200), candidate("wrong")], with_baseline=True
    )
    stages = [outcome.stage if isinstance(outcome, Failure) else None for outcome in outcomes]
    assert isinstance(baseline, Measurement)
    assert (stages, baseline.time_us) == ([None, "accuracy", "verify"], 50.0)


def test_rematch_without_baseline_has_no_baseline_time(bench: GemmBench) -> None:
    outcomes, baseline = bench.rematch([candidate("coarse", 1200)], with_baseline=False)
    assert ([type(outcome) for outcome in outcomes], baseline) == ([Measurement], None)


def test_comparison_has_an_outcome_for_each_name(bench: GemmBench) -> None:
    ours = [candidate("ours", 1200)]
    outcomes = bench.compare(ours, ["test_gemm_bench:open_further"])
    times = {
        name: outcome.time_us if isinstance(outcome, Measurement) else outcome.stage
        for name, outcome in outcomes.items()
    }
    wanted = {str(ours[0].config): 100.0, BASELINE: 50.0, "library 1": 40.0, "library 2": "verify"}
    assert times == wanted


def test_comparison_times_every_verified_run(bench: GemmBench, log: list[str]) -> None:
    bench.compare([candidate("ours"), candidate("wrong")], ["test_gemm_bench:open_further"])
    assert log[-1] == "interleave 3"


def test_baseline_has_its_relative_error(bench: GemmBench) -> None:
    baseline = bench.baseline()
    assert isinstance(baseline, Measurement)
    assert baseline.relative_error == BASELINE_ERROR


def test_wrong_baseline_is_a_failure(bench: GemmBench) -> None:
    bench._opener = lambda *_: Named("wrong")
    refused = Failure("verify", "wrong result")
    assert bench.baseline() == refused
    outcomes, baseline = bench.rematch([candidate("coarse", 1200)], with_baseline=True)
    assert ([type(outcome) for outcome in outcomes], baseline) == ([Measurement], refused)


@pytest.mark.parametrize(("version", "library"), [("13.1.0", "13.1.0"), ("", "of unknown version")])
def test_verified_baseline_states_the_library(
    bench: GemmBench, monkeypatch: pytest.MonkeyPatch, version: str, library: str
) -> None:
    monkeypatch.setattr(cublaslt, "version", lambda: version)
    ours = candidate("right")
    (outcome,), interleaved = bench.rematch([ours], with_baseline=True)
    compared = bench.compare([ours], ["test_gemm_bench:open_further"])
    timed = bench.baseline(), interleaved, compared[BASELINE]
    assert [getattr(each, "library", "") for each in timed] == [library] * 3
    others = outcome, compared["library 1"]
    assert [getattr(each, "library", "") for each in others] == [None, None]


def test_refused_baseline_states_the_library(
    bench: GemmBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cublaslt, "version", lambda: "13.1.0")
    bench._opener = lambda *_: Named("wrong")
    assert bench.baseline() == Failure("verify", "wrong result (cuBLAS 13.1.0)")


class FakeMeter:
    def __init__(self, session: FakeSession, *_: object) -> None:
        self._log = session.log

    def measure(self, warm_runs: Sequence[WarmRun]) -> list[Energy]:
        names = [warm.run.name for warm in warm_runs if isinstance(warm.run, Named)]
        self._log.append(f"meter {' '.join(names)}")
        return [Energy(warm.first_us, 0.0, 1.0, 1.0) for warm in warm_runs]


def test_energies_are_of_verified_runs_and_the_baseline(
    log: list[str], bench: GemmBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "EnergyMeter", FakeMeter)
    answer = bench.energies([candidate("fast"), candidate("wrong"), candidate("slow")], True)
    assert not isinstance(answer, str)
    energies, baseline = answer
    assert [type(energy) for energy in energies] == [Energy, Failure, Energy]
    assert isinstance(baseline, Energy)
    assert log[-2:] == ["clear counters", "meter fast slow vendor"]


@pytest.mark.parametrize("error", [MissingError("no NVML"), RunnerError("it stands still")])
def test_failing_counter_is_no_failure_of_a_candidate(
    error: AutotuneError, bench: GemmBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: str) -> None:
        raise error

    monkeypatch.setattr(module, "open_counter", failing)
    assert bench.energies([candidate("fast")], False) == str(error)
    if isinstance(error, MissingError):
        assert bench.energy_fault() == "no NVML"


# The command of `CONTRIBUTING.md` that sanitizers run, as far as it goes without a GPU


def test_unknown_family_is_a_usage_error() -> None:
    command = [sys.executable, "tests/gpu/sanitize.py", "mmx"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "unknown: mmx; give some of wgmma, mma, gemv, simt\n"


# The comparison of rows of C, bit for bit, on host memory


ROWS, COLUMNS, LEADING = 64, 24, 32


class HostOperands:
    """A C of 16-bit numbers with gaps, in host memory."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.memory = np.arange(problem.m * LEADING, dtype=np.uint16).reshape(problem.m, LEADING)
        address = int(self.memory.ctypes.data)
        self.c = SimpleNamespace(address=address, leading_dimension=LEADING)
        self.calls: list[str] = []

    def reserve(self, workspace: int, counters: int) -> None:
        self.calls.append(f"reserve {workspace} {counters}")

    def clear_counters(self) -> None:
        self.calls.append("clear")

    def values(self, alpha: float, beta: float) -> Mapping[str, float]:
        steps = {"lda": 512, "ldc": LEADING, "ldr": 2 * LEADING}
        addresses = {"a": 1 << 20, "b": 1 << 21, "c": self.c.address, "residual": 1 << 22}
        return {**addresses, **steps, "scale_a": 1 << 23, "alpha": alpha, "beta": beta}


class HostSession:
    """Runs a candidate by adding its parameter to the element (3, 7) of its rows."""

    def __init__(self, operands: HostOperands) -> None:
        self._operands = operands

    def bind(self, candidate: Candidate) -> Callable[[Mapping[str, float]], Callable[[], None]]:
        def bound(values: Mapping[str, float]) -> Callable[[], None]:
            first = int(values["c"] - self._operands.c.address) // (2 * LEADING)

            def run() -> None:
                self._operands.memory[first + 3, 7] += int(candidate.config.values["wrong"])

            return run

        return bound

    def download(self, array: Any, address: int) -> None:
        start = address - self._operands.c.address
        held = self._operands.memory.reshape(-1).view(np.uint8)
        array[:] = held[start : start + len(array)]


@pytest.mark.parametrize("first", [0, 16, 48])
@pytest.mark.parametrize("wrong", [0, 1])
def test_row_with_other_bits_is_a_failure(first: int, wrong: int) -> None:
    operands: Any = HostOperands(Problem(ROWS, COLUMNS, 512, "bf16", "nt"))
    session: Any = HostSession(operands)
    config = Config.of("fake", {"wrong": wrong})
    reference = Candidate(config, LaunchPlan(config, (), 8, 2), (), Resources(32, 32, 0))
    failure = row_fault(session, operands, RowReference(first, 16, reference))
    assert operands.calls == ["reserve 8 2", "clear"]
    assert (failure is not None) == bool(wrong)
    if failure is not None:
        rows = (
            f"1 of the 16 rows {first} to {first + 15} have other bits than with m=16 by {config}"
        )
        assert failure == Failure("verify", rows)


@pytest.mark.parametrize(
    ("problem", "steps"),
    [
        (Problem(64, 24, 512, "bf16", "nt"), (1024, 64, 128, 0)),
        (Problem(64, 24, 512, "bf16", "tn"), (2, 64, 128, 0)),
        (Problem(64, 24, 512, "f8", "nt", scale="row", output="bf16"), (512, 64, 128, 4)),
    ],
)
def test_rows_start_where_their_operands_do(problem: Problem, steps: tuple[int, ...]) -> None:
    operands: Any = HostOperands(problem)
    before, after = operands.values(1.0, 0.0), shifted(operands, 16)
    names = ("a", "c", "residual", "scale_a")
    assert tuple((after[name] - before[name]) / 16 for name in names) == steps
    assert after["b"] == before["b"]


def test_baseline_bench_opens_operands_for_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Problem] = []

    class Opened:
        def __init__(self, _: object, problem: Problem, **_options: object) -> None:
            opened.append(problem)

        def baseline(self) -> Measurement:
            return Measurement(float(opened[-1].m))

    monkeypatch.setattr(module, "GemmBench", Opened)
    bench = BaselineBench(cast(Any, FakeSession([])), PROBLEM)
    assert not opened
    assert (bench.baseline(), bench.baseline()) == (Measurement(64.0), Measurement(64.0))
    bench.switch_to(Problem(32, 32, 32))
    assert bench.baseline() == Measurement(32.0)
    assert opened == [PROBLEM, PROBLEM, Problem(32, 32, 32)]
