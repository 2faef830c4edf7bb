"""PyTorch: the tuned product as an operator, as a linear layer, and in the place of linear layers.

    torch.ops.autotune.mm(a, b, bias, activation, compute)    differentiable, compiled, autocast
    autotune.torch.Linear(in_features, out_features)          `torch.nn.Linear` that multiplies so
    autotune.torch.patch(model, rows)                         in a model, the layers that gain by it

Importing this imports PyTorch and registers the operator.
"""

from __future__ import annotations

from typing import Any

import torch

from autotune.lookup.layers import Report, Row
from autotune.torch import autocast, gradients, operator
from autotune.torch.linear import Linear
from autotune.torch.operator import mm
from autotune.torch.patching import patch, unpatch

__all__ = ["Linear", "Report", "Row", "mm", "patch", "unpatch"]

# Registrations last as long as this does.
_LIBRARY: Any = torch.library.Library("autotune", "FRAGMENT")
for _part in (operator, gradients, autocast):
    _part.register(_LIBRARY)
