"""`autotune::mm` under `torch.autocast`."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from autotune.problem import Problem
from autotune.torch.operands import DTYPES

_TYPES = {type: dtype for dtype, type in DTYPES.items()}


def register(library: Any) -> None:
    """Converts the operands under autocast, as autocast does for `torch.mm`."""
    for device in ("cuda", "cpu"):
        library.impl("mm", partial(_mm_autocast, device), f"Autocast{device.upper()}")


def _mm_autocast(
    device: str,
    a: Any,
    b: Any,
    bias: Any = None,
    activation: str | None = None,
    compute: str | None = None,
    dependent: bool = False,
    residual: Any = None,
) -> Any:
    if compute is None:
        dtype = torch.get_autocast_dtype(device)
    else:
        dtype = _TYPES[Problem(1, 1, 1, compute).operand_types[0]]
    key = getattr(torch._C.DispatchKey, f"Autocast{device.upper()}")
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
        a, b, bias, residual = (cast(operand, device, dtype) for operand in (a, b, bias, residual))
        return torch.ops.autotune.mm.default(a, b, bias, activation, compute, dependent, residual)


def cast(tensor: Any, device: str, dtype: Any) -> Any:
    """The tensor in `dtype`, if autocast would convert it: floating point on that device, but not
    float64."""
    eligible = tensor is not None and tensor.device.type == device and tensor.is_floating_point()
    return tensor.to(dtype) if eligible and tensor.dtype is not torch.float64 else tensor
