"""SwiGLU on a real GPU: matmul, the operator, a layer, graphs and compilation."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import autotune
from autotune.runtime import UntunedWarning

SHAPES = ((16, 512, 256), (64, 1424, 500), (301, 96, 72), (5, 16, 33))
"""M, N and K."""


@pytest.fixture(autouse=True)
def untuned() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UntunedWarning)
        yield


def drawn(torch: Any, *shape: int, dtype: str = "bfloat16") -> Any:
    return torch.randn(shape, device="cuda").to(getattr(torch, dtype))


def unfused(torch: Any, x: Any, gate: Any, up: Any) -> Any:
    x, gate, up = (operand.double() for operand in (x, gate, up))
    return torch.nn.functional.silu(x @ gate.t()) * (x @ up.t())


def close(torch: Any, result: Any, wanted: Any) -> None:
    size = float(wanted.abs().max())
    torch.testing.assert_close(result.double(), wanted, rtol=0, atol=0.01 * size)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_matmul_combines_gates(torch: Any, m: int, n: int, k: int, dtype: str) -> None:
    x, gate, up = (drawn(torch, *shape, dtype=dtype) for shape in ((m, k), *[(n // 2, k)] * 2))
    x /= 8
    weight = autotune.interleave(gate, up)
    result: Any = autotune.matmul(
        x, weight.t(), activation="swiglu", policy=autotune.Policy(verify=True)
    )
    assert (result.shape, result.dtype) == ((m, n // 2), x.dtype)
    close(torch, result, unfused(torch, x, gate, up))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8"])
def test_weights_of_8_bits_combine_gates(torch: Any, dtype: str) -> None:
    x, gate, up = (drawn(torch, *shape) for shape in ((48, 320), (256, 320), (256, 320)))
    weight = autotune.interleave(gate, up)
    kind = {"float8_e4m3fn": "e4m3", "int8": "int8"}[dtype]
    (a, scale_a), (b, scale_b) = (autotune.quantize(each, kind, "row") for each in (x, weight))
    result: Any = autotune.matmul(a, b.t(), scale_a=scale_a, scale_b=scale_b, activation="swiglu")
    compute = {"float8_e4m3fn": "f8", "int8": "i8"}[dtype]
    on_the_way: Any = autotune.matmul(
        x, b.t(), scale_b=scale_b, compute=compute, activation="swiglu"
    )
    torch.testing.assert_close(on_the_way, result, rtol=0, atol=0)
    dequantised = b.double() * scale_b[:, None]
    halves = dequantised.unflatten(0, (-1, 2, 8))
    of_gate, of_up = (halves[:, half].flatten(0, 1) for half in (0, 1))
    close(torch, result, unfused(torch, a.double() * scale_a[:, None], of_gate, of_up))


def test_layer_is_compiled_captured_and_differentiated(torch: Any) -> None:
    from autotune.torch import Linear

    layer = Linear(256, 512, bias=False, activation="swiglu", device="cuda", dtype=torch.bfloat16)
    x = drawn(torch, 3, 24, 256).requires_grad_()
    whole = layer.weight.detach().unflatten(0, (-1, 2, 8))
    gate, up = (whole[:, half].flatten(0, 1) for half in (0, 1))
    wanted = unfused(torch, x.detach(), gate, up)
    compiled = torch.compile(layer, fullgraph=True)
    with torch.no_grad():
        close(torch, compiled(x), wanted)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            captured = layer(x)
        graph.replay()
        close(torch, captured, wanted)
    layer(x).float().sum().backward()
    copy = x.detach().double().requires_grad_()
    unfused(torch, copy, gate, up).sum().backward()
    close(torch, x.grad, copy.grad)
