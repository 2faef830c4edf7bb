"""The operators `autotune::scaled_mm` and `scaled_mm_amax`: fp8 and int8 operands with scales, as
`torch._scaled_mm`. They are two, as PyTorch (2.11 to 2.15) cannot compile one without its `amax`.
"""

from __future__ import annotations

import math
from typing import Any

import torch

from autotune import runtime
from autotune.errors import ArrayError
from autotune.problem import ELEMENT_TYPES, epilogue_of
from autotune.runtime.arrays import ArrayInfo
from autotune.runtime.frameworks.scaled_mm import own_scale_b, own_scales
from autotune.runtime.quantized_operand import refuse_additions, target_beside
from autotune.torch import quantize
from autotune.torch.operands import contiguous, readable, width_of
from autotune.torch.operator import ACTIVATIONS

_ARGUMENTS = (
    "Tensor a, Tensor b, Tensor? scale_a, Tensor scale_b, Tensor? bias=None, "
    "ScalarType? out_dtype=None, bool use_fast_accum=False, str? compute=None, "
    "bool dependent=False, Tensor? residual=None, str? activation=None, "
    "Tensor? scale_result=None"
)
SCHEMAS = {
    "scaled_mm": f"({_ARGUMENTS}) -> Tensor",
    "scaled_mm_amax": f"({_ARGUMENTS}, *, Tensor(a!) amax) -> Tensor",
}

COMPUTES = {
    getattr(torch, row.dtype): row.compute
    for row in ELEMENT_TYPES.values()
    if row.bytes == 1 and row.compute and hasattr(torch, row.dtype)
}
"""The precision of an A that is quantised on the way in, by the type of B."""


def scaled_mm(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    out_dtype: Any = torch.bfloat16,
    use_fast_accum: bool = False,
    compute: str | None = None,
    dependent: bool = False,
    residual: Any = None,
    activation: str | None = None,
    scale_result: Any = None,
    amax: Any = None,
) -> Any:
    """`act((scale_a a) (scale_b b) + bias) + residual` by the tuned kernels, as a new, row-major
    tensor.

    The scales mean what they do in `torch._scaled_mm`. No gradient is recorded. The kernels take
    any sizes, any strides of matrices and both operands in e5m2, and `a` and `b` in int8, which
    cuBLAS does not; operands with strides that no kernel reads are copied.

    Without a `scale_a`, `a` is quantised on the way in, as by `autotune.quantize` with scales of
    the granularity of `scale_b`: to the type of `b`, or as `compute` says.

    Args:
        a: (m, k) in `float8_e4m3fn`, `float8_e5m2` or `int8`; to be quantised in float32, float16
            or bfloat16.
        b: (k, n) of the same type, or the other one of fp8; `weight.t()` is the fastest layout.
        scale_a: fp32, one number, (m, 1) or, for blocks of 1 x 128, (m, ceil(k / 128)); or None.
        scale_b: fp32, one number, (1, n) or, for blocks of 128 x 128,
            (ceil(k / 128), ceil(n / 128)).
        bias: (n,) in `out_dtype`; bfloat16 for fp8.
        out_dtype: bfloat16, float16 or float32; of fp8 operands also either fp8 type, without a
            residual.
        use_fast_accum: whether sums of fp8 products stay in the tensor cores all along K, with 14
            bits. By default sums of 128 are added in fp32.
        compute: for an `a` that is quantised: `f8`, `i8`, or `f8e5` for the other type of fp8.
        dependent: whether kernels start by programmatic dependent launch; see `autotune.matmul`.
        residual: (m, n) in `out_dtype`.
        activation: that of `autotune.torch.mm`.
        scale_result: one number that a result in fp8 is multiplied by; None is 1.
        amax: one fp32 number that is raised to the largest size of an fp8 result before its scale.

    Raises:
        UsageError: for `dependent` on a device below compute capability 9.0.
        ArrayError: if the operands do not fit each other, or no kernel takes them.
        ProblemError: for another `out_dtype`, or an unknown activation.
        NotFoundError: if no kernel can run the problem on the GPU.
    """
    operands = a, b, scale_a, scale_b, bias
    rest = out_dtype, use_fast_accum, compute, dependent, residual, activation, scale_result
    if amax is None:
        return torch.ops.autotune.scaled_mm.default(*operands, *rest)
    return torch.ops.autotune.scaled_mm_amax.default(*operands, *rest, amax=amax)


def register(library: Any) -> None:
    """Defines the operators, with their implementations for GPUs, the CPU and fake tensors."""
    for name, schema in SCHEMAS.items():
        library.define(name + schema)
        library.impl(name, on_gpu, "CUDA")
        library.impl(name, by_torch, "CPU")
        torch.library.register_fake(f"autotune::{name}", _fake, lib=library)


def accumulation(use_fast_accum: bool, b: Any) -> str | None:
    """The accumulation that PyTorch's flag asks for; int8 sums are exact either way."""
    return "fast" if use_fast_accum and b.dtype is not torch.int8 else None


def on_gpu(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
    compute: str | None = None,
    dependent: bool = False,
    residual: Any = None,
    activation: str | None = None,
    scale_result: Any = None,
    amax: Any = None,
) -> Any:
    """The product by the tuned kernel."""
    _check(a, b, bias, residual, activation)
    if 0 in (*a.shape, b.shape[1]):
        rest = use_fast_accum, compute, dependent, residual, activation, scale_result, amax
        return by_torch(a, b, scale_a, scale_b, bias, out_dtype, *rest)
    options = runtime.QuantizedKeywords(
        activation=activation,
        compute=compute or COMPUTES.get(b.dtype),
        accumulate=accumulation(use_fast_accum, b),
        dependent=dependent,
    )
    dtype = out_dtype or torch.bfloat16
    if scale_a is None:
        refuse_additions(residual=residual, scale_result=scale_result, amax=amax)
        return _quantised(a.detach(), b, scale_b, bias, dtype, options)
    scales, of_result = own_scales(a, b, scale_a, scale_b), (scale_result, amax)
    try:
        return _multiplied(a, b, *scales, bias, dtype, options, residual, *of_result)
    except ArrayError:
        # Only now, as nearly all operands need no copy.
        a, b = readable(a, "A"), readable(b, "B")
        of_a, of_b, bias, residual = contiguous(*scales, bias, residual)
        return _multiplied(a, b, of_a, of_b, bias, dtype, options, residual, *of_result)


def _multiplied(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any,
    dtype: Any,
    options: runtime.QuantizedKeywords,
    residual: Any,
    scale_result: Any,
    amax: Any,
) -> Any:
    return runtime.current()(
        *(a, b),
        bias=bias,
        scale_a=scale_a,
        scale_b=scale_b,
        activation=options.activation,
        accumulate=options.accumulate,
        dependent=options.dependent,
        out_dtype=dtype,
        residual=residual,
        scale_result=scale_result,
        amax=amax,
    )


def _quantised(
    a: Any, b: Any, scale_b: Any, bias: Any, dtype: Any, options: runtime.QuantizedKeywords
) -> Any:
    """The product of an A that is quantised on the way in."""
    of_b, multiply = own_scale_b(b, scale_b), runtime.quantized_matmul()
    try:
        return multiply(a, b, None, bias, of_b, options, dtype)
    except ArrayError:
        # Only now, as nearly all operands need no copy.
        a, b, of_b = a.contiguous(), readable(b, "B"), of_b.contiguous()
        bias = None if bias is None else bias.contiguous()
        return multiply(a, b, None, bias, of_b, options, dtype)


def by_torch(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,  # noqa: ARG001 - the schema has it
    compute: str | None = None,
    dependent: bool = False,  # noqa: ARG001 - the schema has it
    residual: Any = None,
    activation: str | None = None,
    scale_result: Any = None,
    amax: Any = None,
) -> Any:
    """The product by PyTorch, of dequantised operands in fp32."""
    _check(a, b, bias, residual, activation)
    if scale_a is None:
        a, scale_a = _quantised_by_torch(a, b, scale_b, compute)
    result = _dequantised(a, scale_a) @ _dequantised(b, scale_b)
    if bias is not None:
        result = result + bias.float()
    if activation is not None:
        result = ACTIVATIONS[activation](result)
    if residual is not None:
        result = result + residual.float()
    dtype = out_dtype or torch.bfloat16
    if dtype not in quantize.LARGEST:
        return result.to(dtype)
    if amax is not None and result.numel():
        amax.copy_(torch.maximum(amax, result.abs().nan_to_num(0.0, posinf=math.inf).amax()))
    if scale_result is not None:
        result = result * scale_result
    largest = quantize.LARGEST[dtype]
    return result.clamp(-largest, largest).to(dtype)


def _quantised_by_torch(a: Any, b: Any, scale_b: Any, compute: str | None) -> tuple[Any, Any]:
    """A quantised for B, and its scales as `torch._scaled_mm` takes them."""
    first, second = (
        ArrayInfo(name, tuple(tensor.shape), (), _name(tensor.dtype), 0)
        for name, tensor in (("A", a), ("B", b))
    )
    target = target_beside(first, second, compute or COMPUTES.get(b.dtype))
    own_scale_b(b, scale_b)  # refuses other shapes
    shape = tuple(scale_b.shape)
    word = "tensor" if set(shape) <= {1} else "row" if shape == (1, b.shape[1]) else "block"
    q, scales = quantize.by_torch(a, word, getattr(torch, target.dtype))
    if word == "tensor":
        return q, scales
    return q, scales[:, None] if word == "row" else scales.t()


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _dequantised(matrix: Any, scales: Any) -> Any:
    """A matrix times its scales, each of which may be for several rows or columns."""
    if scales.dim() == 2:
        for axis, size in enumerate(matrix.shape):
            if scales.shape[axis] not in (1, size):
                repeated = scales.repeat_interleave(128, dim=axis)
                scales = repeated.narrow(axis, 0, size)
    return matrix.float() * scales


def _fake(
    a: Any,
    b: Any,
    scale_a: Any,  # noqa: ARG001 - the schema has it
    scale_b: Any,  # noqa: ARG001 - the schema has it
    bias: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,  # noqa: ARG001 - the schema has it
    compute: str | None = None,  # noqa: ARG001 - the schema has it
    dependent: bool = False,  # noqa: ARG001 - the schema has it
    residual: Any = None,
    activation: str | None = None,
    scale_result: Any = None,  # noqa: ARG001 - the schema has it
    amax: Any = None,  # noqa: ARG001 - the schema has it
) -> Any:
    """An empty result for fake tensors, which have sizes but no memory."""
    _check(a, b, bias, residual, activation)
    shape = a.shape[0], width_of(b.shape[1], activation)
    return a.new_empty(shape, dtype=out_dtype or torch.bfloat16)


def _check(a: Any, b: Any, bias: Any, residual: Any, activation: str | None) -> None:
    """Refuses operands that are no matrices or do not fit each other."""
    for name, operand in (("A", a), ("B", b)):
        if operand.dim() != 2:
            shape = tuple(operand.shape)
            raise ArrayError(f"{name} has {operand.dim()} dimensions {shape}; give a matrix")
    if a.shape[1] != b.shape[0]:
        raise ArrayError(
            f"A {tuple(a.shape)} times B {tuple(b.shape)}: the inner sizes {a.shape[1]} and "
            f"{b.shape[0]} differ"
        )
    if bias is not None and tuple(bias.shape) != (b.shape[1],):
        raise ArrayError(
            f"bias is {tuple(bias.shape)}; the product has {b.shape[1]} columns: give "
            f"{(b.shape[1],)}"
        )
    epilogue_of(bias is not None, activation, residual is not None)
    shape = a.shape[0], width_of(b.shape[1], activation)
    if residual is not None and tuple(residual.shape) != shape:
        raise ArrayError(f"residual is {tuple(residual.shape)}; the product is {tuple(shape)}")
