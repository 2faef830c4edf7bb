"""The tuned matmul in PyTorch: in compiled programs, as an operator, as a linear layer, and in
existing models.

    autotune.torch.inductor()                                 tuned kernels under torch.compile
    torch.ops.autotune.mm(a, b, bias, activation, compute)    differentiable, compiled, autocast
    autotune.torch.scaled_mm(a, b, scale_a, scale_b)          fp8 and int8, as torch._scaled_mm
    autotune.torch.Linear(in_features, out_features)          a `torch.nn.Linear` that uses it
    autotune.torch.patch(model, rows)                         replaces the layers that get faster
    with autotune.torch.recording() as shapes: model(x)       notes the shapes that a model runs

Importing this imports PyTorch and registers the operator.
"""

from __future__ import annotations

from typing import Any

import torch

from autotune.report.layers import Report, Row
from autotune.torch import compiled, operator, scaled
from autotune.torch.compiled import inductor
from autotune.torch.linear import Linear
from autotune.torch.operator import mm
from autotune.torch.patching import patch, unpatch
from autotune.torch.scaled import scaled_mm

__all__ = [
    "Linear",
    "Report",
    "Row",
    "inductor",
    "mm",
    "patch",
    "recording",
    "scaled_mm",
    "unpatch",
]


# The operator stays registered as long as this object lives.
_LIBRARY: Any = torch.library.Library("autotune", "FRAGMENT")
operator.register(_LIBRARY)
scaled.register(_LIBRARY)
compiled.register(_LIBRARY)

from autotune.torch.recording import recording  # noqa: E402 - it names the operators
