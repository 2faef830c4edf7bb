"""matmul on the fake GPU: results, launches, the warm call, warnings and errors."""

from __future__ import annotations

import threading
import warnings
from typing import Any

import numpy as np
import pytest
from support.fake_driver import Matrix, Status
from support.fake_frameworks import FakeTorch, Interface, Tensor
from support.runtime_case import SPLIT, Case, symbol_of

from autotune.device import Device
from autotune.errors import AutotuneError, NotFoundError, RunnerError
from autotune.measure.objective import COLD, HOT
from autotune.problem import Problem
from autotune.runtime import Kernel, UntunedWarning
from autotune.settings import Policy


def _close(result: Matrix, expected: Matrix) -> bool:
    return np.allclose(result, expected, rtol=1e-5, atol=1e-5)


def _transposed(matrix: Matrix) -> Interface:
    return Interface(matrix.T)


# Results.


def test_result_is_written_to_out_and_out_returned(case: Case) -> None:
    a, b, out = case.operands(5, 7, 3)
    assert case.matmul(a, b, out) is out
    assert _close(out.host, a.host @ b.host)


def test_alpha_scales_the_product_and_beta_the_old_out(case: Case) -> None:
    a, b, out = case.operands(5, 7, 3)
    before = out.host.copy()
    case.matmul(a, b, out, alpha=2.0, beta=-0.5)
    assert _close(out.host, 2 * (a.host @ b.host) - 0.5 * before)


def test_beta_0_does_not_read_out(case: Case) -> None:
    a, b, out = case.operands(5, 7, 3)
    out.host[:] = np.nan
    case.matmul(a, b, out)
    assert _close(out.host, a.host @ b.host)


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_transposed_views_are_read_without_a_copy(case: Case, layout: str) -> None:
    a = case.array(5, 3) if layout[0] == "n" else _transposed(case.matrix(3, 5))
    b = case.array(3, 7) if layout[1] == "n" else _transposed(case.matrix(7, 3))
    out = case.array(5, 7)
    case.matmul(a, b, out)
    assert _close(out.host, a.host @ b.host)
    assert case.looked_up == [Problem(5, 7, 3, layout=layout)]


def test_cold_call_runs_the_cold_kernel(case: Case) -> None:
    case.config_cold = SPLIT
    arrays = case.operands(5, 7, 3)
    for cold in (False, True, False, True):
        case.matmul(*arrays, policy=Policy(cold=cold))
    symbols = [launch.kernel for launch in case.cuda.launches]
    hot_call = symbols[:1]
    assert symbols == [*hot_call, *symbols[1:3], *hot_call, *symbols[1:3]]
    assert symbols[1] != symbols[0]
    assert _close(arrays[2].host, arrays[0].host @ arrays[1].host)
    assert len(case.looked_up) == 2


def test_cold_kernel_is_another_one(case: Case) -> None:
    case.config_cold = SPLIT
    hot, cold = (Kernel(case.runtime, Problem(5, 7, 3), 0, it) for it in (HOT, COLD))
    assert (hot.config, cold.config) == (case.config, SPLIT)


def test_rows_may_have_gaps(case: Case) -> None:
    a, b = case.matrix(5, 10)[:, 2:5], case.matrix(3, 9)[:, 1:8]
    out = case.matrix(5, 20)
    beyond = out[:, 7:].copy()
    case.matmul(Interface(a), Interface(b), Interface(out[:, :7]))
    assert _close(out[:, :7], a @ b)
    assert np.array_equal(out[:, 7:], beyond)


@pytest.mark.parametrize("shape", [(1, 7, 3), (5, 1, 3), (5, 7, 1), (1, 1, 3), (1, 1, 1)])
def test_axis_of_size_1_may_have_any_stride(case: Case, shape: tuple[int, int, int]) -> None:
    m, n, k = shape

    def odd(rows: int, columns: int) -> Interface:
        host = case.matrix(rows, columns)
        strides = tuple(
            9996 if size == 1 else stride
            for size, stride in zip(host.shape, host.strides, strict=True)
        )
        return Interface(host, strides=strides)

    a, b, out = odd(m, k), odd(k, n), odd(m, n)
    case.matmul(a, b, out)
    assert _close(out.host, a.host @ b.host)


def test_split_k_sums_in_the_workspace(case: Case) -> None:
    case.config = SPLIT
    a, b, out = case.operands(5, 7, 64)
    case.matmul(a, b, out)
    assert _close(out.host, a.host @ b.host)


# Launches.


def test_launch_follows_the_plan(case: Case) -> None:
    case.matmul(*case.operands(33, 70, 3))
    (launch,) = case.cuda.launches
    (planned,) = case.plans[0].launches
    assert (launch.kernel, launch.grid, launch.block, launch.shared) == (
        symbol_of(planned.template), planned.grid, planned.block, planned.shared
    )  # fmt: skip


def test_arguments_are_addresses_leading_dimensions_sizes(case: Case) -> None:
    a, b = case.matrix(5, 10)[:, :3], case.matrix(3, 7)
    out = case.matrix(5, 8)[:, :7]
    case.matmul(Interface(a), Interface(b), Interface(out), alpha=2.0, beta=0.5)
    assert case.cuda.launches[0].arguments == (
        a.ctypes.data, 10, b.ctypes.data, 7, out.ctypes.data, 8, 5, 7, 3, 2.0, 0.5, None, 0, 0, 0
    )  # fmt: skip


def test_kernels_may_use_all_shared_memory_of_a_block(case: Case) -> None:
    case.matmul(*case.operands(5, 7, 3))
    assert list(case.cuda.limits.values()) == [232448 - 1024]


def test_plan_is_made_for_the_alignment_of_the_arrays(case: Case) -> None:
    memory = case.cuda.hold(np.empty(4 * 8 + 8, np.float32))
    first = (-memory.ctypes.data // 4) % 4
    odd = memory[first + 1 : first + 33].reshape(4, 8)
    case.matmul(case.array(4, 4), case.array(4, 8), Interface(odd))
    assert case.alignments[0].c == 1


def test_other_alignment_is_another_executable(case: Case) -> None:
    memory = case.cuda.hold(np.empty(64, np.float32))
    first = (-memory.ctypes.data // 4) % 4
    a, b = case.array(4, 4), case.array(4, 8)
    for offset in (0, 1, 0, 1):
        out = memory[first + offset : first + offset + 32].reshape(4, 8)
        case.matmul(a, b, Interface(out))
    assert [alignment.c for alignment in case.alignments] == [4, 1]


# Warm calls.


def test_warm_call_only_reads_the_context_and_launches(case: Case, torch: FakeTorch) -> None:
    case.cuda.make_context()
    a, b, out = (torch.on("cuda:0", operand.host) for operand in case.operands(5, 7, 3))
    case.matmul(a, b, out)
    assert case.calls(lambda: case.matmul(a, b, out)) == ["cuCtxGetId", "cuLaunchKernelEx"]


def test_warm_call_with_a_workspace_also_checks_for_capture(case: Case) -> None:
    case.config = SPLIT
    kernel = Kernel(case.runtime, Problem(4, 8, 16), 0)
    a, b, c = (operand.host.ctypes.data for operand in case.operands(4, 8, 16))
    case.cuda.make_context()
    kernel.launch(a, b, c, 5)
    assert case.calls(lambda: kernel.launch(a, b, c, 5)) == [
        *("cuCtxGetId", "cuCtxGetId", "cuStreamIsCapturing"),
        *("cuLaunchKernelEx", "cuLaunchKernelEx"),
    ]  # fmt: skip


def test_new_arrays_of_a_known_signature_reuse_the_kernel(case: Case) -> None:
    case.matmul(*case.operands(4, 8, 16))
    before = len(case.looked_up), len(case.built), len(case.plans)
    for _ in range(3):
        case.matmul(*case.operands(4, 8, 16))
    assert (len(case.looked_up), len(case.built)) == before[:2]


def test_shapes_that_share_a_kernel_load_it_once(case: Case) -> None:
    case.matmul(*case.operands(4, 8, 16))
    loads = case.calls(lambda: case.matmul(*case.operands(5, 9, 17)))
    assert "cuLibraryLoadData" not in loads


def test_threads_share_a_kernel(case: Case) -> None:
    case.config = SPLIT
    results = []

    def work() -> None:
        for _ in range(20):
            a, b, out = (Interface(np.random.rand(8, 8).astype(np.float32)) for _ in range(3))
            for operand in (a, b, out):
                case.cuda.hold(operand.host)
            case.matmul(a, b, out)
            results.append(_close(out.host, a.host @ b.host))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 80


# Tuned and untuned shapes, errors.


def test_exact_record_runs_without_a_warning(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        case.matmul(*case.operands(5, 7, 3))


@pytest.mark.parametrize("how", ["nearest", "predicted"])
def test_untuned_shape_warns_once_with_the_command(case: Case, how: Any) -> None:
    case.how = how

    def act() -> None:
        case.matmul(*case.operands(5, 7, 3))
        case.matmul(*case.operands(5, 7, 3))
        Kernel(case.runtime, Problem(5, 7, 3), 0)

    with pytest.warns(UntunedWarning, match="autotune tune 5x7x3") as caught:
        act()
    assert len(caught) == 1


def test_warning_points_at_the_caller(case: Case) -> None:
    case.how = "nearest"
    with pytest.warns(UntunedWarning) as caught:
        case.matmul(*case.operands(5, 7, 3))
    assert caught[0].filename == __file__


def test_each_untuned_shape_warns(case: Case) -> None:
    case.how = "nearest"
    for shape in ((5, 7, 3), (5, 7, 4)):
        with pytest.warns(UntunedWarning, match=str(Problem(*shape))):
            case.matmul(*case.operands(*shape))


def test_card_without_records_is_named_once(case: Case) -> None:
    case.how, case.advice = "predicted", "this card has no records"

    def act() -> None:
        for shape in ((5, 7, 3), (5, 7, 4)):
            case.matmul(*case.operands(*shape))

    with pytest.warns(UntunedWarning) as caught:
        act()
    assert [case.advice in str(warning.message) for warning in caught] == [True, False]


def test_tuned_result_of_an_untuned_shape_is_used(case: Case) -> None:
    case.how = "nearest"
    a, b, out = case.operands(5, 7, 64)
    tuned = []

    def tuner(problem: Problem, device: Device) -> None:
        tuned.append((problem, device.name))
        case.how, case.config = "exact", SPLIT

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        case.matmul.tune(a, b, tuner)
        case.matmul.tune(a, b, tuner)
        case.matmul(a, b, out)
    assert tuned == [(Problem(5, 7, 64), "NVIDIA H100 80GB HBM3")]
    assert case.plans[-1].config == SPLIT


def test_gemms_bound_before_tuning_are_forgotten(case: Case) -> None:
    operands = case.operands(5, 7, 64)
    case.matmul(*operands)
    case.config = SPLIT
    case.matmul.forget(Problem(5, 7, 64))
    case.matmul(*operands)
    assert case.plans[-1].config == SPLIT


def test_problem_without_a_kernel_is_refused(case: Case) -> None:
    case.config = None
    with pytest.raises(NotFoundError, match="no kernel can run 5x7x3:f32:nn on NVIDIA H100"):
        case.matmul(*case.operands(5, 7, 3))


def test_compile_error_is_reported(case: Case) -> None:
    case.reason = "error: too many registers"
    with pytest.raises(AutotuneError, match=r"naive<.*> does not compile for sm_90: error"):
        case.matmul(*case.operands(5, 7, 3))


def test_refused_launch_is_reported(case: Case) -> None:
    operands = case.operands(5, 7, 3)
    case.matmul(*operands)
    case.cuda.refuse = Status.CUDA_ERROR_INVALID_VALUE
    with pytest.raises(RunnerError, match="cuLaunchKernelEx gave CUDA_ERROR_INVALID_VALUE"):
        case.matmul(*operands)


SHAPES = ((5, 3), (3, 7), (5, 7)), ((2, 5, 3), (2, 3, 7), (2, 5, 7))


def operands(case: Case, shapes: Any) -> list[Tensor]:
    """A and B of NaN, and C."""
    a, b, out = (Tensor(case.matrix(*shape)) for shape in shapes)
    a.host[:] = b.host[:] = np.nan
    return [a, b, out]


@pytest.mark.parametrize("beta", [0.0, 2.0])
@pytest.mark.parametrize("shapes", SHAPES)
def test_vendor_ignores_nan_with_alpha_0(
    case: Case, torch: FakeTorch, shapes: Any, beta: float
) -> None:
    case.vendor = True
    a, b, out = operands(case, shapes)
    expected = beta * out.host
    case.matmul(a, b, out, 0.0, beta)
    np.testing.assert_array_equal(out.host, expected)
    assert [name for name, _ in torch.products] == ["addmm" if out.dim() == 2 else "baddbmm"]


@pytest.mark.parametrize("fuses", [False, True])
def test_vendor_applies_the_epilogue_with_alpha_0(
    case: Case, torch: FakeTorch, fuses: bool
) -> None:
    case.vendor, torch.fuses = True, fuses
    a, b, out = operands(case, SHAPES[0])
    bias = Tensor(case.matrix(7))
    case.matmul(a, b, out, 0.0, bias=bias, activation="relu")
    np.testing.assert_array_equal(out.host, np.broadcast_to(np.maximum(bias.host, 0), (5, 7)))
    assert [name for name, _ in torch.products] == ["addmm", "relu_"]
