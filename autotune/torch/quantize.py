"""The operator `autotune::quantize`: matrices in 8 bits, with their scales."""

from __future__ import annotations

from typing import Any

import torch

from autotune import runtime
from autotune.errors import ArrayError, UsageError
from autotune.problem import ELEMENT_TYPES, SCALE_BLOCK
from autotune.problem.integers import ceil_div

SCHEMA = "quantize(Tensor x, str scale, ScalarType dtype) -> (Tensor, Tensor)"

LARGEST = {
    getattr(torch, row.dtype): row.largest
    for row in ELEMENT_TYPES.values()
    if row.bytes == 1 and hasattr(torch, row.dtype)
}
"""The largest number of each type of 8 bits."""

GRANULARITIES = ("row", "tensor", "block")

SOURCES = (torch.float32, torch.float16, torch.bfloat16)
"""Types that the kernel reads."""

LEAST_NORMAL = torch.finfo(torch.float32).tiny


def quantize(x: Any, scale: str = "row", dtype: Any = torch.float8_e4m3fn) -> tuple[Any, Any]:
    """A matrix in 8 bits, and the scales that multiply it back, by the operator
    `torch.ops.autotune.quantize`.

    `autotune.quantize` says which numbers these are. The operator runs its kernel on a GPU, and the
    same arithmetic in PyTorch on the CPU and for matrices in other types or without elements. No
    gradient is recorded.

    Args:
        x: (m, k) in any floating-point type.
        scale: `row`, with scales (m,); `tensor`, with scales (1,); or `block`, with scales
            (ceil(k / 128), m) for blocks of 1 x 128.
        dtype: `float8_e4m3fn`, `float8_e5m2` or `int8`.

    Raises:
        UsageError: for another granularity or dtype.
        ArrayError: for a tensor that is no matrix.
    """
    q, scales = torch.ops.autotune.quantize.default(x, scale, dtype)
    return q, scales


def quantize_weight(weight: Any, scale: str, dtype: Any) -> tuple[Any, Any]:
    """The weight of a linear layer, (n, k), in 8 bits: as `quantize`, but with a scale for each
    128 x 128 where that has one for 1 x 128, of shape (ceil(n / 128), ceil(k / 128)).

    Raises:
        UsageError: as `quantize`.
    """
    if scale != "block":
        return quantize(weight, scale, dtype)
    wide = weight.float()
    scales, factors = _scales(_blocks(_finite(wide), SCALE_BLOCK).amax((1, 3)), dtype)
    expanded = factors.repeat_interleave(SCALE_BLOCK, 0).repeat_interleave(SCALE_BLOCK, 1)
    rows, columns = wide.shape
    return _rounded(wide * expanded[:rows, :columns], dtype), scales


def register(library: Any) -> None:
    """Defines the operator, with its implementations for GPUs, the CPU and fake tensors."""
    library.define(SCHEMA)
    library.impl("quantize", on_gpu, "CUDA")
    library.impl("quantize", by_torch, "CPU")
    torch.library.register_fake("autotune::quantize", _fake, lib=library)


def on_gpu(x: Any, scale: str, dtype: Any) -> tuple[Any, Any]:
    """The matrix by the kernel."""
    _check(x, scale, dtype)
    if x.dtype not in SOURCES or 0 in x.shape:
        return by_torch(x, scale, dtype)
    x = x.detach()
    if x.stride(1) != 1 or x.stride(0) < x.shape[1]:
        x = x.contiguous()
    return runtime.quantizer()(x, dtype, scale, None)


def by_torch(x: Any, scale: str, dtype: Any) -> tuple[Any, Any]:
    """The matrix by PyTorch, with the bits that the kernel gives."""
    _check(x, scale, dtype)
    wide = x.detach().float()
    sizes = _finite(wide)
    if wide.numel() == 0:
        return wide.to(dtype), wide.new_ones(_shape(x, scale))
    if scale == "row":
        scales, factors = _scales(sizes.amax(1), dtype)
        return _rounded(wide * factors[:, None], dtype), scales
    if scale == "tensor":
        scales, factors = _scales(sizes.amax().reshape(1), dtype)
        return _rounded(wide * factors, dtype), scales
    scales, factors = _scales(_blocks(sizes, 1).amax((1, 3)), dtype)
    expanded = factors.repeat_interleave(SCALE_BLOCK, 1)[:, : wide.shape[1]]
    return _rounded(wide * expanded, dtype), scales.t().contiguous()


def _fake(x: Any, scale: str, dtype: Any) -> tuple[Any, Any]:
    """Empty results for fake tensors, which have sizes but no memory."""
    _check(x, scale, dtype)
    return (
        x.new_empty(x.shape, dtype=dtype),
        x.new_empty(_shape(x, scale), dtype=torch.float32),
    )


def _check(x: Any, scale: str, dtype: Any) -> None:
    if dtype not in LARGEST:
        raise UsageError(f"dtype is {dtype}; give one of {', '.join(map(str, LARGEST))}")
    if scale not in GRANULARITIES:
        raise UsageError(f"scale is {scale!r}; give row, tensor or block")
    if x.dim() != 2:
        raise ArrayError(f"x has {x.dim()} dimensions {tuple(x.shape)}; give a matrix")


def _shape(x: Any, scale: str) -> tuple[Any, ...]:
    """The shape of the scales."""
    rows, columns = x.shape
    if scale == "tensor":
        return (1,)
    return (rows,) if scale == "row" else (ceil_div(columns, SCALE_BLOCK), rows)


def _blocks(x: Any, rows: int) -> Any:
    """A matrix, padded with zeros, as (blocks down, `rows`, blocks along, 128)."""
    below, right = -x.shape[0] % rows, -x.shape[1] % SCALE_BLOCK
    padded = torch.nn.functional.pad(x, (0, right, 0, below))
    height, width = padded.shape
    return padded.view(height // rows, rows, width // SCALE_BLOCK, SCALE_BLOCK)


def _finite(x: Any) -> Any:
    """The sizes of the finite numbers; 0 for others."""
    return torch.where(x.isfinite(), x.abs(), 0.0)


def _scales(largest: Any, dtype: Any) -> tuple[Any, Any]:
    """The scale for each largest number, and the factor that quantises."""
    limit = LARGEST[dtype]
    sizes = torch.where(largest == 0, limit, largest.clamp(min=LEAST_NORMAL * limit))
    # Division by a number, or of one, would round otherwise than that of tensors.
    limits = torch.full_like(sizes, limit)
    return sizes / limits, limits / sizes


def _rounded(x: Any, dtype: Any) -> Any:
    limit = LARGEST[dtype]
    if dtype.is_floating_point:
        return x.clamp(-limit, limit).to(dtype)
    return x.clamp(-limit - 1, limit).round().nan_to_num(0.0).to(dtype)
