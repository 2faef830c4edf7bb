"""matmul with a residual, on the fake GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from support.fake_frameworks import FakeTorch, Interface, Tensor
from support.numpy_types import decoded
from support.runtime_case import TYPED, Case

from autotune.errors import ArrayError, UsageError
from autotune.families.plan import Alignment
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


def close(result: Any, expected: Any) -> bool:
    return np.allclose(decoded(result), expected, rtol=1.6e-2, atol=1.6e-2)


@pytest.mark.parametrize("biased", [False, True])
def test_residual_is_added(case: Case, torch: FakeTorch, biased: bool) -> None:
    a, b, out, bias, residual = tensors(case, torch, (5, 3), (3, 7), (5, 7), (7,), (5, 7))
    wanted = decoded(a.host) @ decoded(b.host) + decoded(residual.host)
    wanted += decoded(bias.host) if biased else 0
    case.matmul(a, b, out, bias=bias if biased else None, residual=residual)
    assert close(out.host, wanted)
    epilogue = "bias_residual" if biased else "residual"
    assert [problem.epilogue for problem in case.looked_up] == [epilogue]


def test_residual_of_8_bit_operands_has_the_type_of_the_result(
    case: Case, torch: FakeTorch
) -> None:
    a, b = tensors(case, torch, (5, 3), (3, 7), dtype=E4M3)
    out, residual = tensors(case, torch, (5, 7), (5, 7))
    case.matmul(a, b, out, residual=residual)
    assert close(out.host, decoded(a.host) @ decoded(b.host) + decoded(residual.host))


def test_other_residual_is_another_call(case: Case, torch: FakeTorch) -> None:
    a, b, out, first, second = tensors(case, torch, (5, 3), (3, 7), (5, 7), (5, 7), (5, 7))
    product = decoded(a.host) @ decoded(b.host)
    for residual in (first, second, first, None, second):
        case.matmul(a, b, out, residual=residual)
        assert close(out.host, product + (0 if residual is None else decoded(residual.host)))


@pytest.mark.parametrize("shape", [(2, 5, 3), (2, 4, 5, 3)])
def test_residual_of_a_batch_goes_along(
    case: Case, torch: FakeTorch, shape: tuple[int, ...]
) -> None:
    batch = shape[:-2]
    sizes = (*batch, 5, 3), (*batch, 3, 7), (*batch, 5, 7), (*batch, 5, 7)
    a, b, out, residual = tensors(case, torch, *sizes)
    case.matmul(a, b, out, residual=residual)
    assert close(out.host, decoded(a.host) @ decoded(b.host) + decoded(residual.host))


def test_plan_has_the_alignment_of_the_residual(case: Case) -> None:
    a, b, out = (Interface(case.matrix(8, 8, dtype="float16")) for _ in range(3))
    residual = Interface(case.matrix(8, 10, dtype="float16")[:, 1:9])
    case.matmul(a, b, out, residual=residual)
    assert case.alignments[-1] == Alignment(8, 8, 1)


@pytest.mark.parametrize(
    ("shape", "keywords", "message"),
    [
        ((5, 6), {}, "residual is (5, 6); the product is (5, 7)"),
        ((7,), {}, "residual has 1 dimensions (7,); give a matrix or a batch of them"),
        ((5, 7), {"activation": "relu"}, "a residual comes without an activation, here relu"),
    ],
)
def test_wrong_residual_is_refused(
    case: Case, torch: FakeTorch, shape: tuple[int, ...], keywords: Any, message: str
) -> None:
    a, b, out, residual = tensors(case, torch, (5, 3), (3, 7), (5, 7), shape)
    assert case.refused(a, b, out, residual=residual, **keywords).startswith(message)


def test_residual_of_another_type_is_refused(case: Case, torch: FakeTorch) -> None:
    a, b, out = tensors(case, torch, (5, 3), (3, 7), (5, 7))
    (residual,) = tensors(case, torch, (5, 7), dtype="float16")
    message = "residual is float16, out bfloat16; convert the residual"
    assert case.refused(a, b, out, residual=residual) == message


def test_residual_of_fp32_operands_is_refused(case: Case, torch: FakeTorch) -> None:
    a, b, out, residual = tensors(case, torch, (5, 3), (3, 7), (5, 7), (5, 7), dtype="float32")
    message = "epilogue residual is for compute f16, bf16, f8, f8e5, i8, not f32; leave one out"
    assert case.refused(a, b, out, residual=residual) == message


def test_residual_in_the_place_of_the_output_is_refused(case: Case, torch: FakeTorch) -> None:
    a, b, out = tensors(case, torch, (5, 3), (3, 7), (5, 7))
    assert "overlaps residual at" in case.refused(a, b, out, residual=out)


@pytest.mark.parametrize("name", ["residual", "scale_result", "amax"])
def test_product_that_quantises_refuses_additions(name: str, case: Case, torch: FakeTorch) -> None:
    a, b, scale_b = quantizing(case, torch)
    addition: dict[str, Any] = dict(zip([name], tensors(case, torch, (5, 7)), strict=True))
    with pytest.raises(ArrayError, match=f"takes no {name}; give scale_a"):
        case.matmul(a, b, compute="f8", scale_b=scale_b, **addition)


def test_product_that_quantises_is_not_batch_invariant(case: Case, torch: FakeTorch) -> None:
    a, b, scale_b = quantizing(case, torch)
    with pytest.raises(UsageError, match="does not quantise its A; give scale_a"):
        case.matmul(a, b, compute="f8", scale_b=scale_b, policy=Policy(batch_invariant=True))


def quantizing(case: Case, torch: FakeTorch) -> tuple[Any, Any, Any]:
    """An A to be quantised, a B in fp8 and the scales of its columns."""
    (a,) = tensors(case, torch, (5, 3))
    (b,) = tensors(case, torch, (3, 7), dtype=E4M3)
    (scale_b,) = tensors(case, torch, (7,), dtype="float32")
    return a, b, scale_b


def test_kernel_of_a_problem_takes_a_residual(case: Case, torch: FakeTorch) -> None:
    a, b, out, residual = tensors(case, torch, (5, 3), (3, 7), (5, 7), (5, 7))
    kernel = Kernel(case.runtime, Problem(5, 7, 3, "bf16", epilogue="residual"), 0)
    wanted = decoded(a.host) @ decoded(b.host) + decoded(residual.host)
    kernel.bind(a, b, out, residual=residual)()
    assert close(out.host, wanted)
    out.host[:] = 0
    addresses = (tensor.data_ptr() for tensor in (a, b, out))
    kernel.launch(*addresses, residual=residual.data_ptr(), ldr=7)
    assert close(out.host, wanted)


@pytest.mark.parametrize(
    ("epilogue", "keywords", "message"),
    [
        ("residual", {}, "residual is at 0x0; "),
        ("none", {"residual": 256}, "residual is at 0x100; "),
        ("residual", {"residual": 257}, "residual is at 0x101; "),
        ("residual", {"residual": 256, "ldr": 6}, "residual has leading dimension 6; it takes 7"),
    ],
)
def test_launch_checks_the_residual(case: Case, epilogue: str, keywords: Any, message: str) -> None:
    kernel = Kernel(case.runtime, Problem(5, 7, 3, "bf16", epilogue=epilogue), 0)
    with pytest.raises(ArrayError) as error:
        kernel.launch(1024, 2048, 4096, **keywords)
    assert str(error.value).startswith(message)


def test_first_use_checks_a_residual(case: Case, torch: FakeTorch) -> None:
    a, b, out, residual = tensors(case, torch, (5, 3), (3, 7), (5, 7), (5, 7))
    case.matmul(a, b, out, residual=residual, policy=Policy(verify=True))
    assert close(out.host, decoded(a.host) @ decoded(b.host) + decoded(residual.host))
