"""The activations of an epilogue in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any


def in_place(torch: Any, activation: str) -> Callable[[Any], object]:
    """The function of PyTorch that applies an activation to a tensor in place."""
    aten = torch.ops.aten
    if activation == "gelu_tanh":
        return partial(aten.gelu_, approximate="tanh")
    functions = {"relu": (torch, "relu_"), "gelu": (aten, "gelu_"), "silu": (aten, "silu_")}
    function: Callable[[Any], object] = getattr(*functions[activation])
    return function
