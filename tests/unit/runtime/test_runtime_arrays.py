"""Operands that matmul refuses or accepts, and batches of several axes, on the fake GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_frameworks import FakeTorch, Interface
from support.runtime_case import TYPED, Case

from autotune.errors import ArrayError
from autotune.problem import Problem
from autotune.runtime import Kernel
from autotune.runtime.arrays import MatrixMemory, overlap


def named(case: Case) -> dict[str, Any]:
    """A, B and out, by their names in messages."""
    return dict(zip(("A", "B", "out"), case.operands(5, 7, 3), strict=True))


def test_mismatched_inner_sizes_are_refused(case: Case) -> None:
    message = case.refused(case.array(5, 3), case.array(4, 7), case.array(5, 7))
    assert message == "A (5, 3) times B (4, 7): the inner sizes 3 and 4 differ"


@pytest.mark.parametrize("name", ["A", "B", "out"])
def test_unsupported_type_is_refused(case: Case, name: str) -> None:
    operands = named(case)
    double = operands[name].host.astype(np.float64)
    operands[name] = Interface(case.cuda.hold(double))
    others = "int32" if name == "out" else "int8"
    types = f"float32, float16, bfloat16, float8_e4m3fn, float8_e5m2 and {others}"
    expected = f"{name} is <f8; the kernels take {types}: convert it"
    assert case.refused(*operands.values()) == expected


@pytest.mark.parametrize("name", ["A", "B", "out"])
def test_numpy_arrays_are_refused(case: Case, name: str) -> None:
    operands = named(case)
    operands[name] = operands[name].host
    message = case.refused(*operands.values())
    assert message.startswith(f"{name} is a numpy.ndarray, which is not on a CUDA device; give")


@pytest.mark.parametrize("name", ["A", "B", "out"])
def test_cpu_memory_is_refused(case: Case, name: str) -> None:
    operands = named(case)
    operands[name] = Interface(operands[name].host.copy())
    message = case.refused(*operands.values())
    assert message == f"{name} is on the CPU; move it to a CUDA device"


@pytest.mark.parametrize("name", ["B", "out"])
def test_operands_on_two_devices_are_refused(case: Case, name: str) -> None:
    operands = named(case)
    operands[name] = case.array(*operands[name].host.shape, ordinal=1)
    message = case.refused(*operands.values())
    assert message == f"A is on CUDA device 0, {name} on 1; move one of them"


@pytest.mark.parametrize("shape", [(), (3,)])
def test_other_numbers_of_dimensions_are_refused(case: Case, shape: tuple[int, ...]) -> None:
    a = Interface(case.cuda.hold(np.zeros(shape, np.float32)))
    message = case.refused(a, case.array(3, 3), case.array(3, 3))
    assert message == f"A has {len(shape)} dimensions {shape}; give a matrix or a batch of them"


@pytest.mark.parametrize(
    "view",
    [
        pytest.param(lambda x: x[:3, :6:2], id="every second column"),
        pytest.param(lambda x: x[:3, 2::-1], id="columns backwards"),
        pytest.param(lambda x: x[2::-1, :3], id="rows backwards"),
        pytest.param(lambda x: np.broadcast_to(x[0, :3], (3, 3)), id="one row repeated"),
        pytest.param(lambda x: x[::2, ::2][:3, :3].T, id="a transposed view with gaps"),
    ],
)
def test_strides_that_no_kernel_reads_are_refused(case: Case, view: Any) -> None:
    host = view(case.matrix(6, 6))
    strides = tuple(stride // 4 for stride in host.strides)
    message = case.refused(Interface(host), case.array(3, 3), case.array(3, 3))
    assert message == (
        f"A of shape (3, 3) has strides {strides}; it must be row-major or transposed: "
        "copy it with .contiguous()"
    )


def test_strides_of_partial_elements_are_refused(case: Case) -> None:
    a = Interface(case.matrix(3, 3), strides=(14, 4))
    message = case.refused(a, case.array(3, 3), case.array(3, 3))
    assert (
        message == "A has strides of (14, 4) bytes, not multiples of its 4-byte elements: copy it"
    )


@pytest.mark.parametrize("name", ["A", "B", "out"])
def test_misaligned_address_is_refused(case: Case, name: str) -> None:
    operands = named(case)
    address = operands[name].host.ctypes.data + 2
    operands[name] = Interface(operands[name].host, data=(address, False))
    expected = f"{name} is at {address:#x}, no multiple of its 4-byte elements: copy it"
    assert case.refused(*operands.values()) == expected


def test_out_of_another_shape_is_refused(case: Case) -> None:
    message = case.refused(case.array(5, 3), case.array(3, 7), case.array(7, 5))
    assert message == "out is (7, 5); the product is (5, 7)"


def test_transposed_out_is_refused(case: Case) -> None:
    out = Interface(case.matrix(7, 5).T)
    message = case.refused(case.array(5, 3), case.array(3, 7), out)
    assert message.startswith("out of shape (5, 7) has strides (1, 5); it must be row-major")


def test_read_only_out_is_refused(case: Case) -> None:
    host = case.matrix(5, 7)
    out = Interface(host, data=(host.ctypes.data, True))
    message = case.refused(case.array(5, 3), case.array(3, 7), out)
    assert message == "out is read-only; give a writable array"


def test_masked_array_is_refused(case: Case) -> None:
    a = Interface(case.matrix(5, 3), mask=object())
    assert case.refused(a, case.array(3, 7), case.array(5, 7)).startswith("A has a mask")


def test_beta_without_out_is_refused(case: Case) -> None:
    message = case.refused(case.array(5, 3), case.array(3, 7), beta=0.5)
    assert message == "beta is 0.5 but there is no out to scale; give out="


def test_missing_out_without_an_allocator_is_refused(case: Case) -> None:
    message = case.refused(case.array(5, 3), case.array(3, 7))
    assert message == "Interface cannot be allocated here; give out=(5, 7)"


@pytest.mark.parametrize("name", ["A", "B"])
def test_out_that_is_an_input_is_refused(case: Case, name: str) -> None:
    a, b = case.array(3, 3), case.array(3, 3)
    message = case.refused(a, b, a if name == "A" else b)
    assert f"overlaps {name} at" in message


def test_out_that_starts_inside_an_input_is_refused(case: Case) -> None:
    memory = case.matrix(5, 3)
    a, out = Interface(memory[:3]), Interface(memory[2:])
    assert "overlaps A at" in case.refused(a, case.array(3, 3), out)


def test_warm_call_detects_overlap(case: Case) -> None:
    a, b, out = case.operands(4, 4, 4)
    case.matmul(a, b, out)
    case.cuda.launches.clear()
    assert "overlaps B at" in case.refused(a, b, b)


def test_out_may_be_other_columns_of_the_input_memory(case: Case) -> None:
    memory = case.matrix(3, 8)
    a, b, out = memory[:, :3], case.array(3, 4), memory[:, 4:]
    case.matmul(Interface(a), b, Interface(out))
    assert np.allclose(out, a @ b.host, atol=1e-5)


memories = st.builds(
    lambda rows, columns, gap, *rest: MatrixMemory(rows, columns, columns + gap, *rest),
    st.integers(1, 5), st.integers(1, 5), st.integers(0, 6), st.integers(1, 3), st.integers(1, 40),
    st.sampled_from((2, 4)),
)  # fmt: skip


def occupied(address: int, memory: MatrixMemory) -> list[int]:
    """The addresses of every byte of every element."""
    return [
        address + size * (matrix * memory.stride + row * memory.leading + column) + byte
        for size in (memory.element_bytes,)
        for matrix in range(memory.count)
        for row in range(memory.rows)
        for column in range(memory.columns)
        for byte in range(size)
    ]


@given(st.integers(0, 120), memories, st.integers(0, 120), memories)
def test_overlap_is_never_missed(
    start: int, matrix: MatrixMemory, second_start: int, second: MatrixMemory
) -> None:
    shared = {*occupied(2 * start, matrix)} & {*occupied(2 * second_start, second)}
    assert overlap(2 * start, matrix, 2 * second_start, second) or not shared


@given(memories)
def test_extent_ends_behind_the_last_element(memory: MatrixMemory) -> None:
    assert memory.extent == max(occupied(0, memory)) + 1


@given(memories)
def test_matrices_that_share_an_element_are_not_disjoint(memory: MatrixMemory) -> None:
    shared = occupied(0, memory)
    assert not memory.disjoint or len(set(shared)) == len(shared)


@pytest.mark.parametrize(
    "memory",
    [
        pytest.param(MatrixMemory(5, 7, 8, 3, 39), id="one behind the other"),
        pytest.param(MatrixMemory(5, 7, 24, 3, 8), id="rows that take turns"),
    ],
)
def test_adjacent_matrices_are_disjoint(memory: MatrixMemory) -> None:
    assert memory.disjoint


@given(*[st.integers(1, 4)] * 4, st.sampled_from((2, 4)))
def test_adjacent_columns_do_not_overlap(
    rows: int, left: int, right: int, gap: int, size: int
) -> None:
    leading = left + right + gap
    first, second = (
        MatrixMemory(rows, columns, leading, element_bytes=size) for columns in (left, right)
    )
    assert not overlap(0, first, size * left, second)


@pytest.mark.parametrize(
    ("shapes", "batch", "launches"),
    [
        (((4, 5, 3), (4, 3, 7)), 4, 1),
        (((4, 5, 3), (3, 7)), 4, 1),
        (((5, 3), (4, 3, 7)), 4, 1),
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


@pytest.mark.parametrize("shapes", [((4, 5, 3), (3, 7)), ((2, 1, 5, 3), (4, 3, 7))], ids=str)
def test_result_is_allocated_with_all_batch_axes(case: Case, torch: FakeTorch, shapes: Any) -> None:
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
        (((4, 5, 3), (2, 3, 7), (4, 5, 7)), "the batches 4 and 2 differ"),
        (((4, 5, 3), (3, 7), (5, 7)), "out is (5, 7); the product is (4, 5, 7)"),
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
