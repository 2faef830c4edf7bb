"""Linear layers that multiply by the tuned kernels."""

from __future__ import annotations

from typing import Any

from torch import nn

from autotune.problem import Problem, epilogue_of
from autotune.torch.operands import DTYPES
from autotune.torch.operator import ACTIVATIONS, mm


class Linear(nn.Linear):  # type: ignore[misc]
    """`torch.nn.Linear`, followed by an activation if one is named, by `torch.ops.autotune.mm`.

    Inputs may have any number of dimensions. Parameters and state_dict are those of `nn.Linear`.
    What no kernel takes, such as float64 on a GPU, PyTorch multiplies.

    Args:
        in_features: size of the last dimension of an input.
        out_features: that of an output.
        bias: whether there is a bias.
        activation: `relu`, `gelu` (the exact one, with erf) or None.
        compute: the precision; see `autotune.torch.mm`.
        device: of the parameters.
        dtype: of the parameters.

    Raises:
        ProblemError: for an unknown activation or compute.
    """

    activation: str | None = None
    compute: str | None = None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        activation: str | None = None,
        compute: str | None = None,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(in_features, out_features, bias, device=device, dtype=dtype)
        _check(activation, compute)
        self.activation, self.compute = activation, compute

    @classmethod
    def of(
        cls, module: nn.Linear, activation: str | None = None, compute: str | None = None
    ) -> Linear:
        """A layer with the parameters of a linear layer, which both then share.

        Raises:
            ProblemError: for an unknown activation or compute.
        """
        sizes = module.in_features, module.out_features
        layer = cls(*sizes, module.bias is not None, activation, compute, "meta")
        layer.weight, layer.bias = module.weight, module.bias
        layer.train(module.training)
        return layer

    def forward(self, input: Any) -> Any:
        """(..., in_features) to (..., out_features).

        Raises:
            ArrayError: if the input does not fit the weight.
        """
        weight, bias = self.weight, self.bias
        if not _served(input):
            product = nn.functional.linear(input, weight, bias)
            return ACTIVATIONS[self.activation](product) if self.activation else product
        if input.dim() == 2:
            return mm(input, weight.t(), bias, self.activation, self.compute)
        rows = input.unsqueeze(0) if input.dim() == 1 else input.flatten(0, -2)
        product = mm(rows, weight.t(), bias, self.activation, self.compute)
        return product.view(*input.shape[:-1], self.out_features)

    def extra_repr(self) -> str:
        """As of `nn.Linear`, and what is not as there."""
        named = (("activation", self.activation), ("compute", self.compute))
        return ", ".join(
            [super().extra_repr(), *(f"{name}={value}" for name, value in named if value)]
        )


class PatchedLinear(Linear):
    """What `patch` makes of a `nn.Linear`, and `unpatch` makes one again."""


def _served(input: Any) -> bool:
    """Whether the operator takes such an input."""
    return input.dtype in DTYPES if input.is_cuda else input.device.type in ("cpu", "meta")


def _check(activation: str | None, compute: str | None) -> None:
    epilogue_of(False, activation)
    if compute is not None:
        Problem(1, 1, 1, compute)
