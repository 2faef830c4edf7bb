"""Large spaces of user kernels on a GPU, with constraints, geometry and metrics as texts."""

from __future__ import annotations

from time import monotonic

import numpy as np
import pytest

import autotune
from autotune.tuning.options import Search

SCALE = """
extern "C" __global__ void scale(float* out, const float* in, int n) {
    for (int each = 0; each < EACH; ++each) {
        const int at = (blockIdx.x * EACH + each) * blockDim.x + threadIdx.x;
        if (at < n) out[at] = 2.0f * in[at];
    }
}
"""


@pytest.mark.timing
@pytest.mark.usefixtures("session", "untuned")
def test_large_space_in_texts_is_tuned_in_time() -> None:
    n = 1 << 20
    inputs = np.random.default_rng(0).standard_normal(n, np.float32)
    began = monotonic()
    record = autotune.tune_kernel(
        SCALE,
        "scale",
        {
            "THREADS": range(32, 1025, 32),
            "EACH": range(1, 33),
            **{name: range(16) for name in ("FIRST", "SECOND", "THIRD")},
        },
        arguments=[np.empty_like(inputs), inputs, np.int32(n)],
        reference=lambda *arguments: [2 * arguments[1], None, None],
        problem_size=n,
        grid_div=["THREADS * EACH"],
        block="THREADS",
        constraints=[
            "FIRST <= SECOND and SECOND <= THIRD",
            "THREADS * EACH <= 4096",
            lambda p: p["EACH"] % 2 == 0,
        ],
        compile=autotune.Compilation(defines=True),
        metrics={"GB/s": f"8e-3 * {n} / time_us"},
        search=Search(seconds=8),
    )
    assert monotonic() - began < 20
    best = record.best
    assert best.config.integer("THREADS") * best.config.integer("EACH") <= 4096
    assert dict(best.metrics)["GB/s"] == 8e-3 * n / best.measurement.time_us
