"""Quantising tensors to 8 bits with their scales."""

from __future__ import annotations

from typing import Any

import torch

from autotune.errors import UsageError
from autotune.problem import ELEMENT_TYPES, SCALE_BLOCK

LARGEST = {
    getattr(torch, row.dtype): row.largest
    for row in ELEMENT_TYPES.values()
    if row.bytes == 1 and hasattr(torch, row.dtype)
}
"""The largest number of each type of 8 bits."""


def quantize(x: Any, scale: str = "row", dtype: Any = torch.float8_e4m3fn) -> tuple[Any, Any]:
    """A matrix in 8 bits, and the scales that multiply it back.

    The largest number that shares a scale becomes the largest one of the type. Where all are 0 the
    scale is 1.

    Args:
        x: (m, k) in any floating-point type.
        scale: `row`, with scales (m,); `tensor`, with scales (1,); or `block`, with scales
            (ceil(k / 128), m) for blocks of 1 x 128.
        dtype: `float8_e4m3fn`, `float8_e5m2` or `int8`.

    Raises:
        UsageError: for another granularity or dtype.
    """
    if dtype not in LARGEST:
        raise UsageError(f"dtype is {dtype}; give one of {', '.join(map(str, LARGEST))}")
    wide = x.float()
    if scale == "row":
        scales = _scales(wide.abs().amax(1), dtype)
        return _rounded(wide / scales[:, None], dtype), scales
    if scale == "tensor":
        scales = _scales(wide.abs().amax().reshape(1), dtype)
        return _rounded(wide / scales, dtype), scales
    if scale == "block":
        scales = _scales(_blocks(wide.abs(), 1).amax((1, 3)), dtype)
        expanded = scales.repeat_interleave(SCALE_BLOCK, 1)[:, : wide.shape[1]]
        return _rounded(wide / expanded, dtype), scales.t().contiguous()
    raise UsageError(f"scale is {scale!r}; give row, tensor or block")


def quantize_weight(weight: Any, scale: str, dtype: Any) -> tuple[Any, Any]:
    """The weight of a linear layer, (n, k), in 8 bits: as `quantize`, but with a scale for each
    128 x 128 where that has one for 1 x 128, of shape (ceil(n / 128), ceil(k / 128)).

    Raises:
        UsageError: as `quantize`.
    """
    if scale != "block":
        return quantize(weight, scale, dtype)
    wide = weight.float()
    scales = _scales(_blocks(wide.abs(), SCALE_BLOCK).amax((1, 3)), dtype)
    expanded = scales.repeat_interleave(SCALE_BLOCK, 0).repeat_interleave(SCALE_BLOCK, 1)
    rows, columns = wide.shape
    return _rounded(wide / expanded[:rows, :columns], dtype), scales


def _blocks(x: Any, rows: int) -> Any:
    """A matrix, padded with zeros, as (blocks down, `rows`, blocks along, 128)."""
    below, right = -x.shape[0] % rows, -x.shape[1] % SCALE_BLOCK
    padded = torch.nn.functional.pad(x, (0, right, 0, below))
    height, width = padded.shape
    return padded.view(height // rows, rows, width // SCALE_BLOCK, SCALE_BLOCK)


def _scales(largest: Any, dtype: Any) -> Any:
    """The scale for each largest number."""
    return torch.where(largest > 0, largest / LARGEST[dtype], 1.0)


def _rounded(x: Any, dtype: Any) -> Any:
    limit = LARGEST[dtype]
    inside = x.clamp(-limit, limit)
    return (inside if dtype.is_floating_point else inside.round()).to(dtype)
