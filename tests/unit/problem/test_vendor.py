"""Tensors of PyTorch whose elements do not lie at their address."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest

from autotune.problem.vendor import obstacle

torch: Any = pytest.importorskip("torch")


def nested(layout: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # nested tensors are a prototype
        return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=layout)


def faked() -> Any:
    with torch._subclasses.FakeTensorMode():
        return torch.empty(3, 3)


def quantised() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # quantised dtypes are deprecated
        return torch.quantize_per_tensor(torch.ones(3, 3), 0.1, 0, torch.qint8)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: torch._efficientzerotensor(3, 3), r"has no memory .*; give a plain tensor"),
        (lambda: torch.eye(3).to_sparse(), r"has the layout torch.sparse_coo; .*\.to_dense\(\)"),
        (lambda: torch.eye(3).to_sparse_csr(), r"has the layout torch.sparse_csr; "),
        (lambda: torch.empty(3, 3, device="meta"), "is on the meta device"),
        (lambda: nested(torch.strided), "is nested; "),
        (lambda: nested(torch.jagged), "is a NestedTensor, which does not own its memory; "),
        (faked, "is a FakeTensor, which does not own its memory; "),
        (quantised, r"is quantised to torch.qint8; give \.dequantize\(\)"),
        (lambda: torch.nn.parameter.UninitializedParameter(), "has no memory .* not initialised"),
    ],
)
def test_tensor_without_its_elements_is_refused(make: Callable[[], Any], message: str) -> None:
    assert re.match(message, obstacle(torch, make()) or "")


@pytest.mark.parametrize(
    "transform",
    [
        torch.func.functionalize,
        lambda function: lambda x: torch.func.vmap(function)(x[None]),
        lambda function: lambda x: torch.func.grad(lambda y: function(y).sum())(x),
    ],
    ids=["functionalize", "vmap", "grad"],
)
def test_tensor_inside_a_transform_is_refused(transform: Callable[..., Any]) -> None:
    seen: list[str | None] = []

    def function(x: Any) -> Any:
        seen.append(obstacle(torch, x))
        return x

    transform(function)(torch.ones(3, 3))
    assert [str(reason)[:13] for reason in seen] == ["has no memory"]


class Plain(torch.Tensor):  # type: ignore[misc]
    """A subclass that changes no operation."""


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.ones(3, 3),
        lambda: torch.ones(0, 3),
        lambda: torch.nn.Parameter(torch.ones(3, 3)),
        lambda: torch.ones(3, 3).as_subclass(Plain),
        lambda: torch.ones(3).expand(3, 3),
        lambda: torch._neg_view(torch.ones(3, 3)),  # has memory, though of the other sign
    ],
)
def test_tensor_with_memory_is_accepted(make: Callable[[], Any]) -> None:
    assert obstacle(torch, make()) is None
