"""The gradients of `autotune::mm`, made of the operator itself, so that they have gradients too."""

from __future__ import annotations

from typing import Any

import torch

from autotune.torch.operator import ACTIVATIONS, mm, recording


def register(library: Any) -> None:
    """Makes the operator differentiable."""
    library.impl("mm", _recorded, "Autograd")


def _recorded(
    a: Any, b: Any, bias: Any = None, activation: str | None = None, compute: str | None = None
) -> Any:
    """The product, which remembers what its gradients need if one will be asked for.

    This is `torch.library.register_autograd` without 3 to 5 us of what that adds to each call.
    """
    if not recording(a, b, bias):
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.autotune.mm.default(a, b, bias, activation, compute)
    if activation == "gelu":
        return ACTIVATIONS[activation](_GemmFunction.apply(a, b, bias, None, compute))
    return _GemmFunction.apply(a, b, bias, activation, compute)


class _GemmFunction(torch.autograd.Function):  # type: ignore[misc]
    """`a b + bias`, or relu of that."""

    @staticmethod
    def forward(
        ctx: Any, a: Any, b: Any, bias: Any, activation: str | None, compute: str | None
    ) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            product = torch.ops.autotune.mm.default(a, b, bias, activation, compute)
        ctx.save_for_backward(a, b, product if activation == "relu" else None)
        ctx.compute = compute
        return product

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        a, b, product = ctx.saved_tensors
        for_a, for_b, for_bias, *_ = ctx.needs_input_grad
        if product is not None:
            gradient = torch.ops.aten.threshold_backward(gradient, product, 0)
        if 0 in gradient.stride():
            # As of a sum, whose gradient is one number for all. Copied here, it is copied once.
            gradient = gradient.contiguous()
        return (
            _of_a(gradient, a, b, ctx.compute) if for_a else None,
            _of_b(gradient, a, b, ctx.compute) if for_b else None,
            gradient.sum(tuple(range(gradient.dim() - 1))) if for_bias else None,
            *(None, None),
        )


def _of_a(gradient: Any, a: Any, b: Any, compute: str | None) -> Any:
    return _laid_as(a, gradient, b.mT, compute).sum_to_size(a.shape)


def _of_b(gradient: Any, a: Any, b: Any, compute: str | None) -> Any:
    if a.dim() > b.dim():
        # One matrix for the whole batch: all rows are summed in one product.
        a, gradient = a.flatten(0, 1), gradient.flatten(0, 1)
    return _laid_as(b, a.mT, gradient, compute).sum_to_size(b.shape)


def _laid_as(like: Any, left: Any, right: Any, compute: str | None) -> Any:
    """The product, column by column in memory if `like` lies so: the gradient of a weight that is
    used transposed would be copied otherwise before it is added to the others."""
    if like.stride(-2) == 1 and like.stride(-1) != 1:
        return mm(right.mT, left.mT, None, None, compute).mT
    return mm(left, right, None, None, compute)
