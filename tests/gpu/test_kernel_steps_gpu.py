"""Kernels in order, scratch memory, cooperative launches and naive references, on a GPU.

Each kernel has a parameter WRONG. Its wrong variant does less work and must lose.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import autotune
from autotune import Scratch, Step
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.measure.session import PyCudaSession
from autotune.records import KernelRecord
from autotune.tuning.options import Search

N = 100_000

# Blocks of `partial` sleep before they write, so that a second kernel that starts early reads NaN.
REDUCTION = """
template <int THREADS, int EACH, int WRONG>
__global__ void partial(const float* x, float* sums, int n) {
    __shared__ float own[THREADS];
    float sum = 0.0f;
    for (int i = 0; i < EACH; ++i) {
        const int at = (blockIdx.x * EACH + i) * THREADS + threadIdx.x;
        if (at < n) sum += x[at];
    }
    own[threadIdx.x] = sum;
    __syncthreads();
    for (int half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half) own[threadIdx.x] += own[threadIdx.x + half];
        __syncthreads();
    }
    __nanosleep(20000);
    const bool last = blockIdx.x == gridDim.x - 1;
    if (threadIdx.x == 0 && !(WRONG == 1 && last)) sums[blockIdx.x] = own[0];
    if (threadIdx.x == 0 && WRONG == 2 && last) sums[blockIdx.x + 1] = 0.0f;
}

__global__ void total(const float* sums, float* out, int blocks) {
    float sum = 0.0f;
    for (int i = 0; i < blocks; ++i) sum += sums[i];
    *out = sum;
}
"""


def blocks(p: Any) -> int:
    return int(-(-N // (p["THREADS"] * p["EACH"])))


def summed(x: Any, out: Any, sums: Any, n: Any, count: Any) -> list[Any]:
    assert n == N
    assert (sums, count) == (None, None)
    return [None, np.full_like(out, x.sum(dtype=np.float64)), None, None, None]


SUM: dict[str, Any] = {
    "source": REDUCTION,
    "name": [
        Step("partial", takes=[0, 2, 3]),
        Step("total<>", takes=[2, 1, 4], grid=1, block=1),
    ],
    "parameters": {"THREADS": [128, 256], "EACH": [1, 4], "WRONG": [0, 1, 2]},
    "grid": blocks,
    "block": lambda p: p["THREADS"],
    "arguments": [
        np.random.default_rng(0).random(N, np.float32),
        np.zeros(1, np.float32),
        Scratch(blocks, np.float32),
        np.int32(N),
        lambda p: np.int32(blocks(p)),
    ],
    "reference": summed,
    "search": Search(effort="exhaustive"),
}

# Block 0 adds up what the others write after a while.
GRID_SYNC = """
#include <cooperative_groups.h>

template <int THREADS, int WRONG>
__global__ void sum_of_blocks(float* out, float* sums) {
    for (int i = 0; blockIdx.x > 0 && i < 5; ++i) __nanosleep(100000);
    if (threadIdx.x == 0) sums[blockIdx.x] = blockIdx.x;
    if (!WRONG) cooperative_groups::this_grid().sync();
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        float sum = 0.0f;
        for (int i = 0; i < gridDim.x; ++i) sum += *(volatile float*)&sums[i];
        *out = sum;
    }
}
"""

MATMUL = """
template <int TILE, int WRONG>
__global__ void tiled(const float* a, const float* b, float* c, int n) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    const int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int at = 0; at < n - WRONG * TILE; at += TILE) {
        left[threadIdx.y][threadIdx.x] = a[row * n + at + threadIdx.x];
        right[threadIdx.y][threadIdx.x] = b[(at + threadIdx.y) * n + column];
        __syncthreads();
        for (int k = 0; k < TILE; ++k) sum += left[threadIdx.y][k] * right[k][threadIdx.x];
        __syncthreads();
    }
    c[row * n + column] = sum;
}

template <typename T> __global__ void naive(const T* a, const T* b, T* c, int n) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    const int column = blockIdx.x * blockDim.x + threadIdx.x;
    T sum = 0;
    for (int k = 0; k < n; ++k) sum += a[row * n + k] * b[k * n + column];
    c[row * n + column] = sum;
}
"""
SIDE = 256


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))


def check_winners(record: KernelRecord, right: int, trials: int) -> None:
    """Asserts that all `right` configurations are entries, and no other of those tried."""
    wrong = [entry for entry in record.entries if entry.config.integer("WRONG")]
    assert (wrong, len(record.entries), record.provenance.trials) == ([], right, trials)


def test_two_passes_are_timed_and_verified_as_one(device: Device) -> None:
    record = autotune.tune_kernel(**SUM)
    check_winners(record, right=4, trials=12)
    assert autotune.best_kernel("partial", [*SUM["arguments"][:4], np.int32]) == record
    assert device.name in str(record)
    assert [line.partition(":")[0] for line in record.step_lines] == ["partial", "total"]


def test_two_passes_run_on_scratch_of_the_runtime(device: Device) -> None:
    del device
    pytest.importorskip("pycuda")
    record = autotune.tune_kernel(**SUM)
    with PyCudaSession(0):
        from pycuda import gpuarray

        values = SUM["arguments"][0]
        x, out = gpuarray.to_gpu(values), gpuarray.to_gpu(np.zeros(1, np.float32))
        for entry in record.entries:
            out.fill(np.float32(np.nan))
            autotune.kernel(entry)(x, out, N)
            np.testing.assert_allclose(out.get(), values.sum(dtype=np.float64), rtol=1e-4)
        del x, out


def tune_cooperative(**changes: Any) -> KernelRecord:
    definition: dict[str, Any] = {
        "source": GRID_SYNC,
        "name": Step("sum_of_blocks", cooperative=True),
        "parameters": {"THREADS": [64, 128], "WRONG": [0, 1]},
        "grid": 100,
        "block": lambda p: p["THREADS"],
        "arguments": [np.zeros(1, np.float32), Scratch(100, "float32")],
        "reference": [np.full(1, 4950, np.float32), None],
        "search": Search(effort="exhaustive"),
    }
    return autotune.tune_kernel(**definition | changes)


def test_cooperative_kernel_waits_for_its_grid(device: Device) -> None:
    del device
    check_winners(tune_cooperative(), right=2, trials=4)


def test_recorded_cooperative_kernel_is_launched_as_such(device: Device) -> None:
    del device
    pytest.importorskip("pycuda")
    record = tune_cooperative()
    with PyCudaSession(0):
        from pycuda import gpuarray

        out = gpuarray.to_gpu(np.zeros(1, np.float32))
        autotune.kernel(record)(out)
        assert out.get()[0] == 4950
        del out


def test_cooperative_grid_beyond_the_gpu_is_rejected(device: Device) -> None:
    most = device.sms * device.blocks_per_sm
    arguments = [np.zeros(1, np.float32), Scratch(most + 1, "float32")]
    with pytest.raises(AutotuneError, match=f"{most + 1} blocks of a cooperative launch"):
        tune_cooperative(grid=most + 1, arguments=arguments)


def test_naive_kernel_is_the_reference(device: Device) -> None:
    del device
    random = np.random.default_rng(1)
    a, b = (random.standard_normal((SIDE, SIDE), np.float32) for _ in "ab")
    record = autotune.tune_kernel(
        MATMUL,
        "tiled",
        {"TILE": [8, 16, 32], "WRONG": [1, 0]},
        arguments=[a, b, np.zeros((SIDE, SIDE), np.float32), np.int32(SIDE)],
        reference=Step("naive<float>", grid=(SIDE // 16, SIDE // 16), block=(16, 16)),
        problem_size=(SIDE, SIDE),
        block=lambda p: (p["TILE"], p["TILE"]),
        search=Search(effort="exhaustive"),
    )
    check_winners(record, right=3, trials=6)
    assert record.verified == "naive"
