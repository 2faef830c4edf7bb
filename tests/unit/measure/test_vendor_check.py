"""The verification of the vendor's library on shapes, in a worker with a fake library."""

from __future__ import annotations

import json
from typing import Any

import pytest
from support.command_line import answer, run

from autotune.measure import baseline, vendor_check
from autotune.measure.vendor_check import ODD, SUITE, check_vendor, default_problems
from autotune.problem import PRECISIONS, Problem


@pytest.fixture(autouse=True)
def _short_of_k(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = "support.worker_benches:short_of_k"
    monkeypatch.setattr(vendor_check, "BASELINE_BENCH", bench)


EVEN, ODD_K, UNSERVED, CRASHING = (
    Problem(*shape, "bf16") for shape in ((64, 64, 11528), (64, 64, 1027), (7, 64, 64), (64, 7, 64))
)


def test_each_problem_has_its_result() -> None:
    checks = check_vendor([EVEN, ODD_K, UNSERVED, CRASHING, EVEN])
    assert [result.outcome for result in checks.results] == [
        *("verified", "wrong", "not verifiable", "wrong", "verified")
    ]
    assert checks.wrong == (checks.results[1], checks.results[3])
    assert checks.wrong[0].why == "wrong result for small integers: largest error 1"
    assert "illegal memory access" in checks.wrong[1].why
    assert (checks.library, checks.device.compute_capability) == ("13.1.0", (9, 0))


def test_known_fault_is_stated_beside_the_result() -> None:
    deep, flat = check_vendor([EVEN, UNSERVED]).results
    assert "cuBLAS 13.1.0 may leave out the end of K = 11528" in str(deep.fault)
    assert flat.fault is None


def test_further_runs_are_verified_too() -> None:
    results = check_vendor([ODD_K], further=["library:first"]).results
    assert [(result.runs, result.outcome) for result in results] == [
        *(("cuBLAS", "wrong"), ("library:first", "verified"))
    ]


def test_default_suite_has_odd_k_in_every_precision() -> None:
    problems = default_problems()
    assert len(problems) == len(set(problems))
    served = {name for name, row in PRECISIONS.items() if row.vendor == name}
    for compute in served:
        shapes = {problem.shape for problem in problems if problem.compute == compute}
        assert shapes == {*SUITE, *ODD}
    assert {problem.compute for problem in problems} == served
    assert any(problem.k % 2 for problem in problems if problem.compute == "i8")


def test_command_prints_what_is_wrong(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "--vendor", str(EVEN), str(ODD_K)) == 1
    title, _, row = capsys.readouterr().out.splitlines()
    assert title.startswith("cuBLAS 13.1.0 on NVIDIA H100")
    assert title.endswith("3 verified, 1 wrong, 0 not verifiable")
    words = f"{ODD_K} cuBLAS wrong result for small integers: largest error 1"
    assert row.split() == words.split()
    assert run("check", "--vendor", str(EVEN)) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_command_takes_the_suite_by_default(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vendor_check, "default_problems", lambda: [EVEN, UNSERVED])
    data: Any = answer(capsys, "check", "--vendor")
    assert (data["cublas"], data["passed"]) == ("13.1.0", True)
    right, algorithm, unserved = data["checks"]
    assert (right["shape"], right["result"], right["error"]) == (str(EVEN), "verified", 0.5)
    assert (algorithm["runs"], algorithm["result"]) == (baseline.ALGORITHMS, "verified")
    assert unserved["why"] == "neither PyTorch nor cuBLAS computes it"


def test_json_of_a_wrong_library_is_status_1(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", "--vendor", str(ODD_K), "--json") == 1
    data: Any = json.loads(capsys.readouterr().out)
    assert (data["passed"], data["checks"][0]["result"]) == (False, "wrong")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--against", "b.xz"), "--vendor takes no --against"),
        (("--min", "0.9"), "--vendor takes no --min"),
        (("--objective", "cold"), "--vendor takes no --objective"),
        (("--device", "h100"), "h100: cuBLAS is verified on a GPU of this machine"),
        (("saxpy",), "saxpy: "),
    ],
)
def test_options_that_do_not_apply_are_refused(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], message: str
) -> None:
    assert run("check", "--vendor", *words) == 2
    assert message in capsys.readouterr().err
