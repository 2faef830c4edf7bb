"""The gradients of `autotune::mm`, computed by the operator itself, so they have gradients too."""

from __future__ import annotations

from typing import Any

import torch

from autotune.torch.operator import ACTIVATIONS, recording, run


def register(library: Any) -> None:
    """Makes the operator differentiable."""
    library.impl("mm", _mm_autograd, "Autograd")


def _mm_autograd(
    a: Any,
    b: Any,
    bias: Any = None,
    activation: str | None = None,
    compute: str | None = None,
    dependent: bool = False,
    residual: Any = None,
) -> Any:
    """The result, which saves what its gradients need if a gradient is recorded.

    It does what `torch.library.register_autograd` does, in 3 to 5 us less a call.
    """
    rest = compute, dependent, residual
    if not recording(a, b, bias, residual):
        with torch._C._AutoDispatchBelowAutograd():
            return torch.ops.autotune.mm.default(a, b, bias, activation, *rest)
    if activation not in (None, "relu"):
        return ACTIVATIONS[activation](_GemmFunction.apply(a, b, bias, None, *rest))
    return _GemmFunction.apply(a, b, bias, activation, *rest)


class _GemmFunction(torch.autograd.Function):  # type: ignore[misc]
    """`a b + bias + residual`, or the relu of `a b + bias`."""

    @staticmethod
    def forward(
        ctx: Any,
        a: Any,
        b: Any,
        bias: Any,
        activation: str | None,
        compute: str | None,
        dependent: bool,
        residual: Any,
    ) -> Any:
        rest = compute, dependent, residual
        with torch._C._AutoDispatchBelowAutograd():
            result = torch.ops.autotune.mm.default(a, b, bias, activation, *rest)
        ctx.save_for_backward(a, b, result if activation == "relu" else None)
        ctx.rest = compute, dependent
        return result

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> tuple[Any, ...]:
        a, b, result = ctx.saved_tensors
        for_a, for_b, for_bias, *_, for_residual = ctx.needs_input_grad
        if result is not None:
            gradient = torch.ops.aten.threshold_backward(gradient, result, 0)
        if 0 in gradient.stride():
            # An expanded gradient, such as that of a sum, would be copied for each use.
            gradient = gradient.contiguous()
        return (
            _gradient_of_a(gradient, a, b, *ctx.rest) if for_a else None,
            _gradient_of_b(gradient, a, b, *ctx.rest) if for_b else None,
            gradient.sum(tuple(range(gradient.dim() - 1))) if for_bias else None,
            *(None, None, None),
            gradient if for_residual else None,
        )


def _gradient_of_a(gradient: Any, a: Any, b: Any, compute: str | None, dependent: bool) -> Any:
    """The gradient of A: that of the result times B transposed."""
    return _mm_stored_like(a, gradient, b.mT, compute, dependent).sum_to_size(a.shape)


def _gradient_of_b(gradient: Any, a: Any, b: Any, compute: str | None, dependent: bool) -> Any:
    """The gradient of B: A transposed times that of the result."""
    if a.dim() > 2 == b.dim():
        # B is one matrix for the whole batch: a single matmul sums over all rows.
        a, gradient = a.flatten(0, -2), gradient.flatten(0, -2)
    return _mm_stored_like(b, a.mT, gradient, compute, dependent).sum_to_size(b.shape)


def _mm_stored_like(like: Any, left: Any, right: Any, compute: str | None, dependent: bool) -> Any:
    """`left right`, stored column by column if `like` is. PyTorch would otherwise copy the gradient
    of a weight that is used transposed before accumulating it."""
    if like.stride(-2) == 1 and like.stride(-1) != 1:
        return run(right.mT, left.mT, None, None, compute, dependent).mT
    return run(left, right, None, None, compute, dependent)
