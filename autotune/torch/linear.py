"""Linear layers that run the tuned kernels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from autotune.problem import Problem, epilogue_of
from autotune.problem.words import DtypeLike
from autotune.settings import Policy
from autotune.torch.operator import ACTIVATIONS, DTYPES, mm


class Linear(nn.Linear):  # type: ignore[misc]
    """`torch.nn.Linear` by `torch.ops.autotune.mm`, followed by an activation if one is named.

    Inputs may have any number of dimensions. Parameters and state_dict are those of `nn.Linear`.
    PyTorch computes inputs that no kernel takes, such as float64 on a GPU.

    Args:
        in_features: size of the last dimension of an input.
        out_features: size of the last dimension of an output.
        bias: whether there is a bias.
        activation: `relu`, `gelu` (the exact one, with erf), `gelu_tanh`, `silu` or None; `swiglu`,
            for a weight of `autotune.interleave` without a bias, gives half of out_features.
        compute: the precision; see `autotune.torch.mm`.
        policy: as in `autotune.torch.mm`; None is the current policy of each call.
        device: device of the parameters.
        dtype: type of the parameters.

    Raises:
        ProblemError: for an unknown activation or compute.
    """

    activation: str | None = None
    compute: str | None = None
    policy: Policy | None = None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        activation: str | None = None,
        compute: DtypeLike | None = None,
        device: Any = None,
        dtype: Any = None,
        policy: Policy | None = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        epilogue_of(bias, activation)
        named = None if compute is None else Problem(1, 1, 1, compute).compute
        self.activation, self.compute = activation, named
        if policy is not None:
            self.policy = policy

    @classmethod
    def of(
        cls,
        module: nn.Linear,
        activation: str | None = None,
        compute: DtypeLike | None = None,
        policy: Policy | None = None,
    ) -> Linear:
        """A layer that shares the parameters of a linear layer.

        Raises:
            ProblemError: for an unknown activation or compute.
        """
        sizes = module.in_features, module.out_features
        layer = cls(*sizes, module.bias is not None, activation, compute, "meta", policy=policy)
        layer.weight, layer.bias = module.weight, module.bias
        layer.train(module.training)
        return layer

    def forward(self, input: Any) -> Any:
        """(..., in_features) to (..., out_features).

        Raises:
            ArrayError: if the input does not fit the weight.
            NotFoundError: with `batch_invariant`, if no range serves the product.
        """
        weight, bias = self.weight, self.bias
        if not supports(input):
            result = nn.functional.linear(input, weight, bias)
            return ACTIVATIONS[self.activation](result) if self.activation else result
        if input.dim() == 2:
            return mm(input, weight.t(), bias, self.activation, self.compute, self.policy)
        rows = input.unsqueeze(0) if input.dim() == 1 else input.flatten(0, -2)
        result = mm(rows, weight.t(), bias, self.activation, self.compute, self.policy)
        return result.view(*input.shape[:-1], result.shape[-1])

    def extra_repr(self) -> str:
        """The text of `nn.Linear`, with the activation and the compute if they are set."""
        named = (("activation", self.activation), ("compute", self.compute))
        return ", ".join(
            [super().extra_repr(), *(f"{name}={value}" for name, value in named if value)]
        )


class PatchedLinear(Linear):
    """The class that `patch` gives to an `nn.Linear`, and `unpatch` takes away again: the layer
    stays the same object, with its parameters, hooks and references.

    Attributes:
        policy: what its calls may do; None is the current policy of each call.
        quantization: computes the layer in 8 bits (see `quantized.Quantization`); None computes it
            in the precision of its weight.
    """

    quantization: Any = None

    def forward(self, input: Any) -> Any:
        """(..., in_features) to (..., out_features); see `Linear`."""
        if self.quantization is None:
            return super().forward(input)
        return self.quantization.linear(self, input)


def patched(modules: Iterable[nn.Linear], policy: Policy | None, quantization: Any = None) -> None:
    """Makes linear layers patched ones with a policy and, for 8 bits, a quantization."""
    for module in modules:
        if quantization is not None:
            quantization.prepare(module)
        module.policy, module.quantization = policy, quantization
        module.__class__ = PatchedLinear


def unpatched(module: PatchedLinear) -> None:
    """Makes a layer what it was before `patched`."""
    if module.quantization is not None:
        module.quantization.remove(module)
    module.__class__ = nn.Linear
    for name in ("policy", "quantization"):
        module.__dict__.pop(name, None)


def supports(input: Any) -> bool:
    """Whether the operator takes an input. PyTorch computes nested and sparse ones."""
    if input.is_nested or input.layout is not torch.strided:
        return False
    return input.dtype in DTYPES if input.is_cuda else input.device.type in ("cpu", "meta")
