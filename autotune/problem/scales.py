"""The shapes of the scales of 8-bit operands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.problem.fields import SCALE_BLOCK
from autotune.problem.integers import ceil_div

if TYPE_CHECKING:
    from autotune.problem.problem import Problem


def scale_shapes(problem: Problem) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Shapes of the scales of A and B, fp32 without gaps; None without scales."""
    if problem.scale == "none":
        return None
    if problem.scale == "tensor":
        return (1,), (1,)
    if problem.scale == "row":
        return (problem.batch, problem.m), (problem.batch, problem.n)
    blocks, down = ceil_div(problem.k, SCALE_BLOCK), ceil_div(problem.n, SCALE_BLOCK)
    return (problem.batch, blocks, problem.m), (problem.batch, down, blocks)
