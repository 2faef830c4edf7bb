"""The package of the contracts: what it imports, and that its tests catch violations."""

from __future__ import annotations

import subprocess
import sys

import pytest
from support.fake_runner import FakeRunner, by_width, compiled, crash, tiled
from support.paths import import_path

from autotune.measure.measurement import Failure, Measurement
from autotune.testing import RunnerContract


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": import_path()},
        capture_output=True,
        text=True,
        check=False,
    )


def test_importing_autotune_imports_no_pytest() -> None:
    ended = run("import sys, autotune, autotune.cli; sys.exit('pytest' in sys.modules)")
    assert ended.returncode == 0, ended.stderr


def test_missing_pytest_is_named() -> None:
    ended = run("import sys; sys.modules['pytest'] = None; import autotune.testing")
    assert "autotune.testing needs pytest; run `pip install pytest`" in ended.stderr


class Contract(RunnerContract):
    """The contract, whose tests are called here rather than collected."""


def test_runner_that_raises_for_a_candidate_breaks_the_contract() -> None:
    def illegal_access(_: object) -> Failure:
        raise RuntimeError("an illegal memory access was encountered")

    runner = FakeRunner(illegal_access)
    failing = Contract().prepared(tiled(16), runner, compiled)
    with pytest.raises(RuntimeError):
        Contract().test_failing_candidate_is_a_failure(runner, failing)


def test_accepting_a_wrong_candidate_breaks_the_contract() -> None:
    runner = FakeRunner(by_width)
    failing = Contract().prepared(tiled(16), runner, compiled)
    with pytest.raises(AssertionError):
        Contract().test_failing_candidate_is_a_failure(runner, failing)


def test_runner_without_cold_times_breaks_the_contract() -> None:
    runner = FakeRunner(by_width)
    candidates = [Contract().prepared(tiled(16), runner, compiled)]
    with pytest.raises(AssertionError):
        Contract().test_objective_cold_has_a_cold_time_if_measured(runner, candidates)
    with pytest.raises(AssertionError):
        Contract().test_first_measurement_has_a_cold_time_if_measured(runner, candidates)


def test_runner_that_exchanges_rematch_times_breaks_the_contract() -> None:
    runner = FakeRunner(by_width, again=lambda config: Measurement(1000.0 / len(str(config))))
    candidates = [Contract().prepared(tiled(width), runner, compiled) for width in (16, 32)]
    with pytest.raises(AssertionError):
        Contract().test_rematch_answers_in_the_order_of_its_candidates(runner, candidates)


def test_runner_that_only_fails_breaks_the_contract() -> None:
    runner = FakeRunner(crash)
    candidates = [Contract().prepared(tiled(16), runner, compiled)]
    with pytest.raises(AssertionError, match="illegal access"):
        Contract().test_measurement_has_a_positive_time(runner, candidates)
