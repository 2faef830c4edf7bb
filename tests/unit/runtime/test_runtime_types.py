"""matmul of operands of each type and precision, on the fake GPU."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest
from support.fake_frameworks import (
    CuPyArray,
    FakeCuPy,
    FakePyCuda,
    FakeTorch,
    GPUArray,
    Interface,
    Tensor,
)
from support.numpy_types import decoded, name_of
from support.runtime_case import TYPED, Case

import autotune
from autotune import runtime
from autotune.api.matmul import matmul as public_matmul
from autotune.errors import ArrayError, ProblemError
from autotune.problem import Problem
from autotune.runtime import CallOptions, Kernel

# About two units in the last place of a sum of three products.
ROUNDING = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
COMPUTES = {"float32": "f32", "float16": "f16", "bfloat16": "bf16"}
HALVES = ["float16", "bfloat16"]


@pytest.fixture
def case() -> Case:
    return Case(config=TYPED)


def _close(result: Any, expected: Any) -> bool:
    rounding = ROUNDING[name_of(result)]
    return np.allclose(decoded(result), expected, rtol=rounding, atol=rounding)


def _tensors(case: Case, torch: FakeTorch, *dtypes: str) -> list[Tensor]:
    """A (5 x 3), B (3 x 7), C (5 x 7) and a bias; as many of them as there are types."""
    shapes = (5, 3), (3, 7), (5, 7), (7,)
    return [
        torch.on("cuda:0", case.matrix(*shape, dtype=dtype))
        for shape, dtype in zip(shapes, dtypes, strict=False)
    ]


def _product(a: Any, b: Any) -> Any:
    return decoded(a.host) @ decoded(b.host)


# Results.


@pytest.mark.parametrize("dtype", COMPUTES)
def test_operand_type_decides_the_precision(case: Case, torch: FakeTorch, dtype: str) -> None:
    a, b, out = _tensors(case, torch, dtype, dtype, dtype)
    case.matmul(a, b, out)
    assert case.looked_up == [Problem(5, 7, 3, COMPUTES[dtype])]
    assert _close(out.host, _product(a, b))


@pytest.mark.parametrize("dtype", COMPUTES)
def test_allocated_output_has_the_type_of_the_operands(
    case: Case, torch: FakeTorch, dtype: str
) -> None:
    a, b = _tensors(case, torch, dtype, dtype)
    out: Any = case.matmul(a, b)
    assert out.dtype == a.dtype
    assert _close(out.host, _product(a, b))


@pytest.mark.parametrize("dtype", HALVES)
def test_fp32_output_is_not_rounded(case: Case, torch: FakeTorch, dtype: str) -> None:
    a, b, out, bias = _tensors(case, torch, dtype, dtype, "float32", "float32")
    before = out.host.copy()
    case.matmul(a, b, out, 2.0, 0.5, bias)
    assert _close(out.host, 2 * _product(a, b) + 0.5 * before + bias.host)
    assert case.looked_up == [Problem(5, 7, 3, COMPUTES[dtype], epilogue="bias", output="f32")]


@pytest.mark.parametrize("dtype", HALVES)
def test_bias_has_the_type_of_the_output(case: Case, torch: FakeTorch, dtype: str) -> None:
    a, b, out, bias = _tensors(case, torch, *[dtype] * 4)
    case.matmul(a, b, out, bias=bias)
    assert _close(out.host, _product(a, b) + decoded(bias.host))


def test_batch_of_fp16_matrices_is_correct(case: Case) -> None:
    shapes = (4, 5, 3), (3, 7), (4, 5, 7)
    a, b, out = (case.array(*shape, dtype="float16") for shape in shapes)
    case.matmul(a, b, out)
    assert _close(out.host, _product(a, b))


@pytest.mark.parametrize("compute", ["tf32", "tf32x3"])
def test_fp32_operands_accept_tf32_computes(case: Case, compute: str) -> None:
    a, b, out = case.operands(5, 7, 3)
    case.matmul(a, b, out)
    case.matmul(a, b, out, compute=compute)
    assert case.looked_up == [Problem(5, 7, 3), Problem(5, 7, 3, compute)]


@pytest.mark.parametrize("compute", [np.float32, np.dtype("float32"), "float32", "torch.float32"])
def test_compute_may_be_a_dtype(case: Case, compute: Any) -> None:
    a, b, out = case.operands(5, 7, 3)
    case.matmul(a, b, out, compute=compute)
    case.matmul(a, b, out, compute=compute)
    assert case.looked_up == [Problem(5, 7, 3)]


def test_plan_expects_16_byte_vectors_of_each_operand(case: Case, torch: FakeTorch) -> None:
    a, b = (torch.on("cuda:0", case.matrix(8, 8, dtype="float16")) for _ in "ab")
    memory = case.cuda.hold(np.empty(80, np.float32))
    first = -memory.ctypes.data // 4 % 4
    out = torch.on("cuda:0", memory[first : first + 64].reshape(8, 8))
    case.matmul(a, b, out)
    alignment = case.alignments[0]
    most = (min(8, (operand.data_ptr() & -operand.data_ptr()) // 2) for operand in (a, b))
    assert (alignment.a, alignment.b, alignment.c) == (*most, 4)


def test_tuner_gets_the_precision_and_the_output(case: Case, torch: FakeTorch) -> None:
    case.how = "nearest"
    tuned: list[Problem] = []
    a, b, out = _tensors(case, torch, "float16", "float16", "float32")
    case.matmul.tune(a, b, lambda problem, _: tuned.append(problem), out=out)
    a, b, out = _tensors(case, torch, *["float32"] * 3)
    case.matmul.tune(
        a, b, lambda problem, _: tuned.append(problem), CallOptions(compute="tf32"), out=out
    )
    assert tuned == [Problem(5, 7, 3, "f16", output="f32"), Problem(5, 7, 3, "tf32")]


# The public functions.


@pytest.fixture
def matmul(case: Case, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`autotune.matmul`, on the GPU of the case."""
    monkeypatch.setattr(runtime, "current", lambda: case.matmul)
    return public_matmul


@pytest.mark.parametrize("keywords", [{}, {"compute": "f32"}, {"compute": "tf32x3"}])
def test_near_accuracy_is_tf32x3(case: Case, matmul: Any, keywords: Any) -> None:
    matmul(*case.operands(5, 7, 3), accuracy="near", **keywords)
    assert case.looked_up == [Problem(5, 7, 3, "tf32x3")]


def test_near_accuracy_of_fp16_is_refused(case: Case, matmul: Any) -> None:
    operands = (case.array(*shape, dtype="float16") for shape in ((5, 3), (3, 7), (5, 7)))
    with pytest.raises(ArrayError, match="A and B are float16; tf32x3 multiplies float32: convert"):
        matmul(*operands, accuracy="near")


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"accuracy": "close"}, "unknown accuracy 'close'; give one of exact, near"),
        ({"accuracy": "near", "compute": "tf32"}, "accuracy near is for compute f32, not tf32"),
        ({"compute": "f64"}, "unknown compute 'f64'; give one of f32, tf32, tf32x3, f16, bf16"),
    ],
)
def test_unknown_precisions_are_refused(
    case: Case, matmul: Any, keywords: Any, message: str
) -> None:
    with pytest.raises(ProblemError, match=message):
        matmul(*case.operands(5, 7, 3), **keywords)


@pytest.mark.usefixtures("matmul")
def test_kernel_function_takes_a_precision() -> None:
    assert autotune.kernel(5, 7, 3, accuracy="near").problem == Problem(5, 7, 3, "tf32x3")
    halves = autotune.kernel(5, 7, 3, compute="bf16", output="f32").problem
    assert halves == Problem(5, 7, 3, "bf16", output="f32")


# Refused operands.


@pytest.mark.parametrize(
    ("dtypes", "message"),
    [
        (("float16", "float32"), "A is float16, B float32; convert one of them"),
        (("float16", "bfloat16"), "A is float16, B bfloat16; convert one of them"),
        (
            ("float16", "float16", "bfloat16"),
            "out is bfloat16; a product of float16 is float16 or float32",
        ),
        (("float32", "float32", "float16"), "out is float16; a product of float32 is float32"),
        (
            ("float16", "float16", "float32", "float16"),
            "bias is float16, out float32; convert the bias",
        ),
        (
            ("bfloat16", "bfloat16", "bfloat16", "float32"),
            "bias is float32, out bfloat16; convert the bias",
        ),
    ],
)
def test_mixed_types_are_refused(case: Case, torch: FakeTorch, dtypes: Any, message: str) -> None:
    a, b, *rest = _tensors(case, torch, *dtypes)
    out, bias = (*rest, None, None)[:2]
    assert case.refused(a, b, out, bias=bias) == message


def test_compute_of_another_type_is_refused(case: Case, torch: FakeTorch) -> None:
    a, b = _tensors(case, torch, "bfloat16", "bfloat16")
    message = "A and B are bfloat16; tf32 multiplies float32: convert them or give compute='bf16'"
    assert case.refused(a, b, compute="tf32") == message


def test_overlap_counts_elements_of_different_sizes(case: Case, torch: FakeTorch) -> None:
    memory, halves = case.matrix(64), case.matrix(8, 8, dtype="float16")
    a, b = (torch.on("cuda:0", half) for half in (_halves(memory[:16]).reshape(4, 8), halves))
    case.matmul(a, b, torch.on("cuda:0", memory[16:48].reshape(4, 8)))
    case.cuda.launches.clear()
    message = case.refused(a, b, torch.on("cuda:0", memory[12:44].reshape(4, 8)))
    assert "overlaps A at" in message


def _halves(memory: Any) -> Any:
    return memory.view(np.float16)


# Array libraries.


@pytest.mark.parametrize("dtype", HALVES)
def test_cupy_allocates_the_type_of_the_operands(
    case: Case, monkeypatch: pytest.MonkeyPatch, dtype: str
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", FakeCuPy(case.cuda))
    a, b = (CuPyArray(case.matrix(*shape, dtype=dtype)) for shape in ((5, 3), (3, 7)))
    out: Any = case.matmul(a, b)
    assert out.dtype == a.dtype
    assert _close(out.host, _product(a, b))


@pytest.fixture
def pycuda(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pycuda.gpuarray", FakePyCuda(case.cuda))


@pytest.mark.usefixtures("pycuda")
def test_pycuda_allocates_fp16(case: Case) -> None:
    a, b = (GPUArray(case.matrix(*shape, dtype="float16")) for shape in ((5, 3), (3, 7)))
    out: Any = case.matmul(a, b)
    assert out.dtype == np.float16
    assert _close(out.host, _product(a, b))


def test_array_interface_cannot_express_bfloat16(case: Case) -> None:
    # The typestr of ml_dtypes' bfloat16, which only says that elements have two bytes.
    a = Interface(case.matrix(3, 3, dtype="bfloat16"), typestr="<V2")
    message = case.refused(a, case.array(3, 3), case.array(3, 3))
    assert message.startswith("A is <V2; the kernels take float32, float16, bfloat16, float8_")


# Kernels of one problem.


@pytest.mark.parametrize("output", ["same", "f32"])
@pytest.mark.parametrize("dtype", HALVES)
def test_kernel_allocates_its_output(case: Case, torch: FakeTorch, dtype: str, output: str) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3, COMPUTES[dtype], output=output), 0)
    a, b = _tensors(case, torch, dtype, dtype)
    out: Any = kernel(a, b)
    assert name_of(out.host) == ("float32" if output == "f32" else dtype)
    assert _close(out.host, _product(a, b))


@pytest.mark.parametrize(
    ("problem", "dtypes", "message"),
    [
        (
            Problem(5, 7, 3, "f16"),
            ("float16", "float16", "float32"),
            "make a product 5x7x3:f16:nn:out=f32; this kernel is for 5x7x3:f16:nn",
        ),
        (
            Problem(5, 7, 3, "tf32"),
            ("float16", "float16", "float16"),
            "A and B are float16; tf32 multiplies float32",
        ),
    ],
)
def test_kernel_refuses_other_types(
    case: Case, torch: FakeTorch, problem: Problem, dtypes: Any, message: str
) -> None:
    kernel = Kernel(case.runtime, problem, 0)
    a, b, out = _tensors(case, torch, *dtypes)
    with pytest.raises(ArrayError, match=message):
        kernel(a, b, out)


def test_kernel_refuses_another_precision(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3, "tf32"), 0)
    with pytest.raises(ArrayError, match="product 5x7x3:tf32x3:nn; this kernel is for 5x7x3:tf32"):
        kernel(*case.operands(5, 7, 3), compute="tf32x3")


def test_kernel_launches_on_addresses_of_fp16_matrices(case: Case) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3, "f16", epilogue="bias", output="f32"), 0)
    a, b = case.matrix(5, 10, dtype="float16"), case.matrix(3, 7, dtype="float16")
    c, bias = case.matrix(5, 8), case.matrix(7)
    addresses = [operand.ctypes.data for operand in (a, b, c)]
    kernel.launch(*addresses, lda=10, ldc=8, bias=bias.ctypes.data)
    assert np.allclose(c[:, :7], decoded(a[:, :3]) @ decoded(b) + bias, atol=1e-5)


@pytest.mark.parametrize(
    ("addresses", "bias", "message"),
    [
        ((0x101, 0x100, 0x100), 0x100, r"A at 0x101 .* an address that is a multiple of 2"),
        ((0x102, 0x102, 0x102), 0x100, r"C at 0x102 .* an address that is a multiple of 4"),
        ((0x102, 0x102, 0x104), 0x102, r"bias is at 0x102; .* that is a multiple of 4"),
    ],
)
def test_kernel_refuses_misaligned_addresses(
    case: Case, addresses: tuple[int, int, int], bias: int, message: str
) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3, "bf16", epilogue="bias", output="f32"), 0)
    with pytest.raises(ArrayError, match=message):
        kernel.launch(*addresses, bias=bias)
