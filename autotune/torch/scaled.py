"""The operators `autotune::scaled_mm` and `scaled_mm_amax`: fp8 and int8 operands with scales, as
`torch._scaled_mm`. They are two, as PyTorch (2.11 to 2.15) cannot compile one without its `amax`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

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
    def epilogue(self) -> str:
        """The epilogue, as a problem has it.

        Raises:
            ProblemError: for an unknown activation, or a residual with an activation.
        """
        return epilogue_of(self.bias is not None, self.activation, self.residual is not None)

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

    @property
    def options(self) -> runtime.CallOptions:
        """The arguments that are no tensors, for the runtime."""
        return runtime.CallOptions(
            activation=self.activation,
            compute=self.precision,
            accumulate=self.accumulate,
            dependent=self.dependent,
        )


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
        library.impl(name, of_product(on_gpu), "CUDA")
        library.impl(name, of_product(by_torch), "CPU")
        torch.library.register_fake(f"autotune::{name}", of_product(_fake), lib=library)


def of_product(run: Callable[[ScaledProduct], Any]) -> Callable[..., Any]:
    """An implementation of the operators, which PyTorch calls with the arguments one by one."""
    return lambda *arguments, **named: run(ScaledProduct(*arguments, **named))


def on_gpu(product: ScaledProduct) -> Any:
    """The product by the tuned kernel."""
    a, b = product.a, product.b
    _check(product)
    if 0 in (*a.shape, b.shape[1]):
        return by_torch(product)
    if product.scale_a is None:
        further = product._asdict()
        names = "residual", "scale_result", "amax"
        refuse_additions([name for name in names if further[name] is not None])
        return _quantised(product._replace(a=a.detach(), scale_b=own_scale_b(b, product.scale_b)))
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
        accumulate=product.accumulate,
        dependent=product.dependent,
        out_dtype=product.result_dtype,
        scale_a=product.scale_a,
        scale_b=product.scale_b,
        residual=product.residual,
        scale_result=product.scale_result,
        amax=product.amax,
    )


def _quantised(product: ScaledProduct) -> Any:
    """The product of an A that is quantised on the way in."""
    multiply, options = runtime.quantized_matmul(), product.options

    def multiplied(product: ScaledProduct) -> Any:
        further = {"bias": product.bias, "scale_b": product.scale_b}
        return multiply(product.a, product.b, None, options, product.result_dtype, **further)

    try:
        return multiplied(product)
    except ArrayError:
        # Only now, as nearly all operands need no copy.
        return multiplied(_readable(product)._replace(a=product.a.contiguous()))


def _readable(product: ScaledProduct) -> ScaledProduct:
    """The product with copies of what no kernel can read."""
    names = "scale_a", "scale_b", "bias", "residual"
    copies = contiguous(*(getattr(product, name) for name in names))
    a, b = readable(product.a, "A"), readable(product.b, "B")
    return product._replace(a=a, b=b, **dict(zip(names, copies, strict=True)))


def by_torch(product: ScaledProduct) -> Any:
    """The product by PyTorch, of dequantised operands in fp32."""
    _check(product)
    a, scale_a, b, scale_b = product.a, product.scale_a, product.b, product.scale_b
    if scale_a is None:
        a, scale_a = _quantised_by_torch(a, b, scale_b, product.compute)
    result = _dequantised(a, scale_a) @ _dequantised(b, scale_b)
    if product.bias is not None:
        result = result + product.bias.float()
    if product.activation is not None:
        result = ACTIVATIONS[product.activation](result)
    if product.residual is not None:
        result = result + product.residual.float()
    dtype, amax = product.result_dtype, product.amax
    if dtype not in quantize.LARGEST:
        return result.to(dtype)
    if amax is not None and result.numel():
        amax.copy_(torch.maximum(amax, result.abs().nan_to_num(0.0, posinf=math.inf).amax()))
    if product.scale_result is not None:
        result = result * product.scale_result
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


def _fake(product: ScaledProduct) -> Any:
    """An empty result for fake tensors, which have sizes but no memory."""
    _check(product)
    shape = product.a.shape[0], width_of(product.b.shape[1], product.activation)
    return product.a.new_empty(shape, dtype=product.result_dtype)


def _check(product: ScaledProduct) -> None:
    """Refuses operands that are no matrices or do not fit each other."""
    a, b, bias, residual = product.a, product.b, product.bias, product.residual
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
    _ = product.epilogue  # refuses what does not go together
    shape = a.shape[0], width_of(b.shape[1], product.activation)
    if residual is not None and tuple(residual.shape) != shape:
        raise ArrayError(f"residual is {tuple(residual.shape)}; the product is {tuple(shape)}")
