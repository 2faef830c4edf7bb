"""Operands that matmul refuses, with the message, and operands it must accept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_frameworks import Interface
from support.runtime_case import Case

from autotune.errors import ArrayError
from autotune.runtime.arrays import MatrixMemory, overlap


def refused(case: Case, a: Any, b: Any, out: Any = None, beta: float = 0.0) -> str:
    """The message of the refusal, which is one line; asserts that nothing was launched."""
    with pytest.raises(ArrayError) as error:
        case.matmul(a, b, out, 1.0, beta)
    assert case.cuda.launches == []
    assert "\n" not in str(error.value)
    return str(error.value)


def test_mismatched_inner_sizes_are_refused(case: Case) -> None:
    message = refused(case, case.array(5, 3), case.array(4, 7), case.array(5, 7))
    assert message == "A (5, 3) times B (4, 7): the inner sizes 3 and 4 differ"


@pytest.mark.parametrize("name", ["A", "B", "out"])
def test_unsupported_type_is_refused(case: Case, name: str) -> None:
    operands: dict[str, Any] = dict(zip(("A", "B", "out"), case.operands(5, 7, 3), strict=True))
    double = operands[name].host.astype(np.float64)
    operands[name] = Interface(case.cuda.hold(double))
    others = "int32" if name == "out" else "int8"
    types = f"float32, float16, bfloat16, float8_e4m3fn, float8_e5m2 and {others}"
    expected = f"{name} is <f8; the kernels take {types}: convert it"
    assert refused(case, *operands.values()) == expected


@pytest.mark.parametrize("name", ["A", "B", "out"])
def test_numpy_arrays_are_refused(case: Case, name: str) -> None:
    operands: dict[str, Any] = dict(zip(("A", "B", "out"), case.operands(5, 7, 3), strict=True))
    operands[name] = operands[name].host
    message = refused(case, *operands.values())
    assert message.startswith(f"{name} is a numpy.ndarray, which is not on a CUDA device; give")


@pytest.mark.parametrize("name", ["A", "B", "out"])
def test_cpu_memory_is_refused(case: Case, name: str) -> None:
    operands: dict[str, Any] = dict(zip(("A", "B", "out"), case.operands(5, 7, 3), strict=True))
    operands[name] = Interface(operands[name].host.copy())
    message = refused(case, *operands.values())
    assert message == f"{name} is on the CPU; move it to a CUDA device"


def test_operands_on_two_devices_are_refused(case: Case) -> None:
    message = refused(case, case.array(5, 3), case.array(3, 7, ordinal=1), case.array(5, 7))
    assert message == "A is on CUDA device 0, B on 1; move one of them"


def test_out_on_another_device_is_refused(case: Case) -> None:
    message = refused(case, case.array(5, 3), case.array(3, 7), case.array(5, 7, ordinal=1))
    assert message == "A is on CUDA device 0, out on 1; move one of them"


@pytest.mark.parametrize("shape", [(), (3,)])
def test_other_numbers_of_dimensions_are_refused(case: Case, shape: tuple[int, ...]) -> None:
    a = Interface(case.cuda.hold(np.zeros(shape, np.float32)))
    message = refused(case, a, case.array(3, 3), case.array(3, 3))
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
    message = refused(case, Interface(host), case.array(3, 3), case.array(3, 3))
    assert message == (
        f"A of shape (3, 3) has strides {strides}; it must be row-major or transposed: "
        "copy it with .contiguous()"
    )


def test_strides_of_partial_elements_are_refused(case: Case) -> None:
    a = Interface(case.matrix(3, 3), strides=(14, 4))
    message = refused(case, a, case.array(3, 3), case.array(3, 3))
    assert (
        message == "A has strides of (14, 4) bytes, not multiples of its 4-byte elements: copy it"
    )


@pytest.mark.parametrize("name", ["A", "B", "out"])
def test_misaligned_address_is_refused(case: Case, name: str) -> None:
    operands: dict[str, Any] = dict(zip(("A", "B", "out"), case.operands(5, 7, 3), strict=True))
    address = operands[name].host.ctypes.data + 2
    operands[name] = Interface(operands[name].host, data=(address, False))
    expected = f"{name} is at {address:#x}, no multiple of its 4-byte elements: copy it"
    assert refused(case, *operands.values()) == expected


def test_out_of_another_shape_is_refused(case: Case) -> None:
    message = refused(case, case.array(5, 3), case.array(3, 7), case.array(7, 5))
    assert message == "out is (7, 5); the product is (5, 7)"


def test_transposed_out_is_refused(case: Case) -> None:
    out = Interface(case.matrix(7, 5).T)
    message = refused(case, case.array(5, 3), case.array(3, 7), out)
    assert message.startswith("out of shape (5, 7) has strides (1, 5); it must be row-major")


def test_read_only_out_is_refused(case: Case) -> None:
    host = case.matrix(5, 7)
    out = Interface(host, data=(host.ctypes.data, True))
    message = refused(case, case.array(5, 3), case.array(3, 7), out)
    assert message == "out is read-only; give a writable array"


def test_masked_array_is_refused(case: Case) -> None:
    a = Interface(case.matrix(5, 3), mask=object())
    assert refused(case, a, case.array(3, 7), case.array(5, 7)).startswith("A has a mask")


def test_beta_without_out_is_refused(case: Case) -> None:
    message = refused(case, case.array(5, 3), case.array(3, 7), beta=0.5)
    assert message == "beta is 0.5 but there is no out to scale; give out="


def test_missing_out_without_an_allocator_is_refused(case: Case) -> None:
    message = refused(case, case.array(5, 3), case.array(3, 7))
    assert message == "Interface cannot be allocated here; give out=(5, 7)"


@pytest.mark.parametrize("name", ["A", "B"])
def test_out_that_is_an_input_is_refused(case: Case, name: str) -> None:
    a, b = case.array(3, 3), case.array(3, 3)
    message = refused(case, a, b, a if name == "A" else b)
    assert f"overlaps {name} at" in message


def test_out_that_starts_inside_an_input_is_refused(case: Case) -> None:
    memory = case.matrix(5, 3)
    a, out = Interface(memory[:3]), Interface(memory[2:])
    assert "overlaps A at" in refused(case, a, case.array(3, 3), out)


def test_warm_call_detects_overlap(case: Case) -> None:
    a, b, out = case.operands(4, 4, 4)
    case.matmul(a, b, out)
    case.cuda.launches.clear()
    assert "overlaps B at" in refused(case, a, b, b)


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
