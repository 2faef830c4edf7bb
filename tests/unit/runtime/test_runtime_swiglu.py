"""matmul with SwiGLU, on the fake GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.fake_frameworks import FakeTorch, Tensor
from support.numpy_types import decoded
from support.runtime_case import TYPED, Case

from autotune.errors import ArrayError
from autotune.measure.oracle import activated, gates
from autotune.problem import Problem
from autotune.runtime import Kernel
from autotune.settings import Policy

BF16, E4M3 = "bfloat16", "float8_e4m3fn"


@pytest.fixture
def case() -> Case:
    return Case(config=TYPED)


def tensors(
    case: Case, torch: FakeTorch, *shapes: tuple[int, ...], dtype: str = BF16
) -> list[Tensor]:
    return [torch.on("cuda:0", case.matrix(*shape, dtype=dtype)) for shape in shapes]


def gated(a: Any, b: Any) -> Any:
    gate, up = gates(np.asarray(decoded(a.host) @ decoded(b.host), np.float64))
    return activated(gate, "silu") * up


def close(result: Any, expected: Any) -> bool:
    return np.allclose(decoded(result), expected, rtol=1.6e-2, atol=1.6e-2)


@pytest.mark.parametrize("dtype", [BF16, E4M3])
def test_result_has_half_the_columns(case: Case, torch: FakeTorch, dtype: str) -> None:
    a, b = tensors(case, torch, (5, 3), (3, 32), dtype=dtype)
    out: Any = case.matmul(a, b, activation="swiglu")
    assert (out.shape, str(out.dtype)) == ((5, 16), "torch.bfloat16")
    assert close(out.host, gated(a, b))
    assert [problem.epilogue for problem in case.looked_up] == ["swiglu"]


def test_product_without_it_has_all_columns(case: Case, torch: FakeTorch) -> None:
    a, b = tensors(case, torch, (5, 3), (3, 32))
    for activation, columns in (("swiglu", 16), (None, 32), ("swiglu", 16), ("silu", 32)):
        out: Any = case.matmul(a, b, activation=activation)
        assert tuple(out.shape) == (5, columns)


@pytest.mark.parametrize("batch", [(2,), (2, 3)])
def test_batches_have_half_the_columns(
    case: Case, torch: FakeTorch, batch: tuple[int, ...]
) -> None:
    a, b = tensors(case, torch, (*batch, 5, 3), (*batch, 3, 32))
    out: Any = case.matmul(a, b, activation="swiglu")
    assert tuple(out.shape) == (*batch, 5, 16)
    assert close(out.host, gated(a, b))


def test_rows_of_out_may_have_gaps(case: Case, torch: FakeTorch) -> None:
    a, b, whole = tensors(case, torch, (5, 3), (3, 32), (5, 24))
    before = decoded(whole.host).copy()
    out = torch.on("cuda:0", whole.host[:, :16])
    case.matmul(a, b, out, activation="swiglu")
    assert close(out.host, gated(a, b))
    np.testing.assert_array_equal(decoded(whole.host)[:, 16:], before[:, 16:])


def test_result_may_be_empty(case: Case, torch: FakeTorch) -> None:
    a, b = tensors(case, torch, (5, 3), (3, 0))
    out: Any = case.matmul(a, b, activation="swiglu")
    assert tuple(out.shape) == (5, 0)


@pytest.mark.parametrize(
    ("shape", "keywords", "message"),
    [
        ((3, 24), {}, "epilogue swiglu takes 8 columns of gates and 8 of their values; N is"),
        ((3, 32), {"alpha": 2.0}, "alpha is 2.0, beta 0.0; swiglu takes alpha=1 and beta=0"),
    ],
)
def test_what_it_does_not_take_is_refused(
    case: Case, torch: FakeTorch, shape: tuple[int, ...], keywords: Any, message: str
) -> None:
    a, b = tensors(case, torch, (5, 3), shape)
    assert case.refused(a, b, **keywords, activation="swiglu").startswith(message)


def test_out_as_wide_as_b_is_refused(case: Case, torch: FakeTorch) -> None:
    a, b, out = tensors(case, torch, (5, 3), (3, 32), (5, 32))
    assert case.refused(a, b, out, activation="swiglu") == "out is (5, 32); the product is (5, 16)"


def test_bias_and_beta_are_refused(case: Case, torch: FakeTorch) -> None:
    a, b, out, bias = tensors(case, torch, (5, 3), (3, 32), (5, 16), (32,))
    assert (
        case.refused(a, b, out, bias=bias, activation="swiglu")
        == "swiglu comes without a bias; leave one out"
    )
    assert case.refused(a, b, out, beta=1.0, activation="swiglu").startswith(
        "alpha is 1.0, beta 1.0; swiglu takes"
    )


def test_32_bit_operands_are_refused(case: Case, torch: FakeTorch) -> None:
    a, b = tensors(case, torch, (5, 3), (3, 32), dtype="float32")
    message = "epilogue swiglu is for compute f16, bf16, f8, f8e5, i8, not f32; leave one out"
    assert case.refused(a, b, activation="swiglu") == message


def test_kernel_of_a_problem_has_half_the_columns(case: Case, torch: FakeTorch) -> None:
    a, b, out = tensors(case, torch, (5, 3), (3, 32), (5, 16))
    kernel = Kernel(case.runtime, Problem(5, 32, 3, "bf16", epilogue="swiglu"), 0)
    kernel.bind(a, b, out)()
    assert close(out.host, gated(a, b))
    assert tuple(kernel(a, b).shape) == (5, 16)
    out.host[:] = 0
    kernel.launch(*(tensor.data_ptr() for tensor in (a, b, out)), ldc=16)
    assert close(out.host, gated(a, b))
    with pytest.raises(ArrayError, match="it takes 16 or more"):
        kernel.launch(*(tensor.data_ptr() for tensor in (a, b, out)), ldc=15)


def test_first_use_checks_gates(case: Case, torch: FakeTorch) -> None:
    a, b = tensors(case, torch, (5, 3), (3, 32))
    out: Any = case.matmul(a, b, activation="swiglu", policy=Policy(verify=True))
    assert close(out.host, gated(a, b))


def test_library_multiplies_no_gates(case: Case, torch: FakeTorch) -> None:
    case.vendor = True
    a, b = tensors(case, torch, (5, 3), (3, 32))
    out: Any = case.matmul(a, b, activation="swiglu")
    assert close(out.host, gated(a, b))
    assert torch.products == []
