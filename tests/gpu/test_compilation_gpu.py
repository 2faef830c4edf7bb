"""Kernels as people write them are verified, tuned and launched on a GPU, by either compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import autotune
from autotune.cuda import nvcc
from autotune.errors import MissingError
from autotune.measure import devices
from autotune.tuning.options import Search
from autotune.user_kernels.source import Compilation

NVCC = pytest.mark.skipif(nvcc.version() is None, reason="nvcc is not installed")
N = 1000
BODY = "int i = blockIdx.x * TILE + threadIdx.x; if (i < n) out[i] = 2 * in[i];"
KERNEL = f"__global__ void k(float* out, const float* in, int n) {{ {BODY} }}\n"
OTHER = "__global__ void k(double* out, const double* in, int n) { out[0] = n; }\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    return tmp_path


@pytest.fixture(autouse=True)
def _device() -> None:
    try:
        devices.probe()
    except MissingError as error:
        pytest.skip(str(error))


def doubled(out: NDArray[np.float32], values: NDArray[np.float32], n: np.int32) -> Sequence[Any]:
    del out, n
    return [2 * values, None, None]


def tune(source: Any, name: str = "k", compiler: Any = None) -> autotune.KernelRecord:
    values = np.arange(N, dtype=np.float32)
    return autotune.tune_kernel(
        source,
        name,
        {"TILE": (64, 128)},
        arguments=[np.zeros_like(values), values, np.int32(N)],
        reference=doubled,
        problem_size=N,
        grid_div=["TILE"],
        block=lambda p: p["TILE"],
        compile=Compilation(defines=True, compiler=compiler),
        search=Search(effort="exhaustive"),
        progress=False,
    )


def checked(record: autotune.KernelRecord) -> None:
    """Both configurations are correct, and the best runs from its record."""
    assert len(record.entries) == 2
    torch = pytest.importorskip("torch")
    values = torch.arange(N, dtype=torch.float32, device="cuda")
    out = torch.zeros_like(values)
    autotune.kernel(record)(out, values, N)
    torch.cuda.synchronize()
    assert torch.equal(out, 2 * values)


SOURCES = {
    "in an unnamed namespace": ("k", f"namespace {{ {KERNEL} }}"),
    "static": ("k", f"static {KERNEL}"),
    "extern C with others": (
        "k",
        f'extern "C" {{ {KERNEL} __global__ void kk(int* x) {{ *x = 1; }} }}',
    ),
    "overloaded": ("k(float*, const float*, int)", OTHER + KERNEL),
    "macros of a launch": (
        "k",
        KERNEL.replace("TILE", "block_size_x").replace("2 *", "(1 + (gridDim.x == grid_size_x)) *"),
    ),
    "cooperative groups": (
        "k",
        "#include <cooperative_groups.h>\n"
        + KERNEL.replace("threadIdx.x", "cooperative_groups::this_thread_block().thread_rank()"),
    ),
}


@pytest.mark.parametrize("compiler", ["nvrtc", pytest.param("nvcc", marks=NVCC)])
@pytest.mark.parametrize(("name", "source"), SOURCES.values(), ids=SOURCES)
def test_kernel_runs_by_either_compiler(name: str, source: str, compiler: str) -> None:
    checked(tune(source, name, compiler))


@NVCC
@pytest.mark.parametrize("kernel", [KERNEL, f"namespace {{ {KERNEL} }}"], ids=["plain", "unnamed"])
def test_kernel_beside_host_code_runs(kernel: str) -> None:
    record = tune(f'#include <cstdio>\n{kernel}int main() {{ printf("unused"); }}')
    assert record.best.launchable().source.compiler == "nvcc"
    checked(record)


def test_source_by_configuration_runs() -> None:
    def source(p: Mapping[str, Any]) -> str:
        return KERNEL.replace("TILE", str(p["TILE"]))

    record = tune(source)
    checked(record)
    for entry in record.entries:
        assert entry.launchable().source.text == source(entry.config.values)
