"""Kernels that are looked up, compiled and loaded before their first call."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast, overload

from autotune import runtime, settings
from autotune.errors import AutotuneError, UsageError
from autotune.problem import (
    Problem,
    ProblemArguments,
    ProblemDefaults,
    ProblemLike,
    problem_of,
    problems_of,
)
from autotune.records import KernelRecord
from autotune.records.kernel_record import KernelEntry
from autotune.runners.objective import time_objective

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from autotune.lookup.answer import Answer
    from autotune.runtime import Kernel
    from autotune.runtime.tuned_kernel import TunedKernel
    from autotune.settings import Policy
    from autotune.targets.sources import DeviceLike


@overload
def kernel(
    tuned: KernelRecord | KernelEntry, /, *, device: DeviceLike | None = None
) -> TunedKernel: ...


@overload
def kernel(
    *problem: ProblemLike | int,
    device: DeviceLike | None = None,
    policy: Policy | None = None,
    **arguments: Unpack[ProblemArguments],
) -> Kernel: ...


def kernel(
    *problem: ProblemLike | int | KernelRecord | KernelEntry,
    device: DeviceLike | None = None,
    policy: Policy | None = None,
    **arguments: Unpack[ProblemArguments],
) -> Kernel | TunedKernel:
    """The kernel of a problem, looked up, compiled and loaded; or a tuned kernel of your own.

    Call the kernel of a problem as `kernel(a, b, out, alpha, beta, bias)`, with the arguments of
    `autotune.matmul`; of a policy, a call follows `dependent` and `verify`. A and B may have one
    matrix for the whole batch; an epilogue with a bias takes one at each call. Call a kernel of
    your own with its arguments: arrays of PyTorch, CuPy, PyCUDA or any other library with DLPack
    or `__cuda_array_interface__`, and numbers.

    Args:
        problem: text, a `Problem`, (m, n, k) or three sizes; or the record of a kernel of your own,
            for its best configuration, or one of the record's entries, for any other.
        device: a GPU of this machine, by number, name, `gpu:1` or as a `Device`; None is that of
            the current context, else the first.
        policy: which kernel to take, whether to tune the problem first, and whether to check the
            kernel, for operands without gaps (see `autotune.Policy`); None is the current policy.
            cuBLAS is not called.
        arguments: `compute`, `layout`, `batch`, `epilogue`, `output`, `accuracy`; see `problem_of`.

    Raises:
        ProblemError: for an impossible problem.
        DeviceError: if this machine has no such GPU.
        MissingError: without a driver, a GPU or a compiler.
        UsageError: for a policy with both `tune` and `batch_invariant`.
        NotFoundError: if no kernel can run the problem, or with `batch_invariant` no range serves
            it; or if the record of a kernel of your own does not have its source.
        FrozenError: in the frozen mode, if the kernel is not in the cache.
        VerificationError: with `verify`, if the kernel's result is wrong.
        AutotuneError: if a kernel of your own does not compile for the GPU.
    """
    if isinstance(tuned := problem[0] if problem else None, (KernelRecord, KernelEntry)):
        if len(problem) > 1 or policy is not None or arguments:
            raise UsageError("a kernel of your own takes no argument but device")
        return _tuned(tuned if isinstance(tuned, KernelEntry) else tuned.best, device)
    stated = problem_of(*cast("tuple[ProblemLike | int, ...]", problem), **arguments)
    ordinal = ordinal_of(device)
    with _prepared([stated], ordinal, policy) as followed:
        return runtime.load(stated, ordinal, followed)


def _tuned(entry: KernelEntry, device: DeviceLike | None) -> TunedKernel:
    """A user kernel in a recorded configuration, compiled or taken from the cache, and loaded."""
    from autotune.cuda import compiler
    from autotune.cuda.program import CompileFailure
    from autotune.runtime.tuned_kernel import TunedKernel
    from autotune.user_kernels.sources import unpacked

    launch = entry.launchable()
    own, ordinal = runtime.current().runtime, ordinal_of(device)
    if ordinal is None:
        ordinal = own.driver.current() or 0
    gpu, plan = own.gpu(ordinal).device, launch.plan(entry.config)
    with unpacked(launch.source) as (folder, folders):
        program = compiler.compile(
            plan.main.template,
            gpu.arch,
            sources=folder,
            includes=folders,
            cache=settings.cache_dir(),
        )
    if isinstance(program, CompileFailure):
        raise AutotuneError(f"{entry.config} does not compile for {gpu.arch}: {program.reason}")
    return TunedKernel(own, ordinal, launch.call, plan, program)


def warmup(
    shapes: Iterable[ProblemLike],
    *,
    device: DeviceLike | None = None,
    jobs: int | None = None,
    policy: Policy | None = None,
    **defaults: Unpack[ProblemDefaults],
) -> tuple[Answer, ...]:
    """Looks up, compiles in parallel and loads the kernels of these shapes, so that the first
    matmul of each is as fast as the later ones.

    It prepares for operands without gaps that start at multiples of 16 bytes. Other operands may
    need different kernels, which are compiled at their first call. The workspace of a stream, if a
    shape needs one, is allocated at the first call on that stream.

    Args:
        shapes: problems, texts such as `64x4096x4096:bf16:nt` or triples (m, n, k).
        device: as for `kernel`.
        jobs: compiler threads; None is one for each core.
        policy: as for `kernel`; a matmul with the same `cold` and `batch_invariant` finds the
            kernels. `tune` tunes each shape that is not tuned first, and `quick` races the most
            promising configurations and cuBLAS of each shape without a record.
        defaults: `compute`, `layout`, `batch`, `epilogue`, `output` and `accuracy` of shapes that
            do not state them.

    Returns:
        The answer for each shape, in the order of the shapes.

    Raises:
        ProblemError: for an impossible shape.
        DeviceError: if this machine has no such GPU.
        MissingError: without a driver or a GPU.
        NotFoundError: if no kernel can run a shape; with `batch_invariant`, if no range serves it.
        UsageError: for a policy with both `tune` and `batch_invariant`.
        AutotuneError: if a kernel does not compile, or fails its check.
    """
    problems, ordinal = problems_of(shapes, **defaults), ordinal_of(device)
    with _prepared(problems, ordinal, policy) as followed:
        return runtime.load_all(problems, ordinal, jobs, followed)


@contextmanager
def _prepared(
    problems: Iterable[Problem], ordinal: int | None, policy: Policy | None
) -> Iterator[Policy]:
    """Enters the policy to load kernels by, and tunes the problems first if it says so.

    Raises:
        UsageError: for a policy with both `tune` and `batch_invariant`.
    """
    policy = settings.policy() if policy is None else policy
    with runtime.entered(policy):
        if policy.tune and policy.batch_invariant:
            raise UsageError(
                "a batch-invariant kernel is not tuned alone; tune its range: "
                "autotune.tune(..., batch_invariant=True)"
            )
        if policy.tune and not settings.mode().frozen:
            _tune(dict.fromkeys(problems), ordinal or 0, policy)
        yield policy


def _tune(problems: Iterable[Problem], ordinal: int, policy: Policy) -> None:
    """Tunes the problems that are not tuned, or races those without a record."""
    from autotune.api import tuning
    from autotune.api.matmul import recorded
    from autotune.targets.workplace import Workplace
    from autotune.tuning.options import Search

    device, quick = runtime.probe(ordinal), policy.tune == "quick"
    objective = time_objective(policy.cold)
    options = Search(effort="quick" if quick else "default", objective=objective).limited()
    with Workplace(ordinal, quick=quick) as workplace:
        for problem in problems:
            answer = recorded(problem, device, objective)
            if answer is None or not answer.enough(quick):
                tuning.search_at(workplace, problem, options)
            runtime.current().forget(problem)


def ordinal_of(device: DeviceLike | None) -> int | None:
    """The number of a GPU of this machine; None for None."""
    # A number needs none of the imports that a name does.
    if device is None or type(device) is int:
        return device
    from autotune.targets import targets

    return targets.ordinal_of(device)
