"""The functions of PyTorch that multiply operands of 8 bits by cuBLAS."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from autotune.problem.integers import ceil_div

if TYPE_CHECKING:
    from autotune.problem.problem import Problem

ScaledProduct = Callable[..., object]
"""A function of A, B, the scales of A and B, a bias or None, and C; it has no activation."""

_SIZES = 16
"""N and K of fp8 products are multiples of this in cuBLASLt."""

_LEAST_ROWS = 17
"""Rows of A that `torch._int_mm` takes."""


def scaled_product(torch: Any, problem: Problem) -> ScaledProduct | None:
    """PyTorch's function for a problem with operands of 8 bits; None if there is none.

    The scales are as `Problem.scale_shapes` describes them; without scales, two ones.
    """
    if problem.batch > 1 or problem.has_fp8_output:
        return None
    if problem.compute == "i8":
        rows = problem.m >= _LEAST_ROWS and problem.layout[0] == "n"
        whole = problem.n % 8 == 0 and problem.k % 8 == 0
        served = problem.output == "i32" and rows and whole and hasattr(torch, "_int_mm")
        return partial(_int_product, torch) if served else None
    whole = problem.n % _SIZES == 0 and problem.k % _SIZES == 0
    if problem.layout != "nt" or not whole or problem.e5m2 == "ab":
        return None
    if (problem.has_bias and problem.output_type == "f32") or not hasattr(torch, "_scaled_mm"):
        return None
    if problem.scale in ("row", "block") and problem.output_type != "bf16":
        return None
    blocks = ceil_div(problem.k, 128)
    if problem.scale == "block" and (blocks % 4 or problem.accumulate == "fast"):
        return None
    return partial(_scaled_mm, torch, problem)


def _scaled_mm(
    torch: Any, problem: Problem, a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, out: Any
) -> object:
    if problem.scale == "row":
        scale_a, scale_b = scale_a.reshape(-1, 1), scale_b.reshape(1, -1)
    elif problem.scale == "block":
        blocks = ceil_div(problem.k, 128)
        scale_a, scale_b = scale_a.reshape(blocks, -1).t(), scale_b.reshape(-1, blocks).t()
    return torch._scaled_mm(
        *(a, b, scale_a, scale_b),
        bias=bias,
        out_dtype=out.dtype,
        use_fast_accum=problem.accumulate == "fast",
        out=out,
    )


def _int_product(
    torch: Any, a: Any, b: Any, _scale_a: Any, _scale_b: Any, _bias: Any, out: Any
) -> object:
    return torch._int_mm(a, b, out=out)
