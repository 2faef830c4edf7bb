"""Recorded kernels on arrays, on the caller's stream, without PyCUDA and without Optuna.

    autotune.runtime.matmul(a, b)              any shape; looked up at its first product
    autotune.runtime.kernel(m, n, k)(a, b)     one shape, looked up and loaded now

The first product of a shape looks its configuration up, compiles or fetches the kernels and loads
them. From then on a product reads the arrays, packs the arguments and launches: nothing is
allocated, waited for or read from disk, so that it can be captured in a CUDA graph.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Any

from autotune import compiler, families, settings
from autotune.device import Device
from autotune.lookup import lookup
from autotune.problem import Problem, compute_of
from autotune.runtime.driver import Driver
from autotune.runtime.kernels import Kernel
from autotune.runtime.product import Array, Product
from autotune.runtime.state import Runtime, Tuner, UntunedWarning
from autotune.store import Store

__all__ = ["Kernel", "Runtime", "UntunedWarning", "current", "kernel", "matmul", "probe"]


def matmul(
    a: Any,
    b: Any,
    out: Array | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 0.0,
    bias: Any = None,
    activation: str | None = None,
    compute: str | None = None,
    accuracy: str = "exact",
    tuner: Tuner | None = None,
) -> Array:
    """`out = act(alpha a b + beta out + bias)`, summed in fp32, on the caller's current stream of
    the operands' GPU.

    The operands are matrices, or batches of them, in fp32, fp16 or bfloat16, of PyTorch, CuPy or
    PyCUDA, or others with `__cuda_array_interface__`, which like PyCUDA has no bfloat16. They are
    row-major or transposed views of such, with gaps between rows and between matrices if they like.
    One matrix is multiplied by each of a batch. The stream is PyTorch's or CuPy's current one (by
    the library of `a`), for PyCUDA the default stream, else the stream that the interface names or
    the default stream. A shape that is not tuned runs with what is known of a similar one or with
    the model's choice, and an `UntunedWarning` says so once.

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
        tuner: is called with the problem and the device first if the shape is not tuned.

    Raises:
        ArrayError: for operands that do not fit each other or that no kernel takes.
        ProblemError: for an unknown activation, compute or accuracy, or too large a batch.
        MissingError: without a driver or a GPU.
        NotFoundError: if no kernel can run the problem.
    """
    product = current()
    if accuracy != "exact":
        compute = compute_of(compute or "f32", accuracy)
    if tuner is not None:
        product.tune(a, b, tuner, bias, activation, compute, out)
    return product(a, b, out, alpha, beta, bias, activation, compute)


def kernel(
    m: int,
    n: int,
    k: int,
    *,
    compute: str = "f32",
    layout: str = "nn",
    batch: int = 1,
    epilogue: str = "none",
    output: str = "same",
    accuracy: str = "exact",
    device: int | None = None,
) -> Kernel:
    """The product of (m, k) by (k, n) matrices, looked up, compiled and loaded.

    It is called as `kernel(a, b, out, alpha, beta, bias)`; see `matmul`.

    Args:
        m: rows of A and C.
        n: columns of B and C.
        k: columns of A, rows of B.
        compute: the precision (see `Problem`).
        layout: how A and B lie in memory (see `Problem`).
        batch: products at once; A and B may have that many matrices, or one for all.
        epilogue: what is done at the end (see `Problem`); with a bias, each call gives one.
        output: `f32` for C and a bias in fp32 though A and B have 16 bits; else `same`.
        accuracy: `near` makes `f32` `tf32x3`; else `exact`.
        device: a GPU's number; None takes that of the current context, else the first.

    Raises:
        ProblemError: for an impossible shape, precision, layout, batch, epilogue or output.
        MissingError: without a driver or a GPU.
        NotFoundError: if no kernel can run the problem.
    """
    chosen = compute_of(compute, accuracy)
    problem, runtime = Problem(m, n, k, chosen, layout, batch, epilogue, output), current().runtime
    ordinal = (runtime.driver.current() or 0) if device is None else device
    return Kernel(runtime, problem, ordinal)


def probe(ordinal: int = 0) -> Device:
    """The identity and limits of a GPU of this machine.

    Raises:
        MissingError: without a driver or a GPU.
        RunnerError: if there is no GPU of that number.
    """
    return Driver.load().probe(ordinal)


@lru_cache(maxsize=1)
def current() -> Product:
    """The process's products, with all that is loaded for them.

    It is the one thing that the package keeps between calls: loaded kernels belong to the
    process, as the driver does, and callers of `matmul` have no place to keep them.

    Raises:
        MissingError: without a driver or a GPU.
    """
    find = partial(lookup, store=Store(settings.cache_dir()))
    build = partial(compiler.compile, cache=settings.cache_dir())
    return Product(Runtime(Driver.load(), find, families.plan, build))
