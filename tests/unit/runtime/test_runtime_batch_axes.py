"""Batches of several axes, on the fake GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.fake_frameworks import FakeTorch, Interface
from support.runtime_case import TYPED, Case

from autotune.errors import ArrayError
from autotune.problem import Problem
from autotune.runtime import Kernel


@pytest.mark.parametrize(
    ("shapes", "batch", "launches"),
    [
        (((2, 4, 5, 3), (2, 4, 3, 7)), 8, 1),
        (((2, 4, 5, 3), (3, 7)), 8, 1),
        (((5, 3), (2, 4, 3, 7)), 8, 1),
        (((2, 4, 5, 3), (4, 3, 7)), 4, 2),
        (((2, 1, 5, 3), (1, 4, 3, 7)), 4, 2),
        (((3, 2, 4, 5, 3), (3, 1, 1, 3, 7)), 8, 3),
        (((3, 1, 2, 5, 3), (3, 4, 1, 3, 7)), 4, 6),
        (((1, 1, 5, 3), (3, 7)), 1, 1),
        (((1, 2, 5, 3), (2, 3, 7)), 2, 1),
    ],
    ids=str,
)
def test_batch_axes_multiply_as_in_numpy(
    case: Case, shapes: Any, batch: int, launches: int
) -> None:
    a, b = (case.array(*shape) for shape in shapes)
    expected = a.host @ b.host
    out = case.array(*expected.shape)
    for _ in range(2):
        out.host[:] = np.nan
        assert case.matmul(a, b, out) is out
        assert np.allclose(out.host, expected, atol=1e-5)
    assert case.looked_up == [Problem(5, 7, 3, batch=batch)]
    assert len(case.cuda.launches) == 2 * launches


def test_result_is_allocated_with_all_batch_axes(case: Case, torch: FakeTorch) -> None:
    shapes = (2, 1, 5, 3), (4, 3, 7)
    a, b = (torch.on("cuda:0", case.matrix(*shape)) for shape in shapes)
    out: Any = case.matmul(a, b)
    assert np.allclose(out.host, a.host @ b.host, atol=1e-5)


def test_heads_of_attention_need_no_copy(case: Case) -> None:
    q, k = (case.matrix(2, 5, 4, 3).swapaxes(1, 2) for _ in range(2))
    out = case.array(2, 4, 5, 5)
    case.matmul(Interface(q), Interface(k.swapaxes(2, 3)), out)
    assert np.allclose(out.host, q @ k.swapaxes(2, 3), atol=1e-5)
    assert case.looked_up == [Problem(5, 5, 3, layout="nt", batch=4)]
    assert len(case.cuda.launches) == 2


def test_output_may_have_gaps_between_batches(case: Case) -> None:
    a, b, out = case.array(2, 3, 5, 4), case.array(4, 7), case.matrix(2, 3, 6, 8)
    expected = out.copy()
    expected[:, :, 1:, 1:] = a.host @ b.host
    case.matmul(a, b, Interface(out[:, :, 1:, 1:]))
    assert np.allclose(out, expected, atol=1e-5)


def test_bias_serves_every_launch(case: Case) -> None:
    a, b, bias = case.array(2, 4, 5, 3), case.array(4, 3, 7), case.array(7)
    out = case.array(2, 4, 5, 7)
    case.matmul(a, b, out, bias=bias, activation="relu")
    assert np.allclose(out.host, np.maximum(a.host @ b.host + bias.host, 0), atol=1e-5)


def test_plan_respects_the_offsets_of_launches(case: Case) -> None:
    for gap in (4, 1):
        a = case.matrix(2, 4 * 5 * 4 + gap)[:, :80].reshape(2, 4, 5, 4)
        case.matmul(Interface(a), case.array(4, 4, 4), case.array(2, 4, 5, 4))
    assert [alignment.a for alignment in case.alignments] == [4, 1]


def test_output_of_overlapping_batches_is_refused(case: Case) -> None:
    out = np.broadcast_to(case.matrix(1, 4, 5, 7), (2, 4, 5, 7))
    with pytest.raises(ArrayError, match="so that its matrices overlap"):
        case.matmul(case.array(2, 4, 5, 3), case.array(4, 3, 7), Interface(out))


def test_output_that_overlaps_a_later_launch_is_refused(case: Case) -> None:
    memory = case.matrix(2, 4, 5, 7)
    a = Interface(memory[1:, :1, :, :3])
    with pytest.raises(ArrayError, match=r"out at .* overlaps A"):
        case.matmul(a, case.array(2, 4, 3, 7), Interface(memory))


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((2, 4, 5, 3), (3, 3, 7), (2, 4, 5, 7)), "the batches (2, 4) and (3) differ"),
        (((2, 4, 5, 3), (4, 3, 7), (8, 5, 7)), "out is (8, 5, 7); the product is (2, 4, 5, 7)"),
    ],
    ids=str,
)
def test_batch_axes_must_fit(case: Case, shapes: Any, message: str) -> None:
    a, b, out = (case.array(*shape) for shape in shapes)
    with pytest.raises(ArrayError) as error:
        case.matmul(a, b, out)
    assert str(error.value).endswith(message)


def test_batch_axis_backwards_is_refused(case: Case) -> None:
    a = Interface(case.matrix(2, 4, 5, 3)[::-1])
    with pytest.raises(ArrayError, match="copy it with"):
        case.matmul(a, case.array(4, 3, 7), case.array(2, 4, 5, 7))


def test_scales_of_rows_take_one_batch_axis(case: Case, torch: FakeTorch) -> None:
    case.config = TYPED
    shapes = (2, 4, 5, 3), (2, 4, 3, 7)
    a, b = (torch.on("cuda:0", case.matrix(*shape, dtype="int8")) for shape in shapes)
    one = torch.on("cuda:0", np.full(1, 2, np.float32))
    case.cuda.hold(one.host)
    out: Any = case.matmul(a, b, scale_a=one, scale_b=one)
    assert out.shape == (2, 4, 5, 7)
    rows, columns = (torch.on("cuda:0", case.matrix(8, size)) for size in (5, 7))
    with pytest.raises(ArrayError, match="scale is row, and A and B have 2 batch axes"):
        case.matmul(a, b, scale_a=rows, scale_b=columns)


def test_kernel_of_a_batch_takes_several_axes(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3, batch=8), 0)
    a, b, out = case.array(2, 4, 5, 3), case.array(2, 4, 3, 7), case.array(2, 4, 5, 7)
    kernel(a, b, out)
    assert np.allclose(out.host, a.host @ b.host, atol=1e-5)


def test_vendor_multiplies_several_batch_axes(case: Case, torch: FakeTorch) -> None:
    case.vendor = True
    shapes = (2, 1, 5, 3), (4, 3, 7)
    a, b = (torch.on("cuda:0", case.matrix(*shape)) for shape in shapes)
    out: Any = case.matmul(a, b)
    assert np.allclose(out.host, a.host @ b.host, atol=1e-5)
    assert [name for name, _ in torch.products] == ["bmm"]


def test_vendor_copies_no_output(case: Case, torch: FakeTorch) -> None:
    case.vendor = True
    shapes = (2, 4, 5, 3), (2, 4, 3, 7)
    a, b = (torch.on("cuda:0", case.matrix(*shape)) for shape in shapes)
    out = torch.on("cuda:0", case.matrix(2, 5, 4, 7).swapaxes(1, 2))
    case.matmul(a, b, out)
    assert np.allclose(out.host, a.host @ b.host, atol=1e-5)
    assert torch.products == []
