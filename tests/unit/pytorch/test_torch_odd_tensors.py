"""Tensors whose memory does not hold their elements, as operands of the operators and layers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from support.torch_runtime import StandIn  # noqa: E402

import autotune.torch  # noqa: E402

operators = torch.ops.autotune


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # prototypes and deprecated types
        yield


def nested(layout: Any = torch.strided) -> Any:
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=layout)


@pytest.mark.parametrize(
    "make", [nested, lambda: nested(torch.jagged), lambda: torch.eye(3).to_sparse()]
)
def test_layer_leaves_sparse_and_nested_inputs_to_pytorch(make: Callable[[], Any]) -> None:
    layer, x = autotune.torch.Linear(3, 5), make()
    results = layer(x), torch.nn.functional.linear(x, layer.weight, layer.bias)
    for left, right in zip(*(y.unbind() for y in results), strict=True):
        torch.testing.assert_close(left, right)


@pytest.mark.parametrize("make", [torch._neg_view, lambda x: torch._efficientzerotensor(*x.shape)])
@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("place", range(3))
def test_lazy_operands_reach_the_kernel_resolved(
    gpu: StandIn, place: int, recorded: bool, make: Callable[[Any], Any]
) -> None:
    operands = [torch.randn(*shape) for shape in ((4, 3), (3, 5), (5,))]
    operands[place] = make(operands[place])
    other = operands[(place + 1) % 3]
    other.requires_grad = recorded
    a, b, bias = operands
    result = autotune.torch.mm(a, b, bias)
    torch.testing.assert_close(result, a @ b + bias)
    if recorded:
        result.sum().backward()
        assert other.grad is not None
    assert not any(operand.is_neg() for operand in gpu.operands)
    assert all(operand.data_ptr() for operand in gpu.operands)
