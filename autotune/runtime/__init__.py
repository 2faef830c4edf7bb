"""Recorded kernels on arrays, on the caller's stream, without PyCUDA and without Optuna.

    autotune.runtime.current()(a, b)           any shape; looked up at its first product
    autotune.runtime.kernel(m, n, k)(a, b)     one shape, looked up and loaded now
    autotune.runtime.warmup(["64x4096x4096"])  all of a program's shapes, loaded beforehand

The first product of a shape looks its configuration up, compiles or fetches the kernels and loads
them. From then on a product reads the arrays and launches: nothing is allocated, waited for or read
from disk, so that it can be captured in a CUDA graph.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache, partial

from autotune import compiler, settings
from autotune.device import Device
from autotune.errors import ProblemError
from autotune.families import registry
from autotune.lookup.answer import Answer
from autotune.lookup.lookup import lookup
from autotune.problem import Problem, compute_of
from autotune.records import Store
from autotune.runtime.bound_gemm import BoundGemm
from autotune.runtime.driver import Driver
from autotune.runtime.kernels import Kernel
from autotune.runtime.state import Runtime, UntunedWarning

__all__ = ["Kernel", "Runtime", "UntunedWarning", "current", "kernel", "probe", "warmup"]


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

    It is called as `kernel(a, b, out, alpha, beta, bias)`; see `autotune.matmul`.

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
    return Kernel(runtime, problem, _ordinal(runtime, device))


def warmup(
    shapes: Iterable[Problem | str | Sequence[int]],
    *,
    compute: str = "f32",
    layout: str = "nn",
    batch: int = 1,
    epilogue: str = "none",
    output: str = "same",
    accuracy: str = "exact",
    device: int | None = None,
    jobs: int | None = None,
) -> tuple[Answer, ...]:
    """Looks up, compiles and loads all that products of these shapes take, compiling in parallel,
    so that their first product already is like every other.

    It is for operands that start at multiples of 16 bytes and lie without gaps; others may have
    kernels of their own, which are still compiled when they first come. The workspace of a stream,
    where a shape takes one, is allocated at the stream's first product.

    Args:
        shapes: problems, texts such as `64x4096x4096:bf16:nt` or triples (m, n, k).
        compute: the precision of what does not name one; so the others.
        layout: how A and B lie in memory.
        batch: products at once.
        epilogue: what is done at the end.
        output: `f32` for C and a bias in fp32 though A and B have 16 bits; else `same`.
        accuracy: `near` makes `f32` `tf32x3`; else `exact`.
        device: a GPU's number; None takes that of the current context, else the first.
        jobs: threads that compile; None takes one for each core.

    Returns:
        What runs for each shape, in their order.

    Raises:
        ProblemError: for an impossible shape.
        MissingError: without a driver or a GPU.
        NotFoundError: if no kernel can run a shape.
        AutotuneError: if a kernel does not compile.
    """
    usual = compute_of(compute, accuracy), layout, batch, epilogue, output
    problems = [_problem(shape, *usual) for shape in shapes]
    runtime = current().runtime
    return runtime.warm(problems, _ordinal(runtime, device), jobs or os.cpu_count() or 1)


def probe(ordinal: int = 0) -> Device:
    """The identity and limits of a GPU of this machine.

    Raises:
        MissingError: without a driver or a GPU.
        RunnerError: if there is no GPU of that number.
    """
    return Driver.load().probe(ordinal)


@lru_cache(maxsize=1)
def current() -> BoundGemm:
    """The process's products, with all that is loaded for them.

    It is the one thing that the package keeps between calls: loaded kernels belong to the
    process, as the driver does, and callers of `matmul` have no place to keep them.

    Raises:
        MissingError: without a driver or a GPU.
    """
    find = partial(lookup, store=Store(settings.cache_dir()))
    build = partial(compiler.compile, cache=settings.cache_dir())
    return BoundGemm(Runtime(Driver.load(), find, registry.plan, build))


def _ordinal(runtime: Runtime, device: int | None) -> int:
    return (runtime.driver.current() or 0) if device is None else device


def _problem(
    shape: Problem | str | Sequence[int],
    compute: str,
    layout: str,
    batch: int,
    epilogue: str,
    output: str,
) -> Problem:
    if isinstance(shape, Problem):
        return shape
    if isinstance(shape, str):
        return Problem.parse(
            shape, compute=compute, layout=layout, batch=batch, epilogue=epilogue, output=output
        )
    if len(shape) != 3:
        raise ProblemError(f"shape {tuple(shape)} has {len(shape)} sizes; give (m, n, k)")
    m, n, k = shape
    return Problem(m, n, k, compute, layout, batch, epilogue, output)
