"""The vendor baseline on strided, batched and shared operands, with PyTorch faked by NumPy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from support.fake_cublas import FakeCublas
from support.fake_cublaslt import STREAM, operands_of
from support.fake_session import FakeSession, Memory
from support.host_cases import numbers, stored
from support.oracle_errors import error_unit, largest_error
from support.oracle_products import product
from support.served_precisions import SERVED

from autotune.cuda.cublaslt import COMPUTE_32F, COMPUTE_32F_FAST_TF32, Cublas, CublasLt
from autotune.errors import MissingError, RunnerError
from autotune.measure import baseline
from autotune.measure.baseline import (
    OpenBaseline,
    PaddedRun,
    open_algorithms,
    open_baseline,
    open_cublas,
)
from autotune.measure.operands import GUARD, GuardedMatrix, Operands
from autotune.measure.oracle import activated, library_tolerance, tolerance
from autotune.measure.session import BindingsSession
from autotune.problem import ELEMENT_TYPES, ELEMENTWISE, LAYOUTS, PRECISIONS, Problem

Array = NDArray[Any]
"""An array of float32, float16, or uint16 for bfloat16."""

FORMATS: dict[str, str] = {"f32": "<f4", "f16": "<f2", "bf16": "<u2"}


def as_tensor(elements: Any, **_: object) -> Array:
    interface = dict(elements.__cuda_array_interface__)
    return np.asarray(SimpleNamespace(__array_interface__=interface))


def put(array: Array, values: NDArray[np.float64]) -> None:
    """Rounds the values to the array's type."""
    kind = next(kind for kind, name in FORMATS.items() if array.dtype == name)
    array[...] = stored(values.astype(np.float32), kind)


def strided(array: Array, shape: tuple[int, ...], strides: tuple[int, ...]) -> Array:
    reach = 1 + sum((count - 1) * step for count, step in zip(shape, strides, strict=True))
    assert reach <= array.size
    return as_strided(array, shape, [array.itemsize * step for step in strides])


def plain(dimensions: int) -> Any:
    def run(a: Array, b: Array, *, out: Array, out_dtype: Any = None) -> None:
        added(dimensions)(np.zeros(1, np.float32), a, b, out=out, out_dtype=out_dtype)

    return run


def added(dimensions: int) -> Any:
    def run(bias: Array, a: Array, b: Array, *, out: Array, out_dtype: Any = None) -> None:
        assert a.ndim == b.ndim == out.ndim == dimensions
        assert out.dtype == (out_dtype or a.dtype)
        put(out, numbers(a) @ numbers(b) + numbers(bias))

    return run


def relu(array: Array) -> None:
    put(array, np.maximum(numbers(array), 0))


def gelu(array: Array, *, approximate: str = "none") -> None:
    put(array, activated(numbers(array), "gelu_tanh" if approximate == "tanh" else "gelu"))


def silu(array: Array) -> None:
    put(array, activated(numbers(array), "silu"))


def add(array: Array, other: Array, *, out: Array) -> None:
    put(out, numbers(array) + numbers(other))


class Tensor(np.ndarray[Any, Any]):
    """An array with the methods of a tensor that the baseline uses."""

    def copy_(self, source: Any) -> None:
        self[...] = source


def empty(shape: tuple[int, ...], *, dtype: Any, device: object) -> Array:  # noqa: ARG001
    return np.empty(shape, dtype).view(Tensor)


def mul(gate: Array, up: Array, *, out: Array) -> None:
    put(out, numbers(np.asarray(gate)) * numbers(np.asarray(up)))


def fake_torch(*, precisions: list[str] | None = None, dtype_out: bool = True) -> Any:
    """A PyTorch that appends the requested fp32 precisions to `precisions`."""
    overloads = SimpleNamespace(**({"dtype_out": None} if dtype_out else {}))
    products = dict.fromkeys(("mm", "bmm", "addmm", "baddbmm"), overloads)
    return SimpleNamespace(
        bfloat16=np.uint16,
        float16=np.float16,
        float32=np.float32,
        cuda=SimpleNamespace(
            is_available=lambda: True,
            ExternalStream=lambda *_, **__: None,
            stream=lambda _: nullcontext(),
        ),
        set_float32_matmul_precision=([] if precisions is None else precisions).append,
        device=lambda *_: None,
        as_tensor=as_tensor,
        as_strided=strided,
        mm=plain(2),
        bmm=plain(3),
        addmm=added(2),
        baddbmm=added(3),
        relu_=relu,
        add=add,
        mul=mul,
        empty=empty,
        ops=SimpleNamespace(aten=SimpleNamespace(gelu_=gelu, silu_=silu, **products)),
    )


def matrices(matrix: GuardedMatrix) -> Array:
    """All matrices of an operand as stored, the batch as the first axis."""
    memory = matrix.allocation.words.view(np.uint8)[GUARD:]
    elements = memory[: ELEMENT_TYPES[matrix.type].bytes * matrix.length].view(FORMATS[matrix.type])
    shape = matrix.batch, matrix.rows, matrix.columns
    return strided(elements, shape, (matrix.stride, matrix.leading_dimension, 1))


def run(problem: Problem, *layout: Any, opener: OpenBaseline = open_baseline) -> float:
    """The largest error of the baseline's result."""
    session: Any = FakeSession()
    operands = Operands(session, problem, *layout)
    random = np.random.default_rng(0)
    added = [operands.residual] if problem.has_residual else []
    for matrix in (operands.a, operands.b, operands.bias, *added):
        filled = matrices(matrix)
        put(filled, random.standard_normal(filled.shape))
    bench = opener(session, operands)
    assert bench is not None
    bench.whole() if isinstance(bench, PaddedRun) else bench()
    a, b, bias = (numbers(matrices(operand)) for operand in (operands.a, operands.b, operands.bias))
    residual = numbers(matrices(operands.residual)) if added else None
    wanted = product(problem, a, b, bias=bias[0, 0], residual=residual)
    unit: Any = 1.0
    if problem.gated:
        sums = product(replace(problem, epilogue="none"), a, b)
        unit = error_unit(sums, library_tolerance(problem))
    return largest_error(problem, numbers(matrices(operands.c)), wanted, unit)


@pytest.fixture(autouse=True)
def _torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch())


@pytest.mark.parametrize("epilogue", ELEMENTWISE)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_baseline_computes_the_problem(layout: str, batch: int, epilogue: str) -> None:
    problem = Problem(5, 6, 7, layout=layout, batch=batch, epilogue=epilogue)
    assert run(problem) <= tolerance(problem)


@pytest.mark.parametrize("output", ["same", "f32"])
@pytest.mark.parametrize("compute", ["f16", "bf16"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    "epilogue", ["none", "bias_relu", "gelu", "gelu_tanh", "bias_silu", "residual", "bias_residual"]
)
def test_baseline_computes_16_bit_types(
    compute: str, output: str, batch: int, epilogue: str
) -> None:
    problem = Problem(5, 7, 9, compute, "nt", batch, epilogue, output)
    assert run(problem) <= library_tolerance(problem)


@pytest.mark.parametrize("compute", ["f16", "bf16"])
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_baseline_of_swiglu_works_on_gates_apart(layout: str, batch: int, compute: str) -> None:
    problem = Problem(5, 48, 9, compute, layout, batch, "swiglu")
    assert run(problem) <= library_tolerance(problem)
    assert run(problem, (16, 80, 40)) <= library_tolerance(problem)


@pytest.mark.parametrize(
    ("text", "fuses"),
    [
        *(("5x6x7:bias_relu", True), ("5x6x7:bf16:bias_relu", True)),
        *(("5x6x7:bf16:bias_gelu_tanh", True), ("5x6x7:bias_gelu_tanh", False)),
        *(("5x6x7:bf16:bias_gelu", False), ("5x6x7:bias", False), ("5x6x7:relu", False)),
        *(("5x6x7:bias_relu:batch=3", False), ("5x6x7:bf16:bias_relu:out=f32", False)),
    ],
)
def test_cublaslt_fuses_relu_and_the_tanh_gelu_of_16_bits(
    monkeypatch: pytest.MonkeyPatch, text: str, fuses: bool
) -> None:
    calls = []

    def fused(bias: Array, a: Array, b: Array, *, use_gelu: bool, out: Array) -> None:
        calls.append(use_gelu)
        added(2)(bias, a, b, out=out)
        put(out, activated(numbers(out), "gelu_tanh" if use_gelu else "relu"))

    torch, problem = fake_torch(), Problem.parse(text)
    torch._addmm_activation = fused
    monkeypatch.setitem(sys.modules, "torch", torch)
    assert run(problem) <= library_tolerance(problem)
    assert calls == ([problem.activation == "gelu_tanh"] if fuses else [])


# Operands of 8 bits have functions of their own (test_scaled_baseline.py).
@pytest.mark.parametrize(
    "compute", [compute for compute in SERVED if PRECISIONS[compute].operand.bytes > 1]
)
def test_tf32_is_allowed_for_tf32_alone(monkeypatch: pytest.MonkeyPatch, compute: str) -> None:
    precisions: list[str] = []
    monkeypatch.setitem(sys.modules, "torch", fake_torch(precisions=precisions))
    run(Problem(5, 6, 7, compute))
    assert precisions == ["high" if compute == "tf32" else "highest"]


@pytest.mark.parametrize(("output", "served"), [("same", True), ("f32", False)])
def test_old_pytorch_has_no_fp32_output_of_16_bit_types(
    monkeypatch: pytest.MonkeyPatch, output: str, served: bool
) -> None:
    monkeypatch.setitem(sys.modules, "torch", fake_torch(dtype_out=False))
    session: Any = FakeSession()
    problem = Problem(2, 3, 4, "bf16", output=output)
    assert (open_baseline(session, Operands(session, problem)) is not None) == served


@pytest.mark.parametrize(
    "strides",
    [None, (0, 0, 120), (8, 8, 9), (110, 160, 130)],
    ids=["dense", "shared", "side by side", "gaps"],
)
def test_baseline_follows_strides(strides: tuple[int, int, int] | None) -> None:
    problem = Problem(5, 6, 7, batch=3, epilogue="bias")
    assert run(problem, (24, 25, 27), strides) <= tolerance(problem)


def test_baseline_is_none_without_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Cublas:
        raise MissingError("no cuBLAS")

    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(Cublas, "load", missing)
    session: Any = FakeSession()
    assert open_baseline(session, Operands(session, Problem(2, 3, 4))) is None


@pytest.fixture
def cublas(monkeypatch: pytest.MonkeyPatch) -> FakeCublas:
    fake = FakeCublas()
    monkeypatch.setattr(Cublas, "load", lambda: Cublas(fake))
    return fake


def test_cublas_stands_in_for_pytorch(cublas: FakeCublas, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    problem = Problem(5, 6, 7, "f16", "tn")
    assert run(problem) <= tolerance(problem)
    assert cublas.computes == [COMPUTE_32F]


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("compute", ["f32", "tf32", "tf32x3", "f16", "bf16"])
def test_cublas_alone_computes_the_problem(
    cublas: FakeCublas, compute: str, layout: str, batch: int
) -> None:
    problem = Problem(5, 6, 7, compute, layout, batch=batch)
    assert run(problem, opener=open_cublas) <= tolerance(problem)
    expected = COMPUTE_32F_FAST_TF32 if compute == "tf32" else COMPUTE_32F
    assert (cublas.computes, cublas.stream) == ([expected], FakeSession().stream)


def test_cublas_alone_keeps_to_rows_and_matrices_apart(cublas: FakeCublas) -> None:
    problem = Problem(5, 6, 7, "bf16", "nt", batch=2, output="f32")
    layout = (9, 11, 8), (0, 80, 60)
    assert run(problem, *layout, opener=open_cublas) <= tolerance(problem)
    assert len(cublas.computes) == 1


@pytest.mark.usefixtures("cublas")
def test_session_keeps_one_handle_of_cublas() -> None:
    session = object.__new__(BindingsSession)
    assert session.cublas is session.cublas


@pytest.mark.parametrize("text", ["8x8x8:f16:nn:bias", "16x16x16:f8:nt", "8x8x8:f32:nn:relu"])
def test_cublas_alone_leaves_other_problems(cublas: FakeCublas, text: str) -> None:
    session: Any = FakeSession()
    assert open_cublas(session, Operands(session, Problem.parse(text))) is None
    assert cublas.stream == 0


def test_cublas_that_is_missing_or_refuses_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> Cublas:
        raise MissingError("no cuBLAS")

    def load() -> Cublas:
        return Cublas(FakeCublas(status=3))

    with pytest.raises(RunnerError, match="cublasCreate_v2 failed with status 3"):
        load()
    session: Any = FakeSession()
    operands = Operands(session, Problem(8, 8, 8))
    for loading in (missing, load):
        monkeypatch.setattr(Cublas, "load", loading)
        monkeypatch.setattr(baseline, "_torch", lambda *_: print)
        assert baseline.open_quick_baseline(session, operands) is print


# Algorithms of cuBLASLt as further baselines, with the fake library on host memory.

SMALL = Problem(5, 7, 3)


@pytest.fixture
def algorithms(_fake_cublaslt: None) -> Callable[[Any], list[tuple[str, Callable[[], None]]]]:
    session: Any = SimpleNamespace(stream=STREAM, allocate=Memory, cublaslt=CublasLt.load())
    return lambda operands: open_algorithms(session, operands)


@pytest.mark.parametrize("which", [0, 1])
def test_each_result_computes_the_gemm(algorithms: Callable[[Any], Any], which: int) -> None:
    operands = operands_of(SMALL)
    _, run = algorithms(operands)[which]
    run()
    expected = operands.a.matrix @ operands.b.matrix
    np.testing.assert_allclose(operands.c.matrix, expected, rtol=1e-5, atol=1e-6)


def test_results_are_ranked_without_unusable_ones(algorithms: Callable[[Any], Any]) -> None:
    assert [name for name, _ in algorithms(operands_of(SMALL))] == ["cuBLASLt 1", "cuBLASLt 2"]


@pytest.mark.parametrize("changed", [{"batch": 2}, {"epilogue": "relu"}])
def test_batches_and_epilogues_have_no_algorithms(
    algorithms: Callable[[Any], Any], changed: dict[str, Any]
) -> None:
    assert algorithms(operands_of(replace(SMALL, **changed))) == []
