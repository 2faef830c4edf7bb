"""The process's own matmul, and what is looked up and loaded for it: kernels, warm-up, GPUs."""

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
from autotune.runtime.driver import Driver
from autotune.runtime.kernels import Kernel
from autotune.runtime.matmul import Matmul
from autotune.runtime.state import Runtime


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
    """The kernel of (m, k) times (k, n) matrices, looked up, compiled and loaded.

    Call it as `kernel(a, b, out, alpha, beta, bias)`, with the arguments of `autotune.matmul`.

    Args:
        m: rows of A and C.
        n: columns of B and C.
        k: columns of A, rows of B.
        compute: the precision (see `Problem`).
        layout: whether A and B are stored transposed (see `Problem`).
        batch: number of matrices of C; A and B each have as many, or one for all.
        epilogue: applied before C is stored (see `Problem`); with a bias, each call passes one.
        output: `f32` stores C, and reads the bias, in fp32 where A and B have 16 bits; else `same`.
        accuracy: `near` computes `f32` as `tf32x3`; else `exact`.
        device: number of a GPU; None is that of the current context, else the first.

    Raises:
        ProblemError: for an impossible shape, precision, layout, batch, epilogue or output.
        MissingError: without a driver or a GPU.
        NotFoundError: if no kernel can run the problem.
    """
    compute = compute_of(compute, accuracy)
    problem, runtime = Problem(m, n, k, compute, layout, batch, epilogue, output), current().runtime
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
    """Looks up, compiles in parallel and loads the kernels of these shapes, so that the first
    matmul of each is as fast as the later ones.

    It prepares for operands without gaps that start at multiples of 16 bytes. Other operands may
    need different kernels, which are compiled at their first call. The workspace of a stream, if a
    shape needs one, is allocated at the first call on that stream.

    Args:
        shapes: problems, texts such as `64x4096x4096:bf16:nt` or triples (m, n, k).
        compute: the precision of shapes that name none; the next four likewise.
        layout: whether A and B are stored transposed.
        batch: number of matrices of C.
        epilogue: applied before C is stored.
        output: `f32` stores C, and reads the bias, in fp32 where A and B have 16 bits; else `same`.
        accuracy: `near` computes `f32` as `tf32x3`; else `exact`.
        device: number of a GPU; None is that of the current context, else the first.
        jobs: threads that compile; None is one for each core.

    Returns:
        What runs for each shape, in the order of the shapes.

    Raises:
        ProblemError: for an impossible shape.
        MissingError: without a driver or a GPU.
        NotFoundError: if no kernel can run a shape.
        AutotuneError: if a kernel does not compile.
    """
    defaults = compute_of(compute, accuracy), layout, batch, epilogue, output
    problems = [_problem(shape, *defaults) for shape in shapes]
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
def current() -> Matmul:
    """The process's own matmul, with everything that is loaded for it.

    This is the only state that the package keeps between calls: loaded kernels belong to the
    process, as the driver does, and the callers of `autotune.matmul` have no place to keep them.

    Raises:
        MissingError: without a driver or a GPU.
    """
    find = partial(lookup, store=Store(settings.cache_dir()))
    build = partial(compiler.compile, cache=settings.cache_dir())
    return Matmul(Runtime(Driver.load(), find, registry.plan, build))


def _ordinal(runtime: Runtime, device: int | None) -> int:
    """The GPU that a caller named, else that of the current context, else the first."""
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
