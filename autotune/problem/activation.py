"""The activations of an epilogue in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.problem.problem import Problem


def in_place(torch: Any, activation: str) -> Callable[[Any], object]:
    """The function of PyTorch that applies an activation to a tensor in place."""
    if activation == "relu":
        relu: Callable[[Any], object] = torch.relu_
        return relu
    aten = torch.ops.aten
    if activation == "gelu_tanh":
        return partial(aten.gelu_, approximate="tanh")
    function: Callable[[Any], object] = getattr(aten, f"{activation}_")
    return function


def fused(torch: Any, problem: Problem) -> Callable[..., object] | None:
    """PyTorch's function of (bias, A, B) that also applies the activation, in cuBLASLt's epilogue;
    None if there is none for the problem.

    Its GELU is the tanh form. It is not trusted to be as accurate as fp32.
    """
    short = problem.output_element.roundoff > 0
    plain = problem.batch == 1 and problem.output == "same" and problem.precision.vendor is not None
    gelu = problem.activation == "gelu_tanh" and short
    if not (plain and problem.has_bias and (gelu or problem.activation == "relu")):
        return None
    function = getattr(torch, "_addmm_activation", None)
    return function and partial(function, use_gelu=gelu)
