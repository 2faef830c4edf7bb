"""The operator `autotune::scaled_mm`: fp8 and int8 operands with scales, as `torch._scaled_mm`."""

from __future__ import annotations

from typing import Any

import torch

from autotune import runtime
from autotune.errors import ArrayError
from autotune.runtime.frameworks.scaled_mm import own_scales
from autotune.torch.operands import readable

SCHEMA = (
    "scaled_mm(Tensor a, Tensor b, Tensor scale_a, Tensor scale_b, Tensor? bias=None, "
    "ScalarType? out_dtype=None, bool use_fast_accum=False) -> Tensor"
)


def scaled_mm(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    out_dtype: Any = torch.bfloat16,
    use_fast_accum: bool = False,
) -> Any:
    """`(scale_a a) (scale_b b) + bias` by the tuned kernels, as a new, row-major tensor.

    The scales mean what they do in `torch._scaled_mm`. No gradient is recorded. The kernels take
    any sizes, any strides of matrices and both operands in e5m2, and `a` and `b` in int8, which
    cuBLAS does not; operands with strides that no kernel reads are copied.

    Args:
        a: (m, k) in `float8_e4m3fn`, `float8_e5m2` or `int8`.
        b: (k, n) of the same type, or the other one of fp8; `weight.t()` is the fastest layout.
        scale_a: fp32, one number, (m, 1) or, for blocks of 1 x 128, (m, ceil(k / 128)).
        scale_b: fp32, one number, (1, n) or, for blocks of 128 x 128,
            (ceil(k / 128), ceil(n / 128)).
        bias: (n,) in `out_dtype`.
        out_dtype: bfloat16, float16 or float32.
        use_fast_accum: whether sums of fp8 products stay in the tensor cores all along K, with 14
            bits. By default sums of 128 are added in fp32.

    Raises:
        ArrayError: if the operands do not fit each other, or no kernel takes them.
        ProblemError: for another `out_dtype`.
        NotFoundError: if no kernel can run the problem on the GPU.
    """
    operator = torch.ops.autotune.scaled_mm.default
    return operator(a, b, scale_a, scale_b, bias, out_dtype, use_fast_accum)


def register(library: Any) -> None:
    """Defines the operator, with its implementations for GPUs, the CPU and fake tensors."""
    library.define(SCHEMA)
    library.impl("scaled_mm", on_gpu, "CUDA")
    library.impl("scaled_mm", by_torch, "CPU")
    torch.library.register_fake("autotune::scaled_mm", _fake, lib=library)


def on_gpu(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:
    """The product by the tuned kernel."""
    _check(a, b, bias)
    if 0 in (*a.shape, b.shape[1]):
        return by_torch(a, b, scale_a, scale_b, bias, out_dtype)
    scales = own_scales(a, b, scale_a, scale_b)
    try:
        return _multiplied(a, b, *scales, bias, out_dtype, use_fast_accum)
    except ArrayError:
        # Only now, as nearly all operands need no copy.
        a, b = readable(a, "A"), readable(b, "B")
        scales = scales[0].contiguous(), scales[1].contiguous()
        bias = None if bias is None else bias.contiguous()
        return _multiplied(a, b, *scales, bias, out_dtype, use_fast_accum)


def _multiplied(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any, out_dtype: Any, use_fast_accum: bool
) -> Any:
    accumulate = "fast" if use_fast_accum and a.dtype is not torch.int8 else None
    return runtime.current()(
        *(a, b),
        bias=bias,
        scale_a=scale_a,
        scale_b=scale_b,
        accumulate=accumulate,
        out_dtype=out_dtype or torch.bfloat16,
    )


def by_torch(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    out_dtype: Any = None,
    use_fast_accum: bool = False,  # noqa: ARG001 - the schema has it
) -> Any:
    """The product by PyTorch, of dequantised operands in fp32."""
    _check(a, b, bias)
    result = _dequantised(a, scale_a) @ _dequantised(b, scale_b)
    if bias is not None:
        result = result + bias.float()
    return result.to(out_dtype or torch.bfloat16)


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
) -> Any:
    """An empty result for fake tensors, which have sizes but no memory."""
    _check(a, b, bias)
    return a.new_empty((a.shape[0], b.shape[1]), dtype=out_dtype or torch.bfloat16)


def _check(a: Any, b: Any, bias: Any) -> None:
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
