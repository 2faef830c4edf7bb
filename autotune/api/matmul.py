"""The product of two arrays by the best that is known of its shape."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from autotune import runtime
from autotune.device import Device
from autotune.problem import Problem, compute_of
from autotune.targets import local

if TYPE_CHECKING:
    from autotune.runtime.matmul import Array


def matmul(
    a: Any,
    b: Any,
    out: Array | None = None,
    alpha: float = 1.0,
    beta: float = 0.0,
    *,
    tune: bool = False,
    bias: Any = None,
    activation: str | None = None,
    compute: str | None = None,
    accuracy: str = "exact",
    vendor: bool = True,
) -> Array:
    """`out = act(alpha a b + beta out + bias)`, summed in fp32, on the caller's current stream of
    the operands' GPU.

    The operands are matrices, or batches of them, in fp32, fp16 or bfloat16, of PyTorch, CuPy or
    PyCUDA, or others with `__cuda_array_interface__`, which like PyCUDA has no bfloat16, or DLPack.
    They are row-major or transposed views of such, with gaps between rows and between matrices if
    they like. One matrix is multiplied by each of a batch.

    The stream is PyTorch's or CuPy's current one (by the library of `a`), for PyCUDA and DLPack the
    default stream, else the one that the interface names or the default stream. Where cuBLAS was
    measured to be faster than our kernels, it multiplies PyTorch's and CuPy's arrays, through their
    library. A shape that is not tuned runs with what is known of a similar one or with the model's
    choice, and an `UntunedWarning` says so once.

    Args:
        a: (m, k) or (batch, m, k).
        b: (k, n) or (batch, k, n).
        out: (m, n), or (batch, m, n) if a or b has a batch; row-major, apart from a and b; if None,
            the library of `a` allocates it. Of the type of a and b, or fp32.
        alpha: factor of the product.
        beta: factor of what `out` holds, which is not read if this is 0.
        bias: (n,), added to every row; of the type of `out`.
        activation: `relu`, `gelu` (the exact one, with erf) or None.
        compute: the precision (see `Problem`); by default that of the operands' type. Those of
            fp32 can also be multiplied as `tf32` or `tf32x3`.
        accuracy: `exact`, or `near` for `tf32x3`.
        vendor: whether cuBLAS may multiply. In fp32 it never does where PyTorch's setting of TF32
            is not what the compute asks for.
        tune: tunes the shape first if it is not tuned, for at most 60 s.

    Raises:
        ArrayError: for operands that do not fit each other or that no kernel takes.
        ProblemError: for an unknown activation, compute or accuracy, or too large a batch.
        MissingError: without a driver or a GPU; with `tune` also without PyCUDA.
        NotFoundError: if no kernel can run the problem.
    """
    product = runtime.current()
    if accuracy != "exact":
        compute = compute_of(compute or "f32", accuracy)
    if tune:
        product.tune(a, b, _tuner, bias, activation, compute, out)
    return product(a, b, out, alpha, beta, bias, activation, compute, vendor)


def _tuner(problem: Problem, device: Device) -> object:
    from autotune.api import tuning
    from autotune.tuning.options import options_of

    options = options_of(None, None, 0, "gp", None)
    return tuning.search(problem, options, device=local.index_of(device))
