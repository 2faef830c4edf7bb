"""The array libraries: reading their arrays, allocating outputs, and streams."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from support.fake_driver import Matrix
from support.fake_frameworks import (
    CuPyArray,
    FakeCuPy,
    FakePyCuda,
    FakeTorch,
    GPUArray,
    Interface,
    Tensor,
)
from support.runtime_case import Case

from autotune.errors import ArrayError


@pytest.fixture
def pycuda(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda.gpuarray", FakePyCuda(case.cuda))


def _close(result: Matrix, expected: Matrix) -> bool:
    return np.allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_pytorch_allocates_out_on_its_current_stream(case: Case, torch: FakeTorch) -> None:
    torch.current = 33
    a, b = (torch.on("cuda:1", case.matrix(*shape, ordinal=1)) for shape in ((5, 3), (3, 7)))
    out: Any = case.matmul(a, b)
    assert isinstance(out, Tensor)
    assert _close(out.host, a.host @ b.host)
    assert (case.cuda.launches[0].stream, out.device) == (33, a.device)


def test_pytorch_tensors_on_the_cpu_are_refused(case: Case, torch: FakeTorch) -> None:
    a, b = (torch.on("cpu", case.matrix(3, 3)) for _ in "ab")
    with pytest.raises(ArrayError, match="A is on the CPU; move it to a CUDA device"):
        case.matmul(a, b)


def test_pytorch_tensors_that_record_gradients_are_refused(case: Case, torch: FakeTorch) -> None:
    a, b = (torch.on("cuda:0", case.matrix(3, 3)) for _ in "ab")
    case.matmul(a, b)
    b.requires_grad = True
    with pytest.raises(ArrayError, match="B requires a gradient"):
        case.matmul(a, b)


def test_pytorch_parameters_are_accepted_under_no_grad(case: Case, torch: FakeTorch) -> None:
    a, b = (torch.on("cuda:0", case.matrix(3, 3)) for _ in "ab")
    a.requires_grad, torch.records = True, False
    out: Any = case.matmul(a, b)
    assert _close(out.host, a.host @ b.host)


def test_cupy_allocates_out_on_the_current_stream(case: Case, cupy: FakeCuPy) -> None:
    cupy.streams = {0: 44}
    a, b = CuPyArray(case.matrix(5, 3)), CuPyArray(case.matrix(3, 7))
    out: Any = case.matmul(a, b)
    assert isinstance(out, CuPyArray)
    assert _close(out.host, a.host @ b.host)
    assert case.cuda.launches[0].stream == 44


@pytest.mark.usefixtures("pycuda")
def test_pycuda_allocates_out_and_uses_the_default_stream(case: Case) -> None:
    a, b = GPUArray(case.matrix(5, 3), "a pool"), GPUArray(case.matrix(3, 7))
    out: Any = case.matmul(a, b)
    assert isinstance(out, GPUArray)
    assert _close(out.host, a.host @ b.host)
    assert (case.cuda.launches[0].stream, out.allocator) == (0, "a pool")


def test_stream_named_by_an_array_interface_is_used(case: Case) -> None:
    a, b, out = case.operands(5, 7, 3)
    case.matmul(a, Interface(b.host, stream=9), out)
    assert case.cuda.launches[0].stream == 9


def test_operands_on_different_streams_are_refused(case: Case) -> None:
    a, b, out = (Interface(operand.host, stream=9) for operand in case.operands(5, 7, 3))
    with pytest.raises(ArrayError, match=r"different streams \[8, 9\]; bring them onto one stream"):
        case.matmul(a, Interface(b.host, stream=8), out)


def test_operands_may_come_from_different_libraries(case: Case, torch: FakeTorch) -> None:
    torch.current = 33
    a, b, out = case.operands(5, 7, 3)
    case.matmul(torch.on("cuda:0", a.host), b, out)
    assert _close(out.host, a.host @ b.host)
    assert case.cuda.launches[0].stream == 33


class Producer:
    """An array with nothing but DLPack, such as a `jax.Array`. NumPy makes the capsule, which says
    that the memory is on the CPU; `__dlpack_device__` decides."""

    def __init__(self, host: Matrix, kind: int = 2, ordinal: int = 0) -> None:
        self.host, self._device = host, (kind, ordinal)
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        self.streams.append(stream)
        return self.host.__dlpack__(**options)


def test_dlpack_arrays_run_on_the_default_stream(case: Case) -> None:
    a, b, out = (Producer(operand.host) for operand in case.operands(5, 7, 3))
    assert case.matmul(a, b, out) is out
    assert _close(out.host, a.host @ b.host)
    assert case.cuda.launches[0].stream == 0


def test_dlpack_producer_is_given_the_legacy_default_stream(case: Case) -> None:
    a, b, out = (Producer(operand.host) for operand in case.operands(5, 7, 3))
    case.matmul(a, b, out)
    assert set(a.streams) == {1}


def test_dlpack_arrays_need_an_out(case: Case) -> None:
    a, b, _ = (Producer(operand.host) for operand in case.operands(5, 7, 3))
    with pytest.raises(ArrayError, match=r"Producer cannot be allocated here; give out=\(5, 7\)"):
        case.matmul(a, b)


def test_dlpack_arrays_on_the_cpu_are_refused(case: Case) -> None:
    a, b, out = (Producer(operand.host, kind=1) for operand in case.operands(5, 7, 3))
    with pytest.raises(ArrayError, match=r"A is a .*Producer, which is not on a CUDA device"):
        case.matmul(a, b, out)


def test_numpy_arrays_are_refused_despite_dlpack(case: Case) -> None:
    with pytest.raises(ArrayError, match=r"A is a numpy\.ndarray, which is not on a CUDA device"):
        case.matmul(case.matrix(5, 3), case.matrix(3, 7))
