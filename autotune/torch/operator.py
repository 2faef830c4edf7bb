"""The operator `autotune::mm`: what computes it on each device, and the shape of what it returns.

It is made by `torch.library.Library`. What `torch.library.custom_op` makes takes 20 us more of the
host at each call, several times as long as a small product takes the GPU.
"""

from __future__ import annotations

from typing import Any

import torch

from autotune import runtime
from autotune.errors import ArrayError
from autotune.runtime.frameworks.libraries import tf32_allowed
from autotune.torch.operands import product_shape, readable

SCHEMA = (
    "mm(Tensor a, Tensor b, Tensor? bias=None, str? activation=None, str? compute=None) -> Tensor"
)
ACTIVATIONS = {"relu": torch.relu, "gelu": torch.nn.functional.gelu}


def mm(
    a: Any, b: Any, bias: Any = None, activation: str | None = None, compute: str | None = None
) -> Any:
    """`act(a b + bias)` by the operator `torch.ops.autotune.mm`: a new, row-major tensor.

    On a GPU it is the tuned kernel of the shape, its type and the way the operands lie, so that
    `a @ w.t()` is of layout nt; operands that no kernel reads as they lie are copied. On the CPU
    PyTorch multiplies. It can be differentiated any number of times; the backward pass multiplies
    by this operator too, by kernels of the layouts nt and tn where the forward pass was nn. Where a
    gradient is recorded, `gelu` is PyTorch's and follows the kernel, as its derivative needs what
    goes into it. Under `torch.autocast` the operands become of the type of `compute`, or of
    autocast's if that is None.

    Args:
        a: (m, k) or (batch, m, k), in float32, float16 or bfloat16, on the CPU also float64.
        b: (k, n) or (batch, k, n), of the same type, on the same device.
        bias: (n,), added to every row, of the same type.
        activation: `relu`, `gelu` (the exact one, with erf) or None.
        compute: the precision (see `Problem`); None is that of the type, and for float32 `tf32` if
            PyTorch's settings allow it (`torch.set_float32_matmul_precision("high")`, or
            `torch.backends.cuda.matmul`), else `f32`.

    Raises:
        ArrayError: if the operands do not fit each other, or are of a type that no kernel takes.
        ProblemError: for an unknown activation or compute.
        NotFoundError: if no kernel can run the problem on the GPU.
    """
    operator = torch.ops.autotune.mm.default
    if (
        torch.compiler.is_compiling()  # which cannot go on to the next
        or torch.is_inference_mode_enabled()
        or recording(a, b, bias)
    ):
        return operator(a, b, bias, activation, compute)
    # Past the gradients' own implementation, which would find out the same in 2 us more.
    with torch._C._AutoDispatchBelowAutograd():
        return operator(a, b, bias, activation, compute)


def recording(a: Any, b: Any, bias: Any) -> bool:
    """Whether a gradient will be asked for."""
    wanted = a.requires_grad or b.requires_grad or (bias is not None and bias.requires_grad)
    return bool(wanted and torch.is_grad_enabled())


def register(library: Any) -> None:
    """Defines the operator and what computes it on GPUs, on the CPU and without memory."""
    library.define(SCHEMA)
    library.impl("mm", on_gpu, "CUDA")
    library.impl("mm", by_torch, "CPU")
    torch.library.register_fake("autotune::mm", _fake, lib=library)


def on_gpu(
    a: Any, b: Any, bias: Any = None, activation: str | None = None, compute: str | None = None
) -> Any:
    """The product by the tuned kernel."""
    if compute is None and a.dtype is torch.float32 and tf32_allowed(torch):
        compute = "tf32"
    product = runtime.current()
    try:
        return product(a, b, bias=bias, activation=activation, compute=compute)
    except ArrayError:
        # Nothing of this is looked at before, as nearly all operands are taken as they are.
        if 0 in product_shape(a, b, bias, activation, compute) or a.shape[-1] == 0:
            return by_torch(a, b, bias, activation, compute)
    a, b = readable(a, "A"), readable(b, "B")
    bias = None if bias is None else bias.contiguous()
    return product(a, b, bias=bias, activation=activation, compute=compute)


def by_torch(
    a: Any, b: Any, bias: Any = None, activation: str | None = None, compute: str | None = None
) -> Any:
    """The product by PyTorch, in the precision that it takes for the operands' type."""
    product_shape(a, b, bias, activation, compute)
    product = torch.matmul(a, b)
    if bias is not None:
        product = product + bias
    if activation is not None:
        product = ACTIVATIONS[activation](product)
    return product.contiguous()


def _fake(
    a: Any, b: Any, bias: Any = None, activation: str | None = None, compute: str | None = None
) -> Any:
    return a.new_empty(product_shape(a, b, bias, activation, compute))
