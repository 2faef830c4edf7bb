"""matmul on a real GPU in all precisions: 16-bit arrays, and fp32 arrays on tensor cores."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from runtime_gpu import drawn, excess_of
from support.paths import import_path

from autotune.errors import ArrayError
from autotune.families.config import Value
from autotune.problem import Problem
from autotune.runtime import Kernel
from autotune.runtime.launcher import Driver
from autotune.runtime.matmul import Matmul
from autotune.runtime.state import Runtime

TENSOR_CORES = ("wgmma", "mma")
STORED = {"f16": "float16", "bf16": "bfloat16", "tf32": "float32", "tf32x3": "float32"}
SHAPES = [(1, 65, 33), (65, 1, 33), (33, 65, 1), (64, 64, 64), (127, 129, 131), (256, 136, 520)]
SHAPES += [(100, 1000, 10), (1023, 257, 165)]
ALIGNED, ODD = (256, 264, 272), (255, 257, 259)
KEPT = 64
"""The most encoded tensor maps that a kernel keeps."""

Draws = Callable[..., Runtime]


@pytest.fixture
def draws(driver: Driver, cache: Path) -> Draws:
    """Makes runtimes with configurations of a family."""

    def runtime_of_family(family: str, **values: Value) -> Runtime:
        if family == "wgmma" and driver.probe(0).compute_capability != (9, 0):
            pytest.skip("wgmma is of compute capability 9.0 alone")
        return drawn(driver, cache, family, values)

    return runtime_of_family


def _random(torch: Any, compute: str, *shape: int) -> Any:
    return torch.randn(*shape, device="cuda").to(getattr(torch, STORED[compute]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("compute", STORED)
@pytest.mark.parametrize("family", TENSOR_CORES)
def test_results_are_correct(
    torch: Any, draws: Draws, family: str, compute: str, shape: tuple[int, int, int]
) -> None:
    m, n, k = shape
    a, b, out = (_random(torch, compute, *shape) for shape in ((m, k), (k, n), (m, n)))
    rest = -0.5 * out.double()
    Matmul(draws(family))(a, b, out, 0.75, -0.5, compute=compute)
    assert excess_of(out, a, b, 0.75, rest, compute) <= 0


@pytest.mark.parametrize("compute", STORED)
@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("family", TENSOR_CORES)
def test_results_on_views_are_correct(
    torch: Any, draws: Draws, family: str, layout: str, compute: str
) -> None:
    def view(letter: str, rows: int, columns: int) -> Any:
        if letter == "t":
            return _random(torch, compute, columns + 1, rows + 3)[1:, 2 : rows + 2].T
        return _random(torch, compute, rows + 1, columns + 3)[1:, 2 : columns + 2]

    a, b = view(layout[0], 65, 129), view(layout[1], 129, 70)
    memory = _random(torch, compute, 66, 75)
    before = memory.clone()
    Matmul(draws(family))(a, b, memory[1:, 3:73], compute=compute)
    assert excess_of(memory[1:, 3:73], a, b, compute=compute) <= 0
    memory[1:, 3:73] = before[1:, 3:73]
    assert torch.equal(memory, before)


@pytest.mark.parametrize("shape", [ALIGNED, ODD])
@pytest.mark.parametrize("compute", ["f16", "bf16"])
@pytest.mark.parametrize("family", TENSOR_CORES)
def test_out_and_bias_may_be_fp32(
    torch: Any, draws: Draws, family: str, compute: str, shape: tuple[int, int, int]
) -> None:
    m, n, k = shape
    a, b = _random(torch, compute, m, k), _random(torch, compute, k, n)
    bias = torch.randn(n, device="cuda")
    out = torch.full((m, n), float("nan"), device="cuda")
    Matmul(draws(family))(a, b, out, bias=bias)
    assert excess_of(out, a, b, 1, bias.double(), compute) <= 0


@pytest.mark.parametrize("family", TENSOR_CORES)
def test_out_is_allocated_in_the_type_of_the_kernel(torch: Any, draws: Draws, family: str) -> None:
    m, n, k = ODD
    a, b = _random(torch, "bf16", m, k), _random(torch, "bf16", k, n)
    runtime = draws(family)
    same: Any = Kernel(runtime, Problem(m, n, k, "bf16"), 0)(a, b)
    wide: Any = Kernel(runtime, Problem(m, n, k, "bf16", output="f32"), 0)(a, b)
    assert (same.dtype, wide.dtype) == (torch.bfloat16, torch.float32)
    assert max(excess_of(out, a, b, compute="bf16") for out in (same, wide)) <= 0


@pytest.mark.parametrize("compute", ["bf16", "tf32"])
@pytest.mark.parametrize("family", TENSOR_CORES)
def test_batches_are_correct(torch: Any, draws: Draws, family: str, compute: str) -> None:
    matmul, (m, n, k) = Matmul(draws(family)), ODD
    a, b = _random(torch, compute, 5, m, k), _random(torch, compute, 5, k, n)
    shared_b = _random(torch, compute, k, n)
    separate: Any = matmul(a, b, compute=compute)
    shared: Any = matmul(a, shared_b, compute=compute)
    assert excess_of(separate, a, b, compute=compute) <= 0
    assert excess_of(shared, a, shared_b, compute=compute) <= 0


@pytest.mark.parametrize("shape", [ALIGNED, ODD])
@pytest.mark.parametrize("compute", ["bf16", "tf32x3"])
@pytest.mark.parametrize("family", TENSOR_CORES)
def test_new_addresses_of_the_same_shape_are_used(
    torch: Any, draws: Draws, family: str, compute: str, shape: tuple[int, int, int]
) -> None:
    m, n, k = shape
    kernel = Kernel(draws(family), Problem(m, n, k, compute), 0)
    triples = [
        tuple(_random(torch, compute, *shape) for shape in ((m, k), (k, n), (m, n)))
        for _ in range(KEPT + 16)
    ]
    for _ in range(2):
        for a, b, out in triples:
            out.fill_(float("nan"))
            kernel(a, b, out)
        assert max(excess_of(out, a, b, compute=compute) for a, b, out in triples) <= 0


@pytest.mark.parametrize("family", TENSOR_CORES)
def test_address_may_be_reused_with_another_shape(torch: Any, draws: Draws, family: str) -> None:
    matmul, memory = Matmul(draws(family)), _random(torch, "bf16", 256 * 128)
    for rows, columns in ((256, 128), (128, 256), (64, 512), (256, 128)):
        a, b = memory.view(rows, columns), _random(torch, "bf16", columns, 72)
        out: Any = matmul(a, b)
        assert excess_of(out, a, b, compute="bf16") <= 0


@pytest.mark.parametrize("warm", [True, False])
@pytest.mark.parametrize("shape", [ALIGNED, ODD])
@pytest.mark.parametrize("compute", ["bf16", "tf32"])
@pytest.mark.parametrize("family", TENSOR_CORES)
def test_graph_captures_matmul(
    torch: Any, draws: Draws, family: str, compute: str, shape: tuple[int, int, int], warm: bool
) -> None:
    m, n, k = shape
    a, b, out = (_random(torch, compute, *shape) for shape in ((m, k), (k, n), (m, n)))
    kernel = Kernel(draws(family), Problem(m, n, k, compute), 0)
    if warm:
        kernel(a, b, out)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kernel(a, b, out)
    a.normal_()
    # Calls at other addresses must not change the captured tensor maps.
    kernel(a.clone(), b.clone(), torch.empty_like(out))
    graph.replay()
    torch.cuda.synchronize()
    assert excess_of(out, a, b, compute=compute) <= 0


@pytest.mark.parametrize(
    ("family", "values"),
    [
        ("wgmma", {"reduction": "fused"}),
        ("wgmma", {"reduction": "stream"}),
        ("mma", {"split_k": 4}),
    ],
    ids=str,
)
def test_threads_with_their_own_streams_do_not_interfere(
    torch: Any, draws: Draws, family: str, values: dict[str, Value]
) -> None:
    matmul = Matmul(draws(family, **values))
    excesses = []

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            shapes = (200, 2050), (2050, 190), (200, 190)
            a, b, out = (_random(torch, "bf16", *shape) for shape in shapes)
            for _ in range(50):
                matmul(a, b, out)
            excesses.append(excess_of(out, a, b, compute="bf16"))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(excesses) == 4
    assert max(excesses) <= 0


@pytest.mark.parametrize("shape", [ALIGNED, ODD])
@pytest.mark.parametrize("family", TENSOR_CORES)
def test_thread_without_a_context_may_call_matmul(
    torch: Any, draws: Draws, family: str, shape: tuple[int, int, int]
) -> None:
    m, n, k = shape
    kernel = Kernel(draws(family), Problem(m, n, k, "bf16"), 0)
    a, b, out = (_random(torch, "bf16", *shape) for shape in ((m, k), (k, n), (m, n)))
    torch.cuda.synchronize()
    addresses = a.data_ptr(), b.data_ptr(), out.data_ptr()
    thread = threading.Thread(target=lambda: kernel.launch(*addresses))
    thread.start()
    thread.join()
    torch.cuda.synchronize()
    assert excess_of(out, a, b, compute="bf16") <= 0


def test_operands_of_two_types_are_refused(torch: Any, draws: Draws) -> None:
    a, b = _random(torch, "bf16", 8, 8), _random(torch, "f16", 8, 8)
    with pytest.raises(ArrayError, match="float16"):
        Matmul(draws("mma"))(a, b)


@pytest.mark.parametrize("compute", ["f16", "tf32"])
@pytest.mark.parametrize("family", TENSOR_CORES)
def test_cupy_arrays_run_on_the_cupy_stream(draws: Draws, family: str, compute: str) -> None:
    cupy = pytest.importorskip("cupy")
    matmul, dtype = Matmul(draws(family)), STORED[compute]
    a, b = (cupy.random.standard_normal((130, 131), dtype=cupy.float32) for _ in range(2))
    with cupy.cuda.Stream(non_blocking=True):
        a, b = (a * 2).astype(dtype), b.astype(dtype)
        out: Any = matmul(a, b.T, compute=compute)
        error = cupy.abs(out.astype("f8") - a.astype("f8") @ b.T.astype("f8")).max()
        # Elements of C are about 2 sqrt(131) = 23 large, the largest 5 times that.
        assert float(error) < 0.1
    assert isinstance(out, cupy.ndarray)
    assert out.dtype == dtype


PYCUDA = """
from pathlib import Path
import numpy as np
import {context}
from pycuda import gpuarray
from autotune.runtime.launcher import Driver
from autotune.runtime.matmul import Matmul
from runtime_gpu import drawn
matmul = Matmul(drawn(Driver.load(), Path({cache!r}), {family!r}, {{}}))
a, b = (np.random.standard_normal((131, 131)).astype(np.float16) for _ in "ab")
out = matmul(gpuarray.to_gpu(a), gpuarray.to_gpu(b))
assert isinstance(out, gpuarray.GPUArray)
assert out.dtype == np.float16
wide = gpuarray.empty((131, 131), np.float32)
matmul(gpuarray.to_gpu(a), gpuarray.to_gpu(b), wide)
expected = a.astype("f8") @ b.astype("f8")
print(abs(out.get() - expected).max() < 0.05, abs(wide.get() - expected).max() < 1e-3)
"""


@pytest.mark.parametrize("context", ["pycuda.autoprimaryctx", "pycuda.autoinit"])
@pytest.mark.parametrize("family", TENSOR_CORES)
def test_pycuda_arrays_in_primary_and_own_contexts(
    draws: Draws, cache: Path, family: str, context: str
) -> None:
    pytest.importorskip("pycuda.driver")
    draws(family)  # skips if the device has no kernel of the family
    code = PYCUDA.format(context=context, cache=str(cache), family=family)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": import_path(Path(__file__).parent, *map(Path, sys.path))},
    )
    assert done.stdout.strip() == "True True", done.stderr
