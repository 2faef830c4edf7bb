"""The operators on 8 bits: `autotune::scaled_mm` multiplies fp8 and int8 operands with scales, as
`torch._scaled_mm`; `autotune::quantize` makes such operands.

`autotune::scaled_mm_amax` is an operator of its own, as PyTorch (2.11 to 2.15) cannot compile one
without its `amax`.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch

from autotune import runtime
from autotune.errors import ArrayError, UsageError
from autotune.problem import SCALE_BLOCK
from autotune.problem.integers import ceil_div
from autotune.runtime.frameworks import own_scale_b, own_scales
from autotune.runtime.quantized import GRANULARITIES, SOURCES, TARGETS, quantizer, target_beside
from autotune.settings import Policy
from autotune.torch.operator import (
    called_with,
    contiguous,
    described,
    name_of,
    policy_with,
    readable,
    run_under,
    shape_of,
    traced_policy,
    with_epilogue,
)

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
QUANTIZE_SCHEMA = "quantize(Tensor x, str scale, ScalarType dtype) -> (Tensor, Tensor)"

COMPUTES = {
    getattr(torch, row.dtype): row.compute
    for row in TARGETS.values()
    if row.compute and hasattr(torch, row.dtype)
}
"""The precision of an A that is quantised on the way in, by the type of B."""

LARGEST = {
    getattr(torch, row.dtype): row.largest for row in TARGETS.values() if hasattr(torch, row.dtype)
}
"""The largest number of each type of 8 bits."""

LEAST_NORMAL = torch.finfo(torch.float32).tiny


class ScaledProduct(NamedTuple):
    """The arguments of the operators, in the order of `SCHEMAS`."""

    a: Any
    b: Any
    scale_a: Any
    scale_b: Any
    bias: Any = None
    out_dtype: Any = None
    use_fast_accum: bool = False
    compute: str | None = None
    dependent: bool = False
    residual: Any = None
    activation: str | None = None
    scale_result: Any = None
    amax: Any = None

    @property
    def accumulate(self) -> str | None:
        """The accumulation that PyTorch's flag asks for; int8 sums are exact either way."""
        return "fast" if self.use_fast_accum and self.b.dtype is not torch.int8 else None

    @property
    def precision(self) -> str | None:
        """The precision of a product whose A is quantised on the way in."""
        return self.compute or COMPUTES.get(self.b.dtype)

    @property
    def result_dtype(self) -> Any:
        """PyTorch's dtype of the result."""
        return self.out_dtype or torch.bfloat16


def scaled_mm(
    a: Any,
    b: Any,
    scale_a: Any,
    scale_b: Any,
    bias: Any = None,
    out_dtype: Any = torch.bfloat16,
    use_fast_accum: bool = False,
    compute: str | None = None,
    policy: Policy | None = None,
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
        policy: as in `autotune.torch.mm`, but not batch-invariant.
        residual: (m, n) in `out_dtype`.
        activation: as in `autotune.torch.mm`.
        scale_result: one number that a result in fp8 is multiplied by; None is 1.
        amax: one fp32 number that is raised to the largest size of an fp8 result before its scale.

    Raises:
        UsageError: for `dependent` on a device below compute capability 9.0, or
            `batch_invariant`.
        ArrayError: if the operands do not fit each other, or no kernel takes them.
        ProblemError: for another `out_dtype`, or an unknown activation.
        NotFoundError: if no kernel can run the problem on the GPU.
    """
    policy = traced_policy() if policy is None else policy
    if policy.batch_invariant:
        raise UsageError("scaled_mm is not batch-invariant; call autotune.matmul with the scales")
    product = ScaledProduct(
        *(a, b, scale_a, scale_b, bias, out_dtype),
        use_fast_accum=use_fast_accum,
        compute=compute,
        dependent=policy.dependent,
        residual=residual,
        activation=activation,
        scale_result=scale_result,
        amax=amax,
    )
    return run_under(policy, _run, product)


def _run(product: ScaledProduct) -> Any:
    """The product by the operator that takes its arguments."""
    *arguments, amax = product
    if amax is None:
        return torch.ops.autotune.scaled_mm.default(*arguments)
    return torch.ops.autotune.scaled_mm_amax.default(*arguments, amax=amax)


def register(library: Any) -> None:
    """Defines the operators, with their implementations for GPUs, the CPU and fake tensors."""
    library.define(QUANTIZE_SCHEMA)
    library.impl("quantize", quantize_on_gpu, "CUDA")
    library.impl("quantize", quantize_by_torch, "CPU")
    torch.library.register_fake("autotune::quantize", _fake_quantize, lib=library)
    for name, schema in SCHEMAS.items():
        library.define(name + schema)
        library.impl(name, called_with(ScaledProduct, on_gpu), "CUDA")
        library.impl(name, called_with(ScaledProduct, by_torch), "CPU")
        fake = called_with(ScaledProduct, _fake)
        torch.library.register_fake(f"autotune::{name}", fake, lib=library)


def on_gpu(product: ScaledProduct) -> Any:
    """The product by the tuned kernel."""
    a, b = product.a, product.b
    _shape_of(product)
    if 0 in (*a.shape, b.shape[1]):
        return by_torch(product)
    if product.scale_a is None:
        product = product._replace(a=a.detach(), scale_b=own_scale_b(b, product.scale_b))
    else:
        scale_a, scale_b = own_scales(a, b, product.scale_a, product.scale_b)
        product = product._replace(scale_a=scale_a, scale_b=scale_b)
    try:
        return _multiplied(product)
    except ArrayError:
        # Only now, as nearly all operands need no copy.
        return _multiplied(_readable(product))


def _multiplied(product: ScaledProduct) -> Any:
    return runtime.current()(
        *(product.a, product.b),
        bias=product.bias,
        activation=product.activation,
        compute=None if product.scale_a is not None else product.precision,
        accumulate=product.accumulate,
        policy=policy_with(product.dependent),
        out_dtype=product.result_dtype,
        scale_a=product.scale_a,
        scale_b=product.scale_b,
        residual=product.residual,
        scale_result=product.scale_result,
        amax=product.amax,
    )


def _readable(product: ScaledProduct) -> ScaledProduct:
    """The product with copies of what no kernel can read."""
    names = "scale_a", "scale_b", "bias", "residual"
    copies = contiguous(*(getattr(product, name) for name in names))
    quantising = product.scale_a is None
    a = product.a.contiguous() if quantising else readable(product.a, "A")
    b = readable(product.b, "B")
    return product._replace(a=a, b=b, **dict(zip(names, copies, strict=True)))


def by_torch(product: ScaledProduct) -> Any:
    """The product by PyTorch, of dequantised operands in fp32."""
    _shape_of(product)
    a, scale_a, b, scale_b = product.a, product.scale_a, product.b, product.scale_b
    if scale_a is None:
        a, scale_a = _quantised_by_torch(a, b, scale_b, product.compute)
    result = with_epilogue(_dequantised(a, scale_a) @ _dequantised(b, scale_b), product)
    dtype, amax = product.result_dtype, product.amax
    if dtype not in LARGEST:
        return result.to(dtype)
    if amax is not None and result.numel():
        amax.copy_(torch.maximum(amax, result.abs().nan_to_num(0.0, posinf=math.inf).amax()))
    if product.scale_result is not None:
        result = result * product.scale_result
    largest = LARGEST[dtype]
    return result.clamp(-largest, largest).to(dtype)


def _quantised_by_torch(a: Any, b: Any, scale_b: Any, compute: str | None) -> tuple[Any, Any]:
    """A quantised for B, and its scales as `torch._scaled_mm` takes them."""
    first, second = described(a, "A"), described(b, "B")
    target = target_beside(first, second, compute or COMPUTES.get(b.dtype))
    own_scale_b(b, scale_b)  # refuses other shapes
    shape = tuple(scale_b.shape)
    word = "tensor" if set(shape) <= {1} else "row" if shape == (1, b.shape[1]) else "block"
    q, scales = quantize_by_torch(a, word, getattr(torch, target.dtype))
    if word == "tensor":
        return q, scales
    return q, scales[:, None] if word == "row" else scales.t()


def _dequantised(matrix: Any, scales: Any) -> Any:
    """A matrix times its scales, each of which may be for several rows or columns."""
    if scales.dim() == 2:
        for axis, size in enumerate(matrix.shape):
            if scales.shape[axis] not in (1, size):
                repeated = scales.repeat_interleave(128, dim=axis)
                scales = repeated.narrow(axis, 0, size)
    return matrix.float() * scales


def _fake(product: ScaledProduct) -> Any:
    """An empty result for fake tensors, which have sizes but no memory."""
    return product.a.new_empty(_shape_of(product), dtype=product.result_dtype)


def _shape_of(product: ScaledProduct) -> tuple[Any, ...]:
    """The shape of the result.

    Raises:
        ArrayError: for operands that are not matrices or do not fit each other.
        ProblemError: for an unknown activation, or a residual with an activation.
    """
    a, b = product.a, product.b
    for name, operand in (("A", a), ("B", b)):
        if operand.dim() != 2:
            shape = tuple(operand.shape)
            raise ArrayError(f"{name} has {operand.dim()} dimensions {shape}; give a matrix")
    return shape_of(a, b, product.bias, product.residual, product.activation)


# Quantising.


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
        ArrayError: for a tensor that is not a matrix.
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


def quantize_on_gpu(x: Any, scale: str, dtype: Any) -> tuple[Any, Any]:
    """The matrix by the kernel."""
    _check_quantize(x, scale, dtype)
    if name_of(x.dtype) not in SOURCES or 0 in x.shape:
        return quantize_by_torch(x, scale, dtype)
    x = x.detach()
    if x.stride(1) != 1 or x.stride(0) < x.shape[1]:
        x = x.contiguous()
    return quantizer(runtime.current().runtime)(x, dtype, scale, None)


def quantize_by_torch(x: Any, scale: str, dtype: Any) -> tuple[Any, Any]:
    """The matrix by PyTorch, with the bits that the kernel gives."""
    _check_quantize(x, scale, dtype)
    wide = x.detach().float()
    sizes = _finite(wide)
    if wide.numel() == 0:
        return wide.to(dtype), wide.new_ones(_shape(x, scale))
    if scale == "row":
        largest = sizes.amax(1, keepdim=True)
    elif scale == "tensor":
        largest = sizes.amax().reshape(1, 1)
    else:
        largest = _blocks(sizes, 1).amax((1, 3))
    scales, factors = _scales(largest, dtype)
    if scale != "block":
        return _rounded(wide * factors, dtype), scales.reshape(-1)
    expanded = factors.repeat_interleave(SCALE_BLOCK, 1)[:, : wide.shape[1]]
    return _rounded(wide * expanded, dtype), scales.t().contiguous()


def _fake_quantize(x: Any, scale: str, dtype: Any) -> tuple[Any, Any]:
    """Empty results for fake tensors, which have sizes but no memory."""
    _check_quantize(x, scale, dtype)
    return (x.new_empty(x.shape, dtype=dtype), x.new_empty(_shape(x, scale), dtype=torch.float32))


def _check_quantize(x: Any, scale: str, dtype: Any) -> None:
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
