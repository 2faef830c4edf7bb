"""The public functions for kernels of the user's: tune one, look it up, see what it occupies."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autotune import compiler, settings
from autotune.errors import NotFoundError, UsageError
from autotune.problem.call import Call
from autotune.records import KernelRecord, Store
from autotune.runners.recording import Origin
from autotune.targets import targets
from autotune.targets.sources import DEFAULT, DeviceLike
from autotune.tuning.evaluate import Compile
from autotune.tuning.options import options_of
from autotune.user_kernels import (
    KernelTable,
    KernelTunable,
    UserKernel,
    call_of,
    check_signature,
    define_kernel,
    occupancy_table,
    source_folder,
    workload,
)
from autotune.user_kernels.definition import Predicate
from autotune.user_kernels.geometry import Extents, SharedBytes
from autotune.user_kernels.workload import Reference

if TYPE_CHECKING:
    from autotune.tuning.events import Observer

TIME_LIMIT_S = 20.0
"""Seconds that a configuration may take, verification and all samples together."""


def tune_kernel(
    source: str | Path,
    name: str,
    parameters: Mapping[str, Sequence[int]],
    *,
    arguments: Sequence[object],
    reference: Reference,
    grid: Extents,
    block: Extents,
    shared: SharedBytes = 0,
    constraints: Mapping[str, Predicate] | None = None,
    include: Sequence[str | Path] = (),
    rtol: float | None = None,
    atol: float | None = None,
    device: DeviceLike = DEFAULT,
    trials: int | None = None,
    budget: float | None = None,
    seed: int = 0,
    sampler: str = "gp",
    jobs: int | None = None,
    time_limit: float = TIME_LIMIT_S,
    objective: str = "hot",
    storage: str | None = None,
    observer: Observer | None = None,
) -> KernelRecord:
    """Searches the fastest configuration of a CUDA kernel of yours and records the best ten.

    Every candidate is verified against the reference before it is timed, in a process of its own. A
    second call goes on from what the first one measured, unless the source, a header that it
    includes, the arguments or the geometry of a configuration changed.

    Args:
        source: CUDA C++, as text or the path of a file. Headers are looked for beside the file and
            in `include`.
        name: of the kernel: `transpose`, a template that takes the parameters in their order, or
            `transpose<float, TILE>`, which says what it takes; `saxpy<>` is no template. What a
            kernel does not take influences `grid`, `block` and `shared` alone.
        parameters: the values of each, whole numbers.
        arguments: NumPy arrays and NumPy numbers, in the kernel's order.
        reference: called with the arguments; returns for each the expected array, or None if the
            kernel must leave it as it is. Where it does not look at what an output holds, the
            kernel finds something else there, such as NaN.
        grid: blocks: a number, or two or three along x, y and z; or a function that gives them,
            of a mapping from the names of the parameters to their values.
        block: threads, likewise.
        shared: bytes of dynamic shared memory (`extern __shared__`), or a function that gives them.
        constraints: functions of the parameters by a short reason; a configuration is rejected
            under the first reason whose function is not true.
        include: folders of headers.
        rtol: what an element may be off by, as a share of its size; by default 1e-2 in float16,
            1e-4 in float32, 1e-9 in float64, and 0 of whole numbers.
        atol: what it may be off by besides; by default `rtol` times the mean size of the elements.
        device: `gpu`, `gpu:1` for another, or the name of the GPU that is in this machine.
        trials: stop at so many configurations, those of earlier calls included.
        budget: stop after so many seconds; 60 if neither limit is given, except that
            `exhaustive` then tries everything.
        seed: of the search.
        sampler: `gp`, which stops by itself, `tpe`, `random` or `exhaustive`.
        jobs: threads that compile; by default one for each core but one.
        time_limit: seconds for one configuration; one that takes longer is not tried again.
        objective: `hot`, with what the last run has left in L2, or `cold`, with L2 flushed before
            each run: the time that is to become small.
        storage: of the trials: URL of an Optuna storage, or path of a journal file; by default a
            file of the cache.
        observer: is told about the progress.

    Raises:
        UsageError: for arguments that are none, a reference that does not fit them, an unknown
            device, or limits that are no limits.
        MissingError: without a GPU, a driver, PyCUDA or a compiler.
        CacheError: if the cache directory cannot be written.
        AutotuneError: if no configuration can run, or none works.
    """
    kernel = define_kernel(
        *(source, name, parameters),
        constraints=constraints,
        grid=grid,
        block=block,
        shared=shared,
        include=include,
    )
    options = options_of(trials, budget, seed, sampler, jobs, objective, storage)
    if not time_limit > 0:
        raise UsageError(f"time_limit is {time_limit!r}; give more than 0 seconds")
    work = workload(kernel.name, arguments, reference, rtol=rtol, atol=atol)
    tunable = KernelTunable(kernel, work.call, work.arguments)
    index, where = targets.measuring(device, str(tunable))

    from autotune import gpu
    from autotune.tuning.loop import tune

    with _compiling(kernel) as (compile, sources):
        _check_arguments(tunable, arguments, where.arch, sources)
        store = Store(settings.ensure(settings.cache_dir()))
        runner = gpu.open_kernel_runner(work, index, time_limit=time_limit)
        try:
            origin = Origin(runner.driver, compiler.compiler_version(), _digest(tunable, sources))
            return tune(
                *(tunable, runner, store, options),
                compile=compile,
                origin=origin,
                observer=observer,
            )
        finally:
            runner.close()


def best_kernel(
    name: str, arguments: Sequence[object], *, device: DeviceLike = DEFAULT
) -> KernelRecord:
    """What is recorded of a kernel of yours, tuned with arguments of these types and shapes.

    Args:
        name: of the kernel, with or without what it takes.
        arguments: as of `tune_kernel`; of arrays, contents make no difference.
        device: as of `tune_kernel`, or the name of any GPU.

    Raises:
        NotFoundError: if it was never tuned so.
        UsageError: for an argument or a device that is none.
        MissingError: without a GPU, if no other device is given.
    """
    call = call_of(name.partition("<")[0].strip(), arguments)
    where = targets.resolve(device)
    record = Store(settings.cache_dir()).kernel(where, call)
    if record is None:
        raise NotFoundError(f"{call} is not tuned on {where.name}; call `autotune.tune_kernel`")
    return record


def kernel_occupancy(
    source: str | Path,
    name: str,
    parameters: Mapping[str, Sequence[int]],
    *,
    block: Extents,
    grid: Extents = 1,
    shared: SharedBytes = 0,
    constraints: Mapping[str, Predicate] | None = None,
    include: Sequence[str | Path] = (),
    device: DeviceLike = DEFAULT,
    jobs: int | None = None,
) -> KernelTable:
    """What each configuration of a CUDA kernel of yours takes of an SM, as compiled for a device,
    how many blocks are resident and what limits them; or why it cannot run.

    Needs no GPU. The arguments are those of `tune_kernel`; the text form of what comes back is a
    table.

    Raises:
        UsageError: for arguments that are none, or an unknown device.
        MissingError: without a compiler; without a GPU, if no other device is given.
    """
    kernel = define_kernel(
        *(source, name, parameters),
        constraints=constraints,
        grid=grid,
        block=block,
        shared=shared,
        include=include,
    )
    where = targets.resolve(device)
    targets.check_compilable(where)
    tunable = KernelTunable(kernel, Call(kernel.name, ()))
    with _compiling(kernel) as (compile, _):
        return occupancy_table(tunable, where, compile, jobs=jobs)


@contextmanager
def _compiling(kernel: UserKernel) -> Iterator[tuple[Compile, Path]]:
    """What compiles instances of the kernel, and the folder of its source."""
    cache = settings.cache_dir()
    with source_folder(kernel) as folder:
        yield (
            partial(compiler.compile, cache=cache, sources=folder, includes=kernel.includes),
            folder,
        )


def _check_arguments(
    tunable: KernelTunable, arguments: Sequence[object], arch: str, folder: Path
) -> None:
    """Asks the first configuration that breaks no constraint what it takes."""
    first = next(
        (config for config, held in tunable.combinations if not isinstance(held, str)), None
    )
    if first is not None:
        check_signature(tunable.kernel, first, arguments, arch, folder)


def _digest(tunable: KernelTunable, folder: Path) -> str:
    kernel = tunable.kernel
    sources = compiler.source_hash(kernel.file, directory=folder, includes=kernel.includes)
    return tunable.digest(sources)
