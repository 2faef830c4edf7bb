"""PyTorch's functions for a problem: cuBLAS's calls, their sizes, and tensors they can read."""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from autotune.problem.fields import SCALE_BLOCK
from autotune.problem.integers import ceil_div, round_up
from autotune.problem.problem import Problem

LAYOUT = "nt"
"""The layout in which PyTorch's 8-bit functions read A and B."""
ALIGNED = 16
"""The unit of N and K in fp8: other sizes are refused, and padded to a multiple."""
INTEGER_ALIGNED, FEWEST_ROWS, PADDED_ROWS = 8, 17, 32
"""`torch._int_mm` refuses N and K that are not multiples of 8, and less than 17 rows."""
BLOCKS_ALIGNED, ROWS_ALIGNED = 4, 4
"""Scales along K, and rows, of 1 x 128 blocks come in multiples of these."""


def library_sizes(problem: Problem) -> tuple[int, int, int]:
    """M, N and K of the smallest 8-bit problem that contains this one and is not refused."""
    m, n, k = problem.m, problem.n, problem.k
    if problem.operand_elements[0].integer:
        accepted = n % INTEGER_ALIGNED == k % INTEGER_ALIGNED == 0
        rows = m if m >= FEWEST_ROWS else PADDED_ROWS
        return (rows, n, k) if accepted else (rows, round_up(n, ALIGNED), round_up(k, ALIGNED))
    if problem.scale == "block":
        whole = BLOCKS_ALIGNED * SCALE_BLOCK
        return round_up(m, ROWS_ALIGNED), round_up(n, SCALE_BLOCK), round_up(k, whole)
    return m, round_up(n, ALIGNED), round_up(k, ALIGNED)


def in_place(torch: Any, activation: str) -> Callable[[Any], object]:
    """The function of PyTorch that applies an activation to a tensor in place."""
    if activation == "relu":
        relu: Callable[[Any], object] = torch.relu_
        return relu
    aten = torch.ops.aten
    if activation == "gelu_tanh":
        return partial(aten.gelu_, approximate="tanh")
    function: Callable[[Any], object] = getattr(aten, f"{activation}_")
    return function


def fused(torch: Any, problem: Problem) -> Callable[..., object] | None:
    """PyTorch's function of (bias, A, B) that also applies the activation, in cuBLASLt's epilogue;
    None if there is none for the problem.

    Its GELU is the tanh form. It is not trusted to be as accurate as fp32.
    """
    short = problem.output_element.roundoff > 0
    plain = problem.batch == 1 and problem.output == "same" and problem.precision.vendor is not None
    gelu = problem.activation == "gelu_tanh" and short
    if not (plain and problem.has_bias and (gelu or problem.activation == "relu")):
        return None
    function = getattr(torch, "_addmm_activation", None)
    return function and partial(function, use_gelu=gelu)


ScaledProduct = Callable[..., object]
"""A function of A, B, the scales of A and B, a bias or None, and C; it has no activation."""


def scaled_product(torch: Any, problem: Problem) -> ScaledProduct | None:
    """PyTorch's function for a problem with operands of 8 bits; None if there is none.

    The scales are as `Problem.scale_shapes` describes them; without scales, two ones.
    """
    if problem.batch > 1 or problem.has_fp8_output:
        return None
    if problem.compute == "i8":
        rows = problem.m >= FEWEST_ROWS and problem.layout[0] == "n"
        whole = problem.n % INTEGER_ALIGNED == problem.k % INTEGER_ALIGNED == 0
        served = problem.output == "i32" and rows and whole and hasattr(torch, "_int_mm")
        return partial(_int_product, torch) if served else None
    whole = problem.n % ALIGNED == problem.k % ALIGNED == 0
    if problem.layout != LAYOUT or not whole or problem.e5m2 == "ab":
        return None
    if (problem.has_bias and problem.output_type == "f32") or not hasattr(torch, "_scaled_mm"):
        return None
    if problem.scale in ("row", "block") and problem.output_type != "bf16":
        return None
    blocks = ceil_div(problem.k, SCALE_BLOCK)
    if problem.scale == "block" and (blocks % BLOCKS_ALIGNED or problem.accumulate == "fast"):
        return None
    return partial(_scaled_mm, torch, problem)


def _scaled_mm(
    torch: Any, problem: Problem, a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, out: Any
) -> object:
    if problem.scale == "row":
        scale_a, scale_b = scale_a.reshape(-1, 1), scale_b.reshape(1, -1)
    elif problem.scale == "block":
        blocks = ceil_div(problem.k, SCALE_BLOCK)
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


def is_instance(array: object, module: str, kind: str) -> bool:
    """Whether an array is of a class of a module, which may not be imported."""
    return isinstance(array, getattr(sys.modules.get(module), kind, ()))


def obstacle(torch: Any, tensor: Any) -> str | None:
    """Why no kernel can read a tensor's memory, lazy negation and conjugation apart, and what to
    do; None if one can."""
    kind = type(tensor)
    if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
        return f"is a {kind.__qualname__}, which does not own its memory; give a plain torch.Tensor"
    if tensor.is_nested:
        return "is nested; give a plain tensor, such as by torch.nested.to_padded_tensor"
    if tensor.layout is not torch.strided:
        return f"has the layout {tensor.layout}; give a dense tensor (.to_dense())"
    if tensor.is_quantized:
        return f"is quantised to {tensor.dtype}; give .dequantize(), or .int_repr() and its scale"
    if tensor.device.type == "meta":
        return "is on the meta device, without elements; give a tensor on a CUDA device"
    try:
        lacking = tensor.numel() > 0 and not tensor.data_ptr()
    except (RuntimeError, ValueError):  # inside a transform of torch.func, or not initialised yet
        lacking = True
    if lacking:
        return (
            "has no memory (a lazy zero, a tensor inside a transform of torch.func, or one not "
            "initialised); give a plain tensor; for a lazy zero, its .clone()"
        )
    return None
