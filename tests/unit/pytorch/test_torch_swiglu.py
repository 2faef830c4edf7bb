"""SwiGLU in PyTorch, on the CPU: results, gradients, compilation, layers and recorded shapes."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.torch_runtime import StandIn  # noqa: E402 - it needs torch

import autotune  # noqa: E402
from autotune.errors import ArrayError, ProblemError  # noqa: E402
from autotune.torch import Linear, mm, recording, scaled_mm  # noqa: E402

BF16 = torch.bfloat16


def drawn(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def weights(k: int, half: int = 24, dtype: Any = torch.float32) -> tuple[Any, Any]:
    return drawn(half, k, dtype=dtype), drawn(half + 8, k, dtype=dtype)[8:]


def unfused(x: Any, gate: Any, up: Any) -> Any:
    return torch.nn.functional.silu(x @ gate.t()) * (x @ up.t())


@pytest.mark.parametrize("shape", [(5, 12), (2, 3, 12)], ids=str)
def test_result_is_that_of_the_two_weights(shape: tuple[int, ...]) -> None:
    x, (gate, up) = drawn(*shape), weights(12)
    result = mm(x, autotune.interleave(gate, up).t(), activation="swiglu")
    torch.testing.assert_close(result, unfused(x, gate, up))


def test_kernel_applies_it_on_a_gpu(gpu: StandIn) -> None:
    x, (gate, up) = drawn(5, 12, dtype=BF16), weights(12, dtype=BF16)
    result = mm(x, autotune.interleave(gate, up).t(), activation="swiglu")
    torch.testing.assert_close(result, unfused(x, gate, up), rtol=0.05, atol=0.05)
    assert [str(problem) for problem in gpu.problems] == ["5x48x12:bf16:nt:swiglu"]


def test_gradients_are_correct() -> None:
    operands = tuple(
        drawn(*shape, dtype=torch.float64).requires_grad_() for shape in ((3, 4), (4, 16))
    )
    assert torch.autograd.gradcheck(lambda a, b: mm(a, b, None, "swiglu"), operands)


def test_operator_passes_pytorch_opcheck() -> None:
    a, b = drawn(3, 4).requires_grad_(), drawn(16, 4).requires_grad_().t()
    assert set(
        torch.library.opcheck(torch.ops.autotune.mm.default, (a, b, None, "swiglu")).values()
    ) == {"SUCCESS"}


@pytest.mark.parametrize("dynamic", [False, True])
def test_layer_compiles_into_one_graph(dynamic: bool) -> None:
    layer = Linear(12, 48, bias=False, activation="swiglu")
    compiled = torch.compile(layer, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    for rows in (3, 7):
        x = drawn(2, rows, 12)
        torch.testing.assert_close(compiled(x), layer(x))
        assert layer(x).shape == (2, rows, 24)


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.int8], ids=str)
def test_operands_of_8_bits_are_interleaved_with_their_scales(dtype: Any) -> None:
    x, (gate, up) = (4 * drawn(5, 12)).to(dtype), (4 * weight for weight in weights(12))
    weight = autotune.interleave(gate.to(dtype), up.to(dtype))
    scale_a, of_gate, of_up = (0.5 + drawn(size, 1).abs() for size in (5, 24, 32))
    scale_b = autotune.interleave(of_gate, of_up[8:]).t()
    result = scaled_mm(x, weight.t(), scale_a, scale_b, activation="swiglu")
    dequantised = ((gate, of_gate), (up, of_up[8:]))
    halves = (weight.to(dtype).float() * scale for weight, scale in dequantised)
    wanted = unfused(x.float() * scale_a, *halves)
    torch.testing.assert_close(result.float(), wanted, rtol=0.02, atol=0.02)
    if dtype is torch.int8:  # PyTorch's check multiplies its operands, which it cannot in fp8
        operands = x, weight.t(), scale_a, scale_b
        operator = torch.ops.autotune.scaled_mm.default
        tests = ("test_schema", "test_faketensor")
        torch.library.opcheck(operator, operands, {"activation": "swiglu"}, test_utils=tests)


def test_activations_follow_scaled_products() -> None:
    a, b, one = drawn(5, 12).to(torch.int8), drawn(12, 16).to(torch.int8), torch.ones(())
    plain = scaled_mm(a, b, one, one, out_dtype=torch.float32)
    result = scaled_mm(a, b, one, one, out_dtype=torch.float32, activation="relu")
    torch.testing.assert_close(result, plain.relu())


def test_shapes_are_noted() -> None:
    x, weight = drawn(5, 12, dtype=BF16), drawn(48, 12, dtype=BF16)
    eight, scale = torch.zeros(48, 16, dtype=torch.int8), torch.ones(48, 1)
    with recording() as shapes:
        mm(x, weight.t(), activation="swiglu")
        scaled_mm(eight, eight.t(), scale, scale.t(), activation="swiglu")
    assert sorted(map(str, shapes)) == ["48x48x16:i8:nt:swiglu:scale=row", "5x48x12:bf16:nt:swiglu"]


def test_columns_that_are_no_pairs_are_refused() -> None:
    message = "swiglu takes 8 columns of gates and 8 of their values; B has 24"
    with pytest.raises(ProblemError, match=message):
        mm(drawn(3, 4), drawn(4, 24), activation="swiglu")
    with pytest.raises(ProblemError, match="swiglu comes without a bias"):
        mm(drawn(3, 4), drawn(4, 16), drawn(16), "swiglu")
    with pytest.raises(ProblemError, match="swiglu comes without a bias"):
        Linear(4, 16, activation="swiglu")
    with pytest.raises(ArrayError, match="the gate is"):
        autotune.interleave(drawn(16, 4), drawn(8, 4))
