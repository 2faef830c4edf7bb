"""The vendor library's result is verified before it is timed: a product short of K is refused."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.short_library import open_short

import autotune
from autotune.cuda.cublaslt import version
from autotune.device import Device
from autotune.measure.bench import GemmBench
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.session import Session
from autotune.measure.vendor_check import check_vendor
from autotune.problem import PRECISIONS, Problem
from autotune.problem.vendor_faults import known_fault

DEEP = (64, 96, 4128)
"""A shape for split-K whose K is not a multiple of a block of 64, but of what fp8 needs."""
SHAPES = (DEEP, (128, 96, 512), (1, 2048, 2048))


@pytest.mark.parametrize("compute", PRECISIONS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_right_result_of_the_library_passes(
    session: Session, programs: Path, shape: tuple[int, int, int], compute: str
) -> None:
    row = PRECISIONS[compute]
    if session.device.compute_capability < row.compute_capability:
        pytest.skip(f"no {compute} on {session.device.name}")
    problem = Problem(*shape, compute, "nt", scale="row" if row.eight_bit else "none")
    outcome = GemmBench(session, problem, cache=programs).baseline()
    if outcome is None:
        pytest.skip("neither PyTorch nor cuBLAS computes it")
    assert isinstance(outcome, Measurement), outcome
    assert outcome.library == version()


@pytest.mark.parametrize("compute", ["f32", "tf32", "f16", "bf16"])
@pytest.mark.parametrize("missing", [1, 32])
def test_result_without_the_tail_of_k_is_refused(
    session: Session, programs: Path, compute: str, missing: int
) -> None:
    problem = Problem(*DEEP, compute, "nt")
    opener = partial(open_short, missing=missing)
    bench = GemmBench(session, problem, cache=programs, opener=opener)
    outcome = bench.baseline()
    assert isinstance(outcome, Failure)
    assert outcome.reason.startswith("wrong result for small integers: largest error")
    assert outcome.reason.endswith(f" (cuBLAS {version()})")
    outcomes, baseline = bench.rematch([], with_baseline=True)
    assert (outcomes, type(baseline)) == ([], Failure)


def test_check_of_the_library_tells_right_from_wrong(device: Device) -> None:
    checks = check_vendor(
        [Problem(64, 64, 11528, "bf16"), Problem(512, 512, 1027, "f32")],
        further=["support.short_library:open_further"],
    )
    assert (checks.device.slug, checks.library) == (device.slug, version())
    found = {(result.problem.k, result.runs): result.outcome for result in checks.results}
    assert found[11528, "short"] == found[1027, "short"] == "wrong"
    assert found[1027, "cuBLAS"] == "verified"
    for result in checks.wrong:
        assert result.why.startswith("wrong result for small integers: largest error")


@pytest.mark.usefixtures("device")
def test_tuned_record_states_the_verified_version(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    record = autotune.tune(256, 256, 264, compute="bf16", trials=3, progress=False)
    assert record.vendor_result == f"verified with cuBLAS {version()}"
    assert record.vendor_result in str(record)


def test_wrong_cublas_is_recorded_and_not_called(
    torch: Any, device: Device, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    record = autotune.tune(32, 32, 11528, compute="f16", trials=3, progress=False)
    if fault := record.provenance.baseline_fault:
        assert known_fault(version(), device.compute_capability, record.problem), fault
        assert not record.vendor_wins
    a = torch.zeros(32, 11528, dtype=torch.float16, device="cuda")
    a[:, -8:] = 1
    b = torch.ones(11528, 32, dtype=torch.float16, device="cuda")
    assert bool((autotune.matmul(a, b) == 8).all())
