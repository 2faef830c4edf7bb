"""The script that verifies cuBLAS and the algorithms of cuBLASLt."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import vendor_check
from support.sample_records import H100

from autotune.measure.measurement import Failure
from autotune.measure.vendor_check import VendorCheck, VendorChecks
from autotune.measure.verify import Passed
from autotune.problem import Problem

DEEP = Problem(64, 64, 11528, "bf16")


def test_file_counts_results_and_has_the_wrong_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    right = Passed(0.0, 1.0, 0.0, 9.0, "13.1.0")
    results = (
        VendorCheck(DEEP, "cuBLAS", right),
        VendorCheck(DEEP, "cuBLASLt 1", Failure("verify", "largest error 8")),
        VendorCheck(DEEP, "cuBLASLt 2", right),
        VendorCheck(DEEP, "cuBLASLt 3", right),
    )
    checks = VendorChecks(H100, "13.0", "13.1.0", results)
    monkeypatch.setattr(vendor_check, "check_vendor", lambda *_, **__: checks)
    path = tmp_path / "results" / "vendor-check.json"
    vendor_check.main(path, [str(DEEP)], "abcdef0")
    data = json.loads(path.read_text())
    assert (data["cublas"], data["commit"], data["shapes"]) == ("13.1.0", "abcdef0", [DEEP.shape])
    assert [(*row.values(),) for row in data["counts"]] == [
        ("bf16", "cuBLAS", "verified", 1),
        ("bf16", "cuBLASLt", "wrong", 1),
        ("bf16", "cuBLASLt", "verified", 2),
    ]
    (wrong,) = data["wrong"]
    assert (wrong["shape"], wrong["runs"]) == (str(DEEP), "cuBLASLt 1")
    assert wrong["why"] == "largest error 8"
