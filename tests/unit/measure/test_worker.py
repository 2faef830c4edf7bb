"""Candidates that take the worker down; the runner and the next candidate are unaffected."""

from __future__ import annotations

import io
import math
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from support.waiting import happens

from autotune.errors import AutotuneError, MissingError, RunnerError
from autotune.families.config import Config
from autotune.families.plan import LaunchPlan, Resources
from autotune.measure.gpu_runner import GpuRunner
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import COLD
from autotune.measure.runner import Candidate
from autotune.measure.worker import Worker
from autotune.problem import Problem

PROBLEM = Problem(64, 64, 64)


def candidate(act: str, workspace: int = 0) -> Candidate:
    config = Config.of("fake", {"act": act})
    plan = LaunchPlan(config, (), workspace)
    return Candidate(config, plan, (), Resources(32, 32, 0))


def runner(
    bench: str = "fake", time_limit: float = 30.0, baseline_bench: str | None = "fake"
) -> GpuRunner:
    benches = "support.worker_benches"
    return GpuRunner(
        PROBLEM,
        bench=f"{benches}:{bench}",
        baseline_bench=baseline_bench and f"{benches}:{baseline_bench}",
        time_limit=time_limit,
    )


def interleaved(runner: GpuRunner, *candidates: Candidate) -> list[int]:
    """IDs of the processes that timed the candidates interleaved."""
    outcomes = runner.rematch(candidates or [candidate("count")])
    return [outcome.samples for outcome in outcomes if isinstance(outcome, Measurement)]


@pytest.fixture
def marker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file through which benches tell of themselves; a candidate that hangs creates it."""
    path = tmp_path / "marker"
    monkeypatch.setenv("AUTOTUNE_TEST_MARKER", str(path))
    return path


@pytest.fixture
def fake() -> Iterator[GpuRunner]:
    """A runner with a worker that measures and one with the vendor library."""
    fake = runner()
    yield fake
    fake.close()


@pytest.fixture
def lone() -> Iterator[GpuRunner]:
    """A runner with the measuring worker alone."""
    lone = runner(baseline_bench=None)
    yield lone
    lone.close()


def count(runner: GpuRunner) -> Measurement:
    measurement = runner.measure(candidate("count"), None)
    assert isinstance(measurement, Measurement)
    return measurement


def ended(pid: int) -> bool:
    def over() -> bool:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        return state == "Z"

    return happens(over)


def test_one_worker_serves_all_requests(lone: GpuRunner) -> None:
    assert [count(lone).time_us for _ in range(3)] == [1.0, 2.0, 3.0]


def served(runner: GpuRunner) -> tuple[float, int]:
    """M of the worker's problem, and the process ID of the worker."""
    measurement = runner.measure(candidate("problem"), None)
    assert isinstance(measurement, Measurement)
    return measurement.time_us, measurement.samples


def test_worker_switches_to_another_problem(lone: GpuRunner) -> None:
    (_, before) = served(lone)
    lone.switch_to(Problem(32, 64, 64))
    assert served(lone) == (32.0, before)


def test_restarted_worker_serves_the_latest_problem(lone: GpuRunner) -> None:
    lone.switch_to(Problem(32, 64, 64))
    lone.measure(candidate("kill"), None)
    assert served(lone)[0] == 32.0


def test_switching_problems_forgets_the_baseline(fake: GpuRunner) -> None:
    fake.baseline()
    interleaved(fake)  # sets the baseline to 20 us
    fake.switch_to(Problem(32, 64, 64))
    assert fake.baseline() == Measurement(10.0, relative_error=1e-6)


def test_worker_reports_its_device(lone: GpuRunner) -> None:
    assert (lone.device.arch, lone.driver) == ("sm_90", "13.0")


@pytest.mark.parametrize(
    ("act", "reason", "renewed"),
    [
        ("raise", "RuntimeError: an illegal memory access was encountered", True),
        ("exit", "the worker exited with status 7: the last words", True),
        ("kill", "the worker was killed by SIGKILL", True),
        ("unpicklable", "pickle", True),
        ("unreadable", "the worker's answer cannot be read", True),
        ("garbage", "the worker answered 'garbage'", False),
    ],
)
def test_crash_is_a_failure_and_renews_a_lost_worker(
    lone: GpuRunner, act: str, reason: str, renewed: bool
) -> None:
    before = count(lone)
    failure = lone.measure(candidate(act), None)
    assert isinstance(failure, Failure)
    assert failure.stage == "crash"
    assert reason in failure.reason
    assert (count(lone).samples != before.samples) == renewed


def test_hang_is_a_timeout() -> None:
    hasty = runner(time_limit=0.2)
    assert hasty.measure(candidate("hang"), None) == Failure("timeout", "no answer within 0.2 s")
    hasty.close()


def test_hang_ends_at_the_deadline(lone: GpuRunner) -> None:
    count(lone)
    began = time.monotonic()
    lone.until(began + 0.3)
    outcome = lone.measure(candidate("hang"), None)
    assert isinstance(outcome, Failure)
    assert (outcome.stage, time.monotonic() - began < 5) == ("timeout", True)
    lone.until(math.inf)
    count(lone)


def test_worker_of_a_hung_candidate_is_killed() -> None:
    hasty = runner(time_limit=0.2, baseline_bench=None)
    (counted,) = hasty.compare([candidate("count")]).values()  # has 120 s more than a measurement
    assert isinstance(counted, Measurement)
    pid = counted.samples
    hasty.measure(candidate("hang"), None)
    assert ended(pid)
    hasty.close()


def test_output_of_a_candidate_is_discarded(
    lone: GpuRunner, capfd: pytest.CaptureFixture[str]
) -> None:
    assert lone.measure(candidate("print"), None) == Measurement(1.0)
    assert capfd.readouterr().out == ""


def test_worker_killed_while_idle_costs_no_candidate(lone: GpuRunner) -> None:
    for _ in range(4):
        os.kill(count(lone).samples, signal.SIGKILL)
        time.sleep(random.choice([0.0, 0.001, 0.05]))
        count(lone)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_to_all_leaves_the_worker_running(lone: GpuRunner, number: int) -> None:
    os.kill(count(lone).samples, number)
    assert count(lone).time_us == 2.0


def test_closing_during_a_request_is_no_crash(marker: Path, lone: GpuRunner) -> None:
    def close() -> None:
        if happens(marker.exists):
            lone.close()

    count(lone)
    closing = threading.Thread(target=close)
    closing.start()
    with pytest.raises(AutotuneError, match="the worker was stopped before it answered"):
        lone.measure(candidate("hang"), None)
    closing.join()


def test_two_threads_stop_a_worker_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delays = iter((0.1, 0.4))  # the second thread is still in `close` when the first has closed

    class SlowLog(io.BufferedRandom):
        def flush(self) -> None:
            time.sleep(next(delays, 0.0))
            super().flush()

    log = SlowLog(io.FileIO(tmp_path / "log", "w+"))
    with monkeypatch.context() as patch:
        patch.setattr(tempfile, "TemporaryFile", lambda **_: log)
        worker = Worker("support.worker_benches:fake", (PROBLEM,))
    with ThreadPoolExecutor(2) as threads:
        for stopped in [threads.submit(worker.stop) for _ in range(2)]:
            stopped.result()
    assert worker.ended


def test_interrupted_request_is_not_answered_later(marker: Path, lone: GpuRunner) -> None:
    def interrupt() -> None:
        if happens(marker.exists):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGALRM)

    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        lone.measure(candidate("hang"), None)
    signal.signal(signal.SIGALRM, previous)
    assert count(lone).time_us == 1.0


def test_rematch_answers_in_order(fake: GpuRunner) -> None:
    outcomes = fake.rematch([candidate("count"), candidate("count")])
    assert [outcome.time_us for outcome in outcomes if isinstance(outcome, Measurement)] == [
        1.0,
        2.0,
    ]


def test_rematch_with_a_crash_measures_each_separately(fake: GpuRunner) -> None:
    outcomes = fake.rematch([candidate("count"), candidate("kill"), candidate("count")])
    assert [type(outcome) for outcome in outcomes] == [Measurement, Failure, Measurement]


def test_latest_rematch_sets_the_baseline(fake: GpuRunner) -> None:
    before = fake.baseline()
    fake.rematch([candidate("count")])
    assert (before and before.time_us, fake.baseline()) == (10.0, Measurement(20.0, samples=25))


@pytest.mark.parametrize("bench", ["wrong_library", "late_wrong_library"])
def test_wrong_library_is_no_baseline(bench: str) -> None:
    refusing = runner(baseline_bench=bench)
    refusing.baseline()
    refusing.rematch([candidate("count")])
    assert (refusing.baseline(), refusing.baseline_ready) == (None, True)
    assert refusing.baseline_fault == "wrong result for small integers: largest error 1"
    refusing.close()


def test_missing_baseline_is_ready_and_none() -> None:
    lone = runner(baseline_bench=None)
    assert (lone.baseline_ready, lone.baseline()) == (True, None)
    lone.close()


def test_measure_does_not_check_accuracy(fake: GpuRunner) -> None:
    fake.baseline()
    assert isinstance(fake.measure(candidate("coarse"), None), Measurement)


def test_separate_rematch_checks_accuracy_by_the_baseline(fake: GpuRunner) -> None:
    fake.baseline()
    outcomes = fake.rematch([candidate("coarse"), candidate("kill")])
    stages = [outcome.stage for outcome in outcomes if isinstance(outcome, Failure)]
    assert stages == ["accuracy", "crash"]


def test_objective_reaches_the_bench(lone: GpuRunner) -> None:
    outcome = lone.measure(candidate("objective"), None, COLD)
    assert outcome == Measurement(1.0, cold_us=2.0)


def test_measure_and_rematch_use_separate_processes(fake: GpuRunner) -> None:
    measuring, (timing,) = count(fake).samples, interleaved(fake)
    assert timing != measuring
    assert (interleaved(fake), count(fake).samples) == ([timing], measuring)


def test_single_process_suffices_without_a_baseline() -> None:
    lone = runner(baseline_bench=None)
    assert interleaved(lone) == [count(lone).samples]
    lone.close()


def test_slow_library_import_delays_no_measurement(marker: Path) -> None:
    patient = runner(baseline_bench="slow")
    assert (count(patient).time_us, patient.baseline_ready) == (1.0, False)
    marker.touch()
    assert happens(lambda: patient.baseline_ready)
    assert patient.baseline() == Measurement(10.0, relative_error=1e-6)
    patient.close()


def test_library_worker_that_died_is_restarted(fake: GpuRunner) -> None:
    (first,) = interleaved(fake)
    os.kill(first, signal.SIGKILL)
    (second,) = interleaved(fake)
    assert first != second


def test_library_worker_that_cannot_start_is_reported() -> None:
    half = runner(baseline_bench="missing")
    assert (count(half).time_us, half.baseline_ready) == (1.0, True)
    with pytest.raises(MissingError, match="no PyCUDA"):
        half.baseline()
    assert count(half).time_us == 2.0
    half.close()


def test_measuring_worker_ends_if_memory_is_short(fake: GpuRunner) -> None:
    before = count(fake).samples
    interleaved(fake, candidate("count", workspace=2**41))
    assert ended(before)
    assert count(fake).time_us == 1.0


def test_measuring_worker_stays_if_memory_suffices(fake: GpuRunner) -> None:
    before = count(fake).samples
    interleaved(fake, candidate("count", workspace=2**30))
    assert count(fake).samples == before


@pytest.mark.usefixtures("marker")
def test_exclusive_gpu_serves_both_workers_in_turn() -> None:
    shy = runner("lonely", baseline_bench="lonely")
    assert [count(shy).time_us, len(interleaved(shy)), count(shy).time_us] == [1.0, 1, 1.0]
    shy.close()


def test_compare_answers_by_name(fake: GpuRunner) -> None:
    outcomes = fake.compare([candidate("count")], ["module:factory"])
    times = {
        name: outcome.time_us
        for name, outcome in outcomes.items()
        if isinstance(outcome, Measurement)
    }
    assert times == {"fake:act=count": 1.0, "module:factory": 30.0}


def test_crash_in_a_comparison_is_an_error(fake: GpuRunner) -> None:
    with pytest.raises(RunnerError, match=r"comparing on 64x64x64:f32:nn failed: .*SIGKILL"):
        fake.compare([candidate("count"), candidate("kill")])


def test_close_ends_the_worker_and_may_be_called_twice(lone: GpuRunner) -> None:
    pid = count(lone).samples
    lone.close()
    lone.close()
    assert ended(pid)


def test_close_after_a_failure(lone: GpuRunner) -> None:
    lone.measure(candidate("kill"), None)
    lone.close()


def test_killed_parent_leaves_no_worker_behind() -> None:
    program = (
        "import os, signal; from test_worker import count, runner\n"
        "print(count(runner()).samples, flush=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = os.pathsep.join(filter(None, sys.path))
    parent = subprocess.run(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
        check=False,
    )
    assert ended(int(parent.stdout))


def test_starting_a_runner_waits_for_nothing() -> None:
    runner("missing").close()


def test_missing_requirement_is_raised_unchanged() -> None:
    poor = runner("missing")
    for _ in range(2):
        with pytest.raises(MissingError, match="no PyCUDA; install it"):
            _ = poor.device
    poor.close()


def test_missing_requirement_is_raised_by_a_request() -> None:
    poor = runner("missing")
    with pytest.raises(MissingError, match="no PyCUDA; install it"):
        poor.measure(candidate("count"), None)
    poor.close()


def test_device_is_reported_though_memory_is_short() -> None:
    small = runner("large")
    assert small.device.arch == "sm_90"
    with pytest.raises(RunnerError, match="needs 90 GiB"):
        small.measure(candidate("count"), None)
    small.close()


@pytest.mark.parametrize(
    ("bench", "reason"),
    [
        ("broken", "ZeroDivisionError: in the factory"),
        ("stillborn", "exited with status 3"),
        ("absent", "AttributeError"),
    ],
)
def test_worker_that_cannot_start_is_an_error(bench: str, reason: str) -> None:
    failing = runner(bench)
    with pytest.raises(RunnerError, match=reason):
        _ = failing.device
    failing.close()


@pytest.mark.usefixtures("marker")
def test_worker_that_cannot_restart_is_an_error() -> None:
    frail = runner("once")
    frail.measure(candidate("kill"), None)
    with pytest.raises(MissingError, match="fell off the bus"):
        frail.measure(candidate("count"), None)
    frail.close()


def test_log_is_in_the_cache_without_a_temporary_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none() -> str:
        raise FileNotFoundError

    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "gettempdir", none)
    failing = runner("broken")
    with pytest.raises(RunnerError, match="ZeroDivisionError: in the factory"):
        _ = failing.device
    failing.close()
    assert [path.name for path in tmp_path.iterdir()] == ["temporary"]
