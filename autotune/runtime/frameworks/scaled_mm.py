"""The scales of `torch._scaled_mm` as those of `autotune.matmul`."""

from __future__ import annotations

from typing import Any

from autotune.errors import ArrayError
from autotune.problem import SCALE_BLOCK
from autotune.problem.integers import ceil_div


def own_scale_b(b: Any, scale_b: Any) -> Any:
    """The scales of B of a call of `torch._scaled_mm` for `autotune.matmul`, where A is quantised
    on the way in.

    Raises:
        ArrayError: for scales of another shape.
    """
    shape, (k, n) = tuple(scale_b.shape), b.shape
    of_blocks = ceil_div(k, SCALE_BLOCK), ceil_div(n, SCALE_BLOCK)
    if shape == (1, n) or set(shape) <= {1}:
        return scale_b
    if shape == of_blocks:
        return scale_b.t().contiguous()
    raise ArrayError(
        f"scale_b is {shape}; a B of {(k, n)} takes one number, {(1, n)} or {of_blocks}"
    )


def own_scales(a: Any, b: Any, scale_a: Any, scale_b: Any) -> tuple[Any, Any]:
    """The scales of a call of `torch._scaled_mm`, for `autotune.matmul`.

    PyTorch takes one number for each tensor, (m, 1) and (1, n) for rows and columns, or, for blocks
    of 1 x 128 and 128 x 128, (m, ceil(k / 128)) and (ceil(k / 128), ceil(n / 128)). Those for
    blocks are transposed here, which moves nothing if they are stored as PyTorch demands: column
    by column.

    Raises:
        ArrayError: for scales of other shapes.
    """
    shapes = tuple(scale_a.shape), tuple(scale_b.shape)
    (m, k), n = a.shape, b.shape[1]
    blocks = ceil_div(k, SCALE_BLOCK)
    of_blocks = (m, blocks), (blocks, ceil_div(n, SCALE_BLOCK))
    of_rows = (m, 1), (1, n)
    if shapes == of_rows or all(set(shape) <= {1} for shape in shapes):
        return scale_a, scale_b
    if shapes == of_blocks:
        return scale_a.t().contiguous(), scale_b.t().contiguous()
    legal = "one number each, {} and {}, or {} and {}".format(*of_rows, *of_blocks)
    raise ArrayError(
        f"scale_a is {shapes[0]}, scale_b {shapes[1]}; a product of ({m}, {k}) and ({k}, {n}) "
        f"takes {legal}"
    )
