"""The process's own matmul, and the functions that load kernels for it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import lru_cache, partial

from autotune import compiler, settings
from autotune.device import Device
from autotune.families import registry
from autotune.lookup.answer import Answer
from autotune.lookup.lookup import lookup
from autotune.problem import Problem
from autotune.records import Store
from autotune.runtime.driver import Driver
from autotune.runtime.kernels import Kernel
from autotune.runtime.matmul import Matmul
from autotune.runtime.state import Runtime


def load(problem: Problem, ordinal: int | None = None) -> Kernel:
    """The kernel of a problem, looked up, compiled and loaded on a GPU.

    Args:
        problem: the problem.
        ordinal: number of the GPU; None is that of the current context, else the first.

    Raises:
        MissingError: without a driver or a GPU.
        NotFoundError: if no kernel can run the problem.
    """
    runtime = current().runtime
    return Kernel(runtime, problem, _ordinal(runtime, ordinal))


def load_all(
    problems: Sequence[Problem], ordinal: int | None = None, jobs: int | None = None
) -> tuple[Answer, ...]:
    """Looks up, compiles in parallel and loads the kernels of problems for matmul on a GPU.

    Args:
        problems: the problems of later calls.
        ordinal: number of the GPU; None is that of the current context, else the first.
        jobs: threads that compile; None is one for each core.

    Returns:
        What runs for each problem, in their order.

    Raises:
        MissingError: without a driver or a GPU.
        NotFoundError: if no kernel can run a problem.
        AutotuneError: if a kernel does not compile.
    """
    runtime = current().runtime
    return runtime.warm(problems, _ordinal(runtime, ordinal), jobs or os.cpu_count() or 1)


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


def _ordinal(runtime: Runtime, ordinal: int | None) -> int:
    """The GPU that a caller named, else that of the current context, else the first."""
    return (runtime.driver.current() or 0) if ordinal is None else ordinal
