"""cuBLASLt's candidates are right, in fp32 and in every layout."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.gpu.benches.gemm import BASELINE, GemmBench
from autotune.gpu.session import Session
from autotune.problem import LAYOUTS, Problem
from autotune.runners.base import Failure, Measurement

RIVALS = ["cublaslt:open_baselines"]
TF32_ERROR = 2.9e-4  # of a product of normal numbers; fp32 has 1e-6


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_rival_is_right_and_ieee(session: Session, programs: Path, layout: str) -> None:
    pytest.importorskip("torch")
    bench = GemmBench(
        *(session, Problem(120, 130, 140, layout=layout)),
        leading_dimensions=(150, 145, 160),
        cache=programs,
    )
    outcomes = bench.compare([], RIVALS)
    assert len(outcomes) > 2, "neither cuBLAS nor cuBLASLt has a choice to offer"
    assert not [one for one in outcomes.values() if isinstance(one, Failure)]
    errors = [one.relative_error for one in outcomes.values() if isinstance(one, Measurement)]
    assert all(error is not None and error < TF32_ERROR / 20 for error in errors)


def test_the_best_rival_is_no_slower_than_cublas_itself(session: Session, programs: Path) -> None:
    pytest.importorskip("torch")
    outcomes = GemmBench(session, Problem(512, 512, 512), cache=programs).compare([], RIVALS)
    times = {name: one.time_us for name, one in outcomes.items() if isinstance(one, Measurement)}
    assert min(us for name, us in times.items() if name != BASELINE) <= 1.1 * times[BASELINE]
