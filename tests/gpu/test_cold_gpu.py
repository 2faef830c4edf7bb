"""The hot and the cold kernel of one record on a real GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune import runtime
from autotune.errors import MissingError
from autotune.measure import devices
from autotune.measure.objective import COLD, HOT
from autotune.records import Record

pytestmark = pytest.mark.timing

# One row of cold weights: reading them takes the time, and the best hot kernel is often another.
SHAPE = "1x4096x4096:bf16:nt"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Record]:
    """The record of a short search with the default objective, in a cache of its own."""
    try:
        devices.probe()
    except MissingError as error:
        pytest.skip(str(error))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        runtime.current.cache_clear()
        yield autotune.tune(SHAPE, trials=30, seconds=60)
    runtime.current.cache_clear()


def test_every_entry_has_a_cold_time(tuned: Record) -> None:
    assert all(entry.measurement.cold_us for entry in tuned.entries)


def test_best_cold_is_at_least_as_fast_cold(tuned: Record) -> None:
    best, cold = tuned.best.measurement.cold_us, tuned.best_by(COLD).measurement.cold_us
    assert best is not None
    assert cold is not None
    spread = tuned.best.measurement.cold_spread_us or 0.0
    assert cold <= best + spread


@pytest.mark.parametrize("cold", [False, True])
def test_kernel_and_matmul_run_the_kernel_of_the_temperature(
    torch: Any, tuned: Record, cold: bool
) -> None:
    best = tuned.best_by(COLD if cold else HOT)
    kernel = autotune.kernel(SHAPE, policy=autotune.Policy(cold=cold))
    a = torch.randn(1, 4096, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    assert (kernel.config, kernel.how) == (best.config, "exact")
    result: Any = autotune.matmul(
        a, weight.t(), policy=autotune.Policy(cold=cold, vendor=False, verify=True)
    )
    expected = a.double() @ weight.double().t()
    assert torch.allclose(result.double(), expected, rtol=1e-2, atol=0.5)
    assert torch.equal(kernel(a, weight.t()), result)


def test_export_takes_the_kernel_of_the_temperature(tuned: Record, tmp_path: Path) -> None:
    written = autotune.export.write([SHAPE], tmp_path, format="json", objective="cold")
    (gemm,) = written.library.gemms
    assert (gemm.answer.config, gemm.answer.objective) == (tuned.best_by(COLD).config, COLD)
