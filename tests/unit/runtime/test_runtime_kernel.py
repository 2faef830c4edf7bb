"""Kernels of one problem, and gemms bound to arrays, on the fake GPU."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from support.fake_driver import Matrix
from support.fake_frameworks import FakeTorch
from support.runtime_case import SPLIT, Case

from autotune.errors import ArrayError
from autotune.problem import Problem
from autotune.runtime import Kernel, kernels


def _close(result: Matrix, expected: Matrix) -> bool:
    return np.allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_kernel_computes_its_problem(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3), 0)
    a, b, out = case.operands(5, 7, 3)
    kernel(a, b, out, 2.0)
    assert _close(out.host, 2 * (a.host @ b.host))


def test_kernel_is_compiled_when_created(case: Case) -> None:
    Kernel(case.runtime, Problem(4, 8, 16), 0)
    built = len(case.built)
    case.matmul(*case.operands(4, 8, 16))
    assert (built, len(case.built)) == (1, 1)


def test_kernel_tells_its_configuration_and_plan(case: Case) -> None:
    case.config = SPLIT
    kernel = Kernel(case.runtime, Problem(5, 7, 64), 0)
    assert (kernel.config, kernel.how, kernel.plan.workspace) == (SPLIT, "exact", 2 * 5 * 7 * 4)


def test_kernel_refuses_another_shape(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3), 0)
    with pytest.raises(ArrayError, match="a product 5x7x4:f32:nn; this kernel is for 5x7x3:f32:nn"):
        kernel(*case.operands(5, 7, 4))


def test_kernel_refuses_another_layout(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3, layout="tn"), 0)
    with pytest.raises(
        ArrayError, match=r"A of shape \(5, 3\) has strides \(3, 1\); it must be the"
    ):
        kernel(*case.operands(5, 7, 3))


def test_kernel_refuses_another_device(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3), 1)
    with pytest.raises(ArrayError, match="A is on CUDA device 0; this kernel is for device 1"):
        kernel(*case.operands(5, 7, 3))


def test_kernel_launches_on_addresses_and_a_stream(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3), 0)
    a, b, c = case.matrix(5, 10), case.matrix(3, 7), case.matrix(5, 8)
    kernel.launch(a.ctypes.data, b.ctypes.data, c.ctypes.data, 77, lda=10, ldc=8, alpha=2.0)
    assert _close(c[:, :7], 2 * (a[:, :3] @ b))
    assert case.cuda.launches[0].stream == 77


def test_kernel_refuses_overlapping_rows(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3), 0)
    with pytest.raises(ArrayError, match="B at 0x100 has leading dimension 6; it takes 7 or more"):
        kernel.launch(0x100, 0x100, 0x100, ldb=6)


def test_kernel_refuses_a_misaligned_address(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3), 0)
    with pytest.raises(ArrayError, match=r"C at 0x102 .* an address that is a multiple of 4"):
        kernel.launch(0x100, 0x100, 0x102)


# Bound gemms.


def test_bound_gemm_reads_the_current_contents(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3), 0)
    a, b, out = case.operands(5, 7, 3)
    bound = kernel.bind(a, b, out, 2.0)
    for _ in range(2):
        a.host[:] += 1
        bound()
        assert _close(out.host, 2 * (a.host @ b.host))


def test_bound_gemm_only_reads_the_context_and_launches(case: Case) -> None:
    case.cuda.make_context()
    bound = Kernel(case.runtime, Problem(5, 7, 3), 0).bind(*case.operands(5, 7, 3))
    bound()
    assert case.calls(bound) == ["cuCtxGetId", "cuLaunchKernelEx"]


def test_bound_gemm_runs_on_the_current_stream(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = FakeTorch(case.cuda)
    monkeypatch.setitem(sys.modules, "torch", torch)
    a, b, out = (torch.on("cuda:0", operand.host) for operand in case.operands(5, 7, 3))
    bound = Kernel(case.runtime, Problem(5, 7, 3), 0).bind(a, b, out)
    for stream in (0, 33):
        torch.current = stream
        bound()
    assert [launch.stream for launch in case.cuda.launches] == [0, 33]


def test_arrays_that_do_not_fit_cannot_be_bound(case: Case) -> None:
    a, b, _ = case.operands(5, 7, 3)
    with pytest.raises(ArrayError, match=r"out is \(5, 3\); the product is \(5, 7\)"):
        Kernel(case.runtime, Problem(5, 7, 3), 0).bind(a, b, case.array(5, 3))


def test_kernel_keeps_a_bounded_number_of_launches(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "KEPT_CALLS", 4)
    kernel = Kernel(case.runtime, Problem(5, 7, 3), 0)
    for _ in range(9):
        a, b, out = case.operands(5, 7, 3)
        kernel.launch(*(operand.host.ctypes.data for operand in (a, b, out)))
        assert _close(out.host, a.host @ b.host)
    assert len(kernel._launches) == 1
