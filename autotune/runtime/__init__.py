"""Runs recorded kernels on arrays, on the caller's stream, without PyCUDA and without Optuna.

    autotune.runtime.current()(a, b)           any shape; looked up at its first call
    autotune.runtime.batch_invariant()(a, b)   the same in one order of summation for every M
    autotune.runtime.load(problem)(a, b)       one problem, looked up and loaded now
    autotune.runtime.load_all(problems)        all problems of a program, loaded beforehand

The first call of a shape looks its configuration up, compiles the kernels or fetches them from the
cache, and loads them. Later calls read the arrays and launch. They do not allocate, wait or touch
the disk, so a CUDA graph can capture them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from autotune import settings
from autotune.cores import available
from autotune.cuda import compiler
from autotune.device import Device
from autotune.families import registry
from autotune.families.plan import Alignment
from autotune.lookup.answer import Answer
from autotune.lookup.batch_invariant import required
from autotune.lookup.lookup import finder
from autotune.measure.objective import Objective, time_objective
from autotune.problem import Problem
from autotune.records import Records, Store
from autotune.runtime.kernels import Kernel
from autotune.runtime.launcher import Driver
from autotune.runtime.matmul import Matmul
from autotune.runtime.operands import CallOptions
from autotune.runtime.state import Runtime, UntunedWarning
from autotune.settings import DEFAULT_POLICY, Mode, Policy

__all__ = [
    "CallOptions",
    "Kernel",
    "Runtime",
    "UntunedWarning",
    "batch_invariant",
    "current",
    "entered",
    "load",
    "load_all",
    "probe",
]


def load(
    problem: Problem,
    ordinal: int | None = None,
    policy: Policy = DEFAULT_POLICY,
) -> Kernel:
    """The kernel of a problem, looked up, compiled and loaded on a GPU.

    Args:
        problem: the problem.
        ordinal: number of the GPU; None is that of the current context, else the first.
        policy: whether to take the kernel of cold operands or of a batch-invariant range, and
            whether to check it for operands without gaps.

    Raises:
        MissingError: without a driver or a GPU.
        NotFoundError: if no kernel can run the problem, or no range serves it.
        VerificationError: if the check fails.
    """
    runtime = _followed(policy).runtime
    number = _ordinal(runtime, ordinal)
    kernel = Kernel(runtime, problem, number, time_objective(policy.cold), policy.library)
    if policy.verify:
        runtime.verify(kernel.config, problem, number, Alignment.dense(problem))
    return kernel


def load_all(
    problems: Sequence[Problem],
    ordinal: int | None = None,
    jobs: int | None = None,
    policy: Policy = DEFAULT_POLICY,
) -> tuple[Answer, ...]:
    """Looks up, compiles in parallel and loads the kernels of problems for matmul on a GPU.

    Args:
        problems: the problems of later calls.
        ordinal: number of the GPU; None is that of the current context, else the first.
        jobs: threads that compile; None is one for each core.
        policy: whether to take the kernels of cold operands or of batch-invariant ranges, and
            whether to check them for operands without gaps.

    Returns:
        The answer for each problem, in their order.

    Raises:
        MissingError: without a driver or a GPU.
        NotFoundError: if no kernel can run a problem, or no range serves it.
        AutotuneError: if a kernel does not compile, or fails its check.
    """
    runtime = _followed(policy).runtime
    number = _ordinal(runtime, ordinal)
    objective = time_objective(policy.cold)
    answers = runtime.warm(problems, number, jobs or available(), objective, policy.library)
    for answer in answers if policy.verify else ():
        dense = Alignment.dense(answer.problem)
        runtime.verify(answer.config, answer.problem, number, dense)
    return answers


def probe(ordinal: int = 0) -> Device:
    """The identity and limits of a GPU of this machine.

    Raises:
        MissingError: without a driver or a GPU.
        RunnerError: if there is no GPU of that number.
    """
    return Driver.load().probe(ordinal)


@lru_cache(maxsize=1)
def current() -> Matmul:
    """The process's own matmul in its present mode, with everything that is loaded for it.

    This is the only state that the package keeps between calls: loaded kernels belong to the
    process, as the driver does, and the callers of `autotune.matmul` have no place to keep them.

    Raises:
        MissingError: without a driver or a GPU.
    """
    return _matmul(settings.mode(), settings.cache_dir())


@lru_cache(maxsize=1)
def batch_invariant() -> Matmul:
    """The process's own matmul of batch-invariant kernels, with all that is loaded for it.

    Raises:
        MissingError: without a driver or a GPU.
    """
    return _matmul(settings.mode(), settings.cache_dir(), invariant=True)


def _followed(policy: Policy) -> Matmul:
    """The process's own matmul of the kernels that a policy asks for."""
    return batch_invariant() if policy.batch_invariant else current()


@contextmanager
def entered(policy: Policy) -> Iterator[None]:
    """Makes a policy the current one within a `with` block. A frozen one freezes the process.

    Raises:
        UsageError: for values that a field does not have.
    """
    policy.check()
    mode = policy.mode
    with settings.following(policy), settings.entered(mode) if mode else nullcontext():
        if mode:
            _forget_mode()
        try:
            yield
        finally:
            if mode:
                _forget_mode()


def _forget_mode() -> None:
    current.cache_clear()
    batch_invariant.cache_clear()


@lru_cache(maxsize=8)
def _matmul(mode: Mode, cache: Path, invariant: bool = False) -> Matmul:
    """The matmul of a mode, or its `invariant` one, whose kernels add up in the order of their
    batch-invariant range. What runs in one mode is never what another looked up."""
    records, look_up = Records(Store(cache)), finder(mode)
    if invariant:
        look_up = required
        mode = replace(mode, missing="raise")  # the vendor's library has an order of its own

    def find(problem: Problem, device: Device, objective: Objective) -> Answer | None:
        return look_up(problem, device, records, objective)

    build = partial(compiler.compile, cache=cache, here=True, with_installed=not invariant)
    return Matmul(Runtime(Driver.load(), find, registry.plan, build, mode))


def _ordinal(runtime: Runtime, ordinal: int | None) -> int:
    """The GPU that a caller named, else that of the current context, else the first."""
    return (runtime.driver.current() or 0) if ordinal is None else ordinal
