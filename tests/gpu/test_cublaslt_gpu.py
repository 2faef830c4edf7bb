"""The results of cuBLASLt's heuristic are right, in fp32 and in every layout."""

from __future__ import annotations

from pathlib import Path

import pytest
from attempts import repeated

from autotune.measure.baseline import ALGORITHMS
from autotune.measure.bench import BASELINE, GemmBench
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.session import Session
from autotune.problem import LAYOUTS, Problem

pytestmark = pytest.mark.timing

BASELINES = [ALGORITHMS]
TF32_ERROR = 2.9e-4  # of a product of normal numbers; fp32 has 1e-6


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_heuristic_result_is_right_and_ieee(
    session: Session, programs: Path, layout: str
) -> None:
    pytest.importorskip("torch")
    bench = GemmBench(
        *(session, Problem(120, 130, 140, layout=layout)),
        leading_dimensions=(150, 145, 160),
        cache=programs,
    )
    outcomes = bench.compare([], BASELINES)
    assert len(outcomes) > 2, "cuBLASLt's heuristic offers one result at most"
    assert not [item for item in outcomes.values() if isinstance(item, Failure)]
    errors = [item.relative_error for item in outcomes.values() if isinstance(item, Measurement)]
    assert all(error is not None and error < TF32_ERROR / 20 for error in errors)


def test_best_heuristic_result_is_no_slower_than_cublas(session: Session, programs: Path) -> None:
    pytest.importorskip("torch")
    bench = GemmBench(session, Problem(512, 512, 512), cache=programs)

    def attempt() -> None:
        outcomes = bench.compare([], BASELINES).items()
        times = {name: item.time_us for name, item in outcomes if isinstance(item, Measurement)}
        assert min(us for name, us in times.items() if name != BASELINE) <= 1.1 * times[BASELINE]

    repeated(attempt)
