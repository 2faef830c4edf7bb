"""Quantised tensors and linear layers, on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import autotune.torch  # noqa: E402
from autotune.errors import ArrayError, UsageError  # noqa: E402
from autotune.torch.quantize import quantize, quantize_weight  # noqa: E402
from autotune.torch.quantized import (  # noqa: E402
    Quantization,
    QuantizedLinear,
    quantized,
    restored,
)

scaled_mm = autotune.torch.scaled_mm
TYPES = {torch.float8_e4m3fn: 0.07, torch.float8_e5m2: 0.14, torch.int8: 0.02}


@pytest.fixture(autouse=True)
def anew() -> None:
    torch.manual_seed(0)


def expanded(scales: Any, scale: str, shape: tuple[int, int]) -> Any:
    """The scale of each element of a matrix that `quantize` made."""
    if scale == "row":
        return scales[:, None].expand(shape)
    if scale == "tensor":
        return scales.expand(shape)
    return scales.repeat_interleave(128, 0)[: shape[1]].t()


@pytest.mark.parametrize("scale", ["row", "tensor", "block"])
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_quantised_numbers_are_near(dtype: Any, scale: str) -> None:
    x = torch.randn(5, 300)
    x[2] = 0
    q, scales = quantize(x, scale, dtype)
    assert (q.dtype, q.shape, scales.dtype) == (dtype, x.shape, torch.float32)
    assert scales.shape == {"row": (5,), "tensor": (1,), "block": (3, 5)}[scale]
    back = q.float() * expanded(scales, scale, (5, 300))
    assert (back - x).norm() / x.norm() < TYPES[dtype]
    assert bool((back[2] == 0).all())


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_weights_have_scales_of_square_blocks(dtype: Any) -> None:
    weight = torch.randn(200, 300)
    q, scales = quantize_weight(weight, "block", dtype)
    assert scales.shape == (2, 3)
    back = q.float() * scales.repeat_interleave(128, 0).repeat_interleave(128, 1)[:200, :300]
    assert (back - weight).norm() / weight.norm() < TYPES[dtype]


def test_unknown_words_are_refused() -> None:
    with pytest.raises(UsageError, match="scale is 'column'; give row, tensor or block"):
        quantize(torch.ones(2, 2), "column")
    with pytest.raises(UsageError, match=r"dtype is torch\.float16; give one of torch\.float8"):
        quantize(torch.ones(2, 2), dtype=torch.float16)
    with pytest.raises(UsageError, match="compute is bf16, scale row; give f8, f8e5 or i8"):
        Quantization("bf16", "row")


@pytest.mark.parametrize("scale", ["row", "tensor", "block"])
def test_scaled_mm_multiplies_the_scales(scale: str) -> None:
    a, b = torch.randn(5, 300), torch.randn(200, 300)
    (q, of_a), (w, of_b) = quantize(a, scale), quantize_weight(b, scale, torch.float8_e4m3fn)
    if scale == "row":
        of_a, of_b = of_a[:, None], of_b[None]
    elif scale == "block":
        of_a, of_b = of_a.t(), of_b.t()
    bias = torch.randn(200)
    result = scaled_mm(q, w.t(), of_a, of_b, bias, torch.float32)
    wanted = a @ b.t() + bias
    assert (result - wanted).norm() / wanted.norm() < 0.1


def test_scaled_mm_refuses_operands_that_do_not_fit() -> None:
    q = torch.ones(3, 4).to(torch.float8_e4m3fn)
    one = torch.ones(1)
    with pytest.raises(ArrayError, match="the inner sizes 4 and 3 differ"):
        scaled_mm(q, q, one, one)
    with pytest.raises(ArrayError, match=r"bias is \(4,\); the product has 3 columns"):
        scaled_mm(q, q.t(), one, one, torch.ones(4))


@pytest.mark.parametrize("compute", ["f8", "f8e5", "i8"])
@pytest.mark.parametrize("shape", [(4, 256), (2, 3, 256), (256,)], ids=str)
def test_quantised_layer_is_near_the_layer(compute: str, shape: tuple[int, ...]) -> None:
    layer = nn.Linear(256, 64, dtype=torch.bfloat16).eval()
    before = dict(layer.state_dict())
    x = torch.randn(shape, dtype=torch.bfloat16)
    wanted = layer(x)
    quantized(layer, Quantization(compute, "row"))
    result = layer(x)
    assert isinstance(layer, QuantizedLinear)
    assert (result.dtype, result.shape) == (torch.bfloat16, wanted.shape)
    assert (result - wanted).norm() / wanted.norm() < 0.1
    assert not torch.equal(result, wanted)
    assert layer.state_dict().keys() == before.keys()
    restored(layer)
    assert type(layer) is nn.Linear
    assert torch.equal(layer(x), wanted)
    assert list(layer.buffers()) == []


def test_layer_in_training_is_not_quantised() -> None:
    layer = nn.Linear(256, 64, dtype=torch.bfloat16)
    x = torch.randn(4, 256, dtype=torch.bfloat16)
    wanted = layer(x)
    quantized(layer, Quantization("f8", "row"))
    assert torch.equal(layer(x), wanted)
    layer(x).sum().backward()
    assert layer.weight.grad is not None
