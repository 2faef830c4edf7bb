"""Batches and epilogues of matmul, on the fake GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray
from support.fake_driver import Matrix
from support.fake_frameworks import FakeTorch, Interface
from support.runtime_case import Case

from autotune.device import Device
from autotune.errors import ArrayError, ProblemError
from autotune.measure.oracle import activated
from autotune.problem import Problem
from autotune.problem.fields import ACTIVATIONS
from autotune.runtime import CallOptions, Kernel


def _close(result: Matrix, expected: NDArray[Any]) -> bool:
    return result.shape == expected.shape and np.allclose(result, expected, rtol=1e-5, atol=1e-5)


# Batches.


def test_broadcast_matrix_counts_as_a_single_one(case: Case) -> None:
    repeated = np.broadcast_to(case.matrix(5, 3), (4, 5, 3))
    b, out = case.array(4, 3, 7), case.array(4, 5, 7)
    case.matmul(Interface(repeated), b, out)
    assert _close(out.host, repeated @ b.host)
    assert case.cuda.launches[0].arguments[-3:] == (0, 21, 35)


def test_batch_of_one_keeps_its_axis(case: Case, torch: FakeTorch) -> None:
    a, b = (torch.on("cuda:0", case.matrix(*shape)) for shape in ((1, 5, 3), (3, 7)))
    out: Any = case.matmul(a, b)
    assert _close(out.host, a.host @ b.host)
    assert case.looked_up == [Problem(5, 7, 3)]


@pytest.mark.parametrize("layout", ["nn", "nt", "tn", "tt"])
def test_batches_of_transposed_views_need_no_copy(case: Case, layout: str) -> None:
    a = case.matrix(4, 5, 3) if layout[0] == "n" else case.matrix(4, 3, 5).swapaxes(1, 2)
    b = case.matrix(4, 3, 7) if layout[1] == "n" else case.matrix(4, 7, 3).swapaxes(1, 2)
    out = case.array(4, 5, 7)
    case.matmul(Interface(a), Interface(b), out)
    assert _close(out.host, a @ b)
    assert case.looked_up == [Problem(5, 7, 3, layout=layout, batch=4)]


def test_matrices_may_have_gaps_between_them(case: Case) -> None:
    a, b, out = case.matrix(8, 6, 3)[::2, :5], case.matrix(4, 3, 7), case.matrix(4, 6, 9)
    expected = out.copy()
    case.matmul(Interface(a), Interface(b), Interface(out[:, 1:, 2:]))
    expected[:, 1:, 2:] = a @ b
    assert _close(out, expected)


def test_rows_of_matrices_may_interleave(case: Case) -> None:
    a, b, out = case.matrix(5, 4, 3), case.matrix(3, 7), case.matrix(5, 4, 7)
    case.matmul(Interface(a.swapaxes(0, 1)), Interface(b), Interface(out.swapaxes(0, 1)))
    assert _close(out, a @ b)


def test_plan_respects_the_alignment_of_strides(case: Case) -> None:
    a = case.matrix(3, 5, 4)[:, :4]
    b = as_strided(case.matrix(3 * 17), (3, 4, 4), (4 * 17, 16, 4))
    case.matmul(Interface(a), Interface(b), case.array(3, 4, 4))
    assert (case.alignments[0].a, case.alignments[0].b) == (4, 1)


@pytest.mark.parametrize("stride", [0, 1, 20])
def test_out_with_overlapping_matrices_is_refused(case: Case, stride: int) -> None:
    out = as_strided(case.matrix(4 * 35), (4, 5, 7), (4 * stride, 28, 4))
    message = case.refused(case.array(4, 5, 3), case.array(4, 3, 7), Interface(out))
    assert message == (
        f"out of shape (4, 5, 7) has strides {(stride, 7, 1)}, so that its matrices overlap; "
        "give each its own memory"
    )


def test_negative_batch_stride_is_refused(case: Case) -> None:
    a = case.matrix(4, 5, 3)[::-1]
    message = case.refused(Interface(a), case.array(4, 3, 7), case.array(4, 5, 7))
    assert message.startswith("A of shape (4, 5, 3) has strides (-15, 3, 1); it must be row-major")


def test_out_may_lie_between_the_matrices_of_an_input(case: Case) -> None:
    memory = case.matrix(4, 5, 12)
    a, b, out = memory[:, :, :3], case.matrix(4, 3, 7), memory[:, :, 4:11]
    expected = a @ b
    case.matmul(Interface(a), Interface(b), Interface(out))
    assert _close(out, expected)


def test_out_within_a_later_matrix_of_an_input_is_refused(case: Case) -> None:
    memory = case.matrix(4, 3, 3)
    message = case.refused(Interface(memory), case.array(3, 3), Interface(memory[3]))
    assert message.startswith("out is (3, 3)")
    message = case.refused(Interface(memory[:3]), case.array(3, 3), Interface(memory[1:]))
    assert "overlaps A at" in message


# Epilogues.


@pytest.mark.parametrize("activation", [None, *ACTIVATIONS])
@pytest.mark.parametrize("biased", [True, False])
def test_bias_and_activation_are_applied_last(
    case: Case, biased: bool, activation: str | None
) -> None:
    a, b, out = case.operands(5, 7, 3)
    bias = case.array(7) if biased else None
    expected = 2 * (a.host @ b.host) + 0.5 * out.host + (bias.host if bias else 0)
    case.matmul(a, b, out, 2.0, 0.5, bias, activation)
    assert _close(out.host, activated(expected, activation))


def test_bias_is_shared_by_the_batch(case: Case) -> None:
    a, b, out, bias = case.array(4, 5, 3), case.array(3, 7), case.array(4, 5, 7), case.array(7)
    case.matmul(a, b, out, bias=bias, activation="relu")
    assert _close(out.host, np.maximum(a.host @ b.host + bias.host, 0))
    assert case.looked_up == [Problem(5, 7, 3, batch=4, epilogue="bias_relu")]


def test_bias_may_end_where_out_begins(case: Case) -> None:
    memory = case.matrix(6, 7)
    a, b, bias, out = case.array(5, 3), case.array(3, 7), memory[0], memory[1:]
    case.matmul(a, b, Interface(out), bias=Interface(bias))
    assert _close(out, a.host @ b.host + bias)


def test_each_epilogue_is_its_own_problem(case: Case) -> None:
    a, b, out = case.operands(5, 7, 3)
    for activation in (None, "relu", None, "relu"):
        case.matmul(a, b, out, activation=activation)
    assert case.looked_up == [Problem(5, 7, 3), Problem(5, 7, 3, epilogue="relu")]


def test_tuner_gets_the_epilogue(case: Case) -> None:
    case.how = "nearest"
    tuned: list[Problem] = []

    def tuner(problem: Problem, device: Device) -> None:
        del device
        tuned.append(problem)

    a, b, _ = case.operands(5, 7, 3)
    case.matmul.tune(a, b, tuner, CallOptions(activation="gelu"), bias=case.array(7))
    assert tuned == [Problem(5, 7, 3, epilogue="bias_gelu")]


def test_unknown_activation_is_refused(case: Case) -> None:
    with pytest.raises(ProblemError, match="unknown activation 'tanh'; give one of relu, gelu, "):
        case.matmul(*case.operands(5, 7, 3), activation="tanh")


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((6,), "bias is (6,); the product has 7 columns: give (7,)"),
        ((1, 7), "bias has 2 dimensions (1, 7); give a vector"),
        ((0,), "bias is (0,); the product has 7 columns: give (7,)"),
    ],
)
def test_bias_of_another_shape_is_refused(case: Case, shape: tuple[int, ...], message: str) -> None:
    assert case.refused(*case.operands(5, 7, 3), bias=case.array(*shape)) == message


def test_bias_with_gaps_is_refused(case: Case) -> None:
    bias = Interface(case.matrix(14)[::2])
    message = case.refused(*case.operands(5, 7, 3), bias=bias)
    assert message == "bias has stride 2; copy it with .contiguous()"


def test_bias_on_another_device_is_refused(case: Case) -> None:
    message = case.refused(*case.operands(5, 7, 3), bias=case.array(7, ordinal=1))
    assert message == "A is on CUDA device 0, bias on 1; move one of them"


def test_bias_that_overlaps_out_is_refused(case: Case) -> None:
    a, b, out = case.operands(5, 7, 3)
    assert "overlaps bias at" in case.refused(a, b, out, bias=Interface(out.host[4]))


# Kernels of one problem.


def test_kernel_applies_its_activation(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3, epilogue="bias_relu"), 0)
    a, b, out = case.operands(5, 7, 3)
    bias = case.array(7)
    kernel(a, b, out, bias=bias)
    assert _close(out.host, np.maximum(a.host @ b.host + bias.host, 0))


@pytest.mark.parametrize(
    ("epilogue", "keywords"), [("bias_relu", {}), ("bias", {"activation": "gelu"})]
)
def test_kernel_refuses_another_epilogue(case: Case, epilogue: str, keywords: Any) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3, epilogue=epilogue), 0)
    with pytest.raises(ArrayError, match=f"this kernel is for 5x7x3:f32:nn:{epilogue}"):
        kernel(*case.operands(5, 7, 3), **keywords)


def test_kernel_accepts_a_single_matrix_for_its_batch(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3, batch=4), 0)
    a, b, out = case.array(4, 5, 3), case.array(3, 7), case.array(4, 5, 7)
    kernel(a, b, out)
    assert _close(out.host, a.host @ b.host)


def test_kernel_refuses_another_batch(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3, batch=4), 0)
    with pytest.raises(ArrayError, match=r"product 5x7x3:f32:nn:batch=2; this kernel is for .*=4"):
        kernel(case.array(2, 5, 3), case.array(3, 7), case.array(2, 5, 7))


def test_kernel_launches_on_addresses_of_a_batch(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3, batch=4, epilogue="bias"), 0)
    a, b, c, bias = (case.matrix(*shape) for shape in ((4, 5, 3), (3, 7), (4, 5, 8), (7,)))
    addresses = (operand.ctypes.data for operand in (a, b, c))
    kernel.launch(*addresses, ldc=8, stride_b=0, bias=bias.ctypes.data)
    assert _close(c[:, :, :7], a @ b + bias)
    assert case.cuda.launches[0].arguments[-3:] == (15, 0, 40)


@pytest.mark.parametrize(
    ("epilogue", "bias", "message"),
    [
        ("bias", 0, "bias is at 0x0; .* takes an address that is a multiple of 4"),
        ("bias", 0x102, "bias is at 0x102; .* takes an address that is a multiple of 4"),
        ("relu", 0x100, "bias is at 0x100; 5x7x3:f32:nn:relu takes none: 0"),
    ],
)
def test_kernel_refuses_a_missing_or_unexpected_bias(
    case: Case, epilogue: str, bias: int, message: str
) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3, epilogue=epilogue), 0)
    with pytest.raises(ArrayError, match=message):
        kernel.launch(0x100, 0x100, 0x100, bias=bias)


@pytest.mark.parametrize("strides", [{"stride_c": 34}, {"stride_c": 0}, {"stride_a": -15}])
def test_kernel_refuses_impossible_batch_strides(case: Case, strides: Any) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3, batch=4), 0)
    with pytest.raises(
        ArrayError, match=r"of A, B and C: none may be negative, and the 4 matrices"
    ):
        kernel.launch(0x100, 0x100, 0x100, **strides)
