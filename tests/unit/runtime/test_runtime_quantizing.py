"""quantize() of arrays, on the fake GPU."""

from __future__ import annotations

import sys
from functools import partial
from typing import Any

import numpy as np
import pytest
from support.fake_frameworks import CuPyArray, FakeCuPy, FakePyCuda, FakeTorch, GPUArray, Interface
from support.numpy_types import decoded, encoded, name_of
from support.quantising import quantised
from support.runtime_case import Case

import autotune
from autotune import runtime
from autotune.errors import ArrayError, UsageError
from autotune.runtime.quantized import quantizer

TARGETS = {"e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "int8": "int8"}
ELEMENTS = {"e4m3": "e4m3", "e5m2": "e5m2", "int8": "i8"}


@pytest.fixture
def case(monkeypatch: pytest.MonkeyPatch) -> Case:
    case = Case()
    monkeypatch.setattr(runtime, "current", lambda: case.matmul)
    return case


def tensor(case: Case, torch: FakeTorch, *shape: int, dtype: str = "bfloat16") -> Any:
    return torch.on("cuda:0", case.matrix(*shape, dtype=dtype, factor=4))


def wanted(x: Any, dtype: str, scale: str, fixed: float | None = None) -> tuple[Any, Any]:
    """The values and the scales of an array on the host."""
    values = decoded(x)
    codes, scales = quantised(values.reshape(-1, *values.shape[-2:]), ELEMENTS[dtype], scale, fixed)
    shape = scales.shape if scale == "tensor" else (*values.shape[:-2], *scales.shape[1:])
    stored = codes.view(encoded(np.zeros(1, np.float32), TARGETS[dtype]).dtype)
    return stored.reshape(values.shape), scales.reshape(shape)


def refused(case: Case, *arguments: Any, **keywords: Any) -> str:
    """The message of the refusal, which is one line; asserts that nothing was launched."""
    with pytest.raises((ArrayError, UsageError)) as error:
        autotune.quantize(*arguments, **keywords)
    assert case.cuda.launches == []
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("scale", ["tensor", "row", "block"])
@pytest.mark.parametrize("dtype", TARGETS)
@pytest.mark.parametrize("source", ["bfloat16", "float32"])
def test_tensors_become_bytes_and_scales(
    case: Case, torch: FakeTorch, source: str, dtype: str, scale: str
) -> None:
    x = tensor(case, torch, 5, 304, dtype=source)
    q, scales = autotune.quantize(x, dtype, scale)
    codes, expected = wanted(x.host, dtype, scale)
    assert (q.dtype, scales.dtype) == (f"torch.{TARGETS[dtype]}", "torch.float32")
    assert (q.host == codes).all()
    assert scales.shape == expected.shape
    assert (scales.host == expected).all()


@pytest.mark.parametrize("shape", [(2, 3, 40), (2, 2, 3, 40)], ids=str)
@pytest.mark.parametrize("scale", ["tensor", "row", "block"])
def test_batches_have_scales_of_each_matrix(
    case: Case, torch: FakeTorch, shape: tuple[int, ...], scale: str
) -> None:
    x = tensor(case, torch, *shape)
    q, scales = autotune.quantize(x, "e4m3", scale)
    codes, expected = wanted(x.host, "e4m3", scale)
    assert scales.shape == expected.shape
    assert (q.host == codes).all()
    assert (scales.host == expected).all()


@pytest.mark.parametrize("columns", [96, 100, 102, 103])
def test_rows_with_gaps_take_the_vectors_they_allow(
    case: Case, torch: FakeTorch, columns: int
) -> None:
    x = torch.on("cuda:0", case.matrix(6, 112, dtype="bfloat16")[:, :columns])
    q, scales = autotune.quantize(x)
    codes, expected = wanted(x.host, "e4m3", "row")
    vector = {96: 8, 100: 4, 102: 2, 103: 1}[columns]
    assert f", {vector}, " in case.cuda.launches[0].kernel
    assert (q.host == codes).all()
    assert (scales.host == expected).all()


def test_tensor_without_gaps_is_one_row(case: Case, torch: FakeTorch) -> None:
    x = tensor(case, torch, 1000, 33)
    q, scales = autotune.quantize(x, "e4m3", "tensor")
    search, quantize = case.cuda.launches
    assert search.grid == quantize.grid == (5, 1, 1)
    codes, expected = wanted(x.host, "e4m3", "tensor")
    assert (q.host == codes).all()
    assert (scales.host == expected).all()


def test_array_of_one_number_is_the_scale(case: Case, torch: FakeTorch) -> None:
    x = tensor(case, torch, 5, 64)
    scale = torch.on("cuda:0", case.cuda.hold(np.array([0.25], np.float32)))
    q, scales = autotune.quantize(x, "int8", scale)
    assert scales is scale
    assert (q.host == wanted(x.host, "int8", "tensor", 0.25)[0]).all()
    assert len(case.cuda.launches) == 1


def test_results_go_to_the_arrays_of_the_caller(case: Case, torch: FakeTorch) -> None:
    x = tensor(case, torch, 5, 64)
    q = torch.on("cuda:0", case.matrix(5, 80, dtype="float8_e4m3fn")[:, :64])
    scales = torch.on("cuda:0", case.matrix(5))
    assert autotune.quantize(x, out=(q, scales)) == (q, scales)
    codes, expected = wanted(x.host, "e4m3", "row")
    assert (q.host == codes).all()
    assert (scales.host == expected).all()
    assert autotune.quantize(x, out=q)[0] is q


def test_arrays_of_cupy_and_pycuda_are_quantised(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    cupy, pycuda = FakeCuPy(case.cuda), FakePyCuda(case.cuda)
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    monkeypatch.setitem(sys.modules, "pycuda.gpuarray", pycuda)
    cupy.int8 = cupy.int32.__class__("int8", 1)  # type: ignore[attr-defined]
    for x in (CuPyArray(case.matrix(5, 64)), GPUArray(case.matrix(5, 64))):
        q, scales = autotune.quantize(x, "int8")
        codes, expected = wanted(x.host, "int8", "row")
        assert type(q) is type(scales) is type(x)
        assert name_of(q.host) == "int8"
        assert (q.host == codes).all()
        assert (scales.host == expected).all()
    with pytest.raises(ArrayError, match="PyCUDA has no float8_e4m3fn"):
        autotune.quantize(x)


def test_repeated_call_only_launches(case: Case, torch: FakeTorch) -> None:
    x, q = tensor(case, torch, 5, 64), tensor(case, torch, 5, 64, dtype="float8_e4m3fn")
    scales = torch.on("cuda:0", case.matrix(5))
    call = partial(autotune.quantize, x, out=(q, scales))
    case.cuda.make_context()
    call()
    torch.current = 9
    assert case.calls(call) == ["cuCtxGetId", "cuLaunchKernelEx"]
    assert [launch.stream for launch in case.cuda.launches] == [0, 9]


def test_dtypes_of_libraries_and_words_name_the_type(case: Case, torch: FakeTorch) -> None:
    x = tensor(case, torch, 5, 64)
    for dtype in ("e5m2", "float8_e5m2", "torch.float8_e5m2", torch.float8_e5m2):
        assert autotune.quantize(x, dtype)[0].dtype == "torch.float8_e5m2"


def test_each_runtime_has_a_quantiser() -> None:
    for case in (Case(), Case()):
        assert quantizer(case.runtime) is quantizer(case.runtime)
        assert quantizer(case.runtime).runtime is case.runtime


# Refusals.


def test_unknown_words_are_refused(case: Case, torch: FakeTorch) -> None:
    x = tensor(case, torch, 5, 64)
    assert refused(case, x, "f16") == "dtype is f16; give e4m3, e5m2 or int8"
    message = "scale is 'column'; give tensor, row or block, or an fp32 array of one number"
    assert refused(case, x, "e4m3", "column") == message


def test_sources_that_no_kernel_reads_are_refused(case: Case, torch: FakeTorch) -> None:
    on_host = torch.on("cpu", np.zeros((2, 3), np.float32))
    assert refused(case, on_host) == "x is on the CPU; move it to a CUDA device"
    q = tensor(case, torch, 5, 64, dtype="int8")
    assert "x is int8; the kernels take float32, float16 and bfloat16" in refused(case, q)
    empty = torch.on("cuda:0", case.matrix(0, 64))
    assert "x is empty (0, 64)" in refused(case, empty)
    vector = torch.on("cuda:0", case.matrix(64))
    assert "x has 1 dimensions (64,); give a matrix" in refused(case, vector)
    turned = torch.on("cuda:0", case.matrix(64, 5).T)
    assert "x of shape (5, 64) has strides (1, 5); it must be row-major" in refused(case, turned)
    apart = torch.on("cuda:0", case.matrix(3, 4, 8)[:, :3])
    assert "with all rows equally far apart: copy it with .contiguous()" in refused(case, apart)
    learnt = tensor(case, torch, 5, 64)
    learnt.requires_grad = True
    assert "x requires a gradient, which quantising does not record" in refused(case, learnt)


def test_results_that_do_not_fit_are_refused(case: Case, torch: FakeTorch) -> None:
    x = tensor(case, torch, 5, 64)

    def out(*shape: int, dtype: str = "float8_e4m3fn", device: int = 0) -> Any:
        return torch.on(f"cuda:{device}", case.matrix(*shape, dtype=dtype, ordinal=device))

    assert (
        refused(case, x, out=out(5, 60)) == "out is (5, 60), x (5, 64); give an array of that shape"
    )
    assert "out is int8, dtype float8_e4m3fn" in refused(case, x, out=out(5, 64, dtype="int8"))
    assert "x is on CUDA device 0, out on 1" in refused(case, x, out=out(5, 64, device=1))
    learnt = out(5, 64)
    learnt.requires_grad = True
    assert "out requires a gradient" in refused(case, x, out=learnt)
    pair = out(5, 64), out(4, dtype="float32")
    assert refused(case, x, out=pair) == "scales are (4,); x takes (5,)"
    wide = out(5, 64), out(5, dtype="bfloat16")
    assert refused(case, x, out=wide) == "scales is bfloat16; scales are float32: convert it"
    numbers = out(2, dtype="float32")
    assert "scale is (2,); an array has one number" in refused(case, x, "e4m3", numbers)
    bytes_of_x = torch.on("cuda:0", x.host.view(np.uint8)[:, :64])
    assert "overlaps x; give another" in refused(case, x, out=bytes_of_x)


def test_array_that_cannot_be_allocated_needs_out(case: Case) -> None:
    x = Interface(case.matrix(5, 64))
    with pytest.raises(ArrayError, match=r"Interface cannot be allocated here; give out=\(5, 64\)"):
        autotune.quantize(x)
