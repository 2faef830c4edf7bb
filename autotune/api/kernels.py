"""User kernels: tune one, look it up, list the occupancy of its configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from autotune import files, settings
from autotune.api.kernel_replays import replay, replayed
from autotune.api.kernel_runs import (
    checked,
    compiling,
    digest_of,
    stand_in,
    tunable_of,
    work_of,
)
from autotune.api.recordings import save_recording
from autotune.api.shown import shown
from autotune.cuda import compiler
from autotune.errors import NotFoundError
from autotune.families.config import Value
from autotune.problem.call import KernelCall
from autotune.records import KernelRecord, Store
from autotune.runners.recording import Origin
from autotune.targets import targets
from autotune.targets.sources import DEFAULT, DeviceLike
from autotune.tuning.options import Search
from autotune.user_kernels import (
    Compilation,
    KernelTable,
    KernelTunable,
    Verification,
    call_of,
    define_kernel,
    occupancy_table,
)
from autotune.user_kernels.arrays import on_hosts
from autotune.user_kernels.definition import Predicate
from autotune.user_kernels.expected import Reference
from autotune.user_kernels.geometry import Extents, SharedBytes
from autotune.user_kernels.grids import Divisor
from autotune.user_kernels.outcomes import Metric, Score

if TYPE_CHECKING:
    from autotune.tuning.events import Observer
    from autotune.user_kernels import Workload

QUICK_TRIALS = 25
"""Trials of a quick search. On twelve recorded spaces 20 trials reach 87.5 % of the best speed, 50
reach 96.0 %, after which a search stops by itself."""


def tune_kernel(
    source: str | Path,
    name: str,
    parameters: Mapping[str, Sequence[Value]],
    *,
    arguments: Sequence[object],
    reference: Reference | None = None,
    grid: Extents | None = None,
    block: Extents | None = None,
    problem_size: Extents | None = None,
    grid_div: Sequence[Divisor] | None = None,
    shared: SharedBytes = 0,
    constraints: Mapping[str, Predicate] | None = None,
    compile: Compilation | None = None,
    verify: Verification | None = None,
    device: DeviceLike = DEFAULT,
    search: Search | None = None,
    metrics: Mapping[str, Metric] | None = None,
    recording: str | Path | None = None,
    progress: bool | Observer = True,
) -> KernelRecord:
    """Searches the fastest configuration of a user's CUDA kernel and records the best ten.

    Every candidate is verified against the reference before it is timed, in a separate process. A
    second call continues from the measurements of the first, unless the source, a header that it
    includes, the arguments or the geometry of a configuration changed.

    Args:
        source: CUDA C++, as text or the path of a file. Headers are searched beside the file and
            in the folders of `compile`.
        name: the kernel: `transpose`, a template that takes the parameters in their order, or
            `transpose<float, TILE>` with explicit template arguments; `saxpy<>` is not a template.
            A parameter that the kernel does not take affects `grid`, `block` and `shared` only.
        parameters: the values of each parameter: whole numbers, booleans, words such as `float4`,
            or floats, which only macros can be.
        arguments: arrays of NumPy, PyTorch, CuPy or PyCUDA, and NumPy numbers, in the kernel's
            order. Arrays are copied to the measuring process.
        reference: called with the arguments; returns for each the expected array, or None if the
            kernel must leave it unchanged. Outputs that the reference does not read start with
            other contents for the kernel, such as NaN. A list of the expected arrays may stand in
            its place. None verifies against the results of the first configuration that runs, which
            the record names as `verified`.
        grid: blocks: a number, or two or three along x, y and z; or a function that returns them
            for a mapping from the names of the parameters to their values.
        block: threads, likewise; by default the parameters block_size_x, block_size_y and
            block_size_z.
        problem_size: in place of `grid`, the size of the problem along x, y and z.
        grid_div: for each axis what a block covers of that: a parameter, a number, a list of them
            that are multiplied, or a function of the parameters; by default its threads.
        shared: bytes of dynamic shared memory (`extern __shared__`), or a function returning them.
        constraints: functions of the parameters by a short reason; a configuration is rejected
            under the first reason whose function is not true.
        compile: folders of headers, options of the compiler, and whether the parameters are macros
            instead of arguments of a template.
        verify: tolerances, and the seconds for one configuration.
        device: a GPU of this machine: `gpu`, `gpu:1`, a number, its name or a `Device`; or a file
            of `recording`.
        search: effort, limits, sampler and objective, or a `score`: a function of a `KernelResult`
            whose value, a number above 0, is minimised. `quick` is a search of 25 trials here.
            `energy` adds joules, power and clock to the results of the ten fastest; with a score it
            adds them to every result, in two seconds each.
        metrics: further functions of a `KernelResult` by name; their values go into the record.
        recording: a file, such as `saxpy.json.gz`, for the outcomes of all configurations that were
            tried; `device="replay:saxpy.json.gz"` searches among them without a GPU.
        progress: whether to show a progress bar, on standard error or in the notebook; or an
            observer, which receives the progress events instead.

    Raises:
        UsageError: for invalid arguments or limits, a reference that does not fit them, or an
            unknown device.
        MissingError: without a GPU, a driver or a compiler.
        CacheError: if the cache directory cannot be written.
        AutotuneError: if no configuration can run, or none is correct.
    """
    kernel = define_kernel(
        *(source, name, parameters),
        constraints=constraints,
        grid=grid,
        block=block,
        problem_size=problem_size,
        grid_div=grid_div,
        shared=shared,
        compile=compile,
    )
    settings.refuse_frozen(f"cannot tune {kernel.name}")
    limited, verify = _limited(search or Search()), verify or Verification()
    work = work_of(kernel.name, arguments, reference, verify)
    tunable = tunable_of(kernel, work, metrics, limited)
    store = Store(files.ensure(settings.cache_dir()))
    if (recorded := replayed(device, work.call)) is not None:
        return replay(tunable, recorded, store, limited, progress)
    first = reference is None
    record = _measured(
        tunable, work, store, limited, on_hosts(arguments), device, verify, first, progress
    )
    if recording is not None:
        save_recording(record, store, Path(recording))
    return record


def _limited(search: Search) -> Search:
    """The search with its limits, from now on, and the user's score."""
    if search.quick:
        search = replace(search, effort="default", trials=search.trials or QUICK_TRIALS)
    score = None if search.score is None else Score(search.score)
    return replace(search.limited(), score=score).begun(monotonic())


def _measured(
    tunable: KernelTunable,
    work: Workload,
    store: Store,
    search: Search,
    arguments: Sequence[object],
    device: DeviceLike,
    verify: Verification,
    first: bool,
    progress: bool | Observer,
) -> KernelRecord:
    """The record of a search on a GPU; with `first` the first results are the reference."""
    index, resolved = targets.measuring(device, str(tunable))
    if search.modelled:
        from autotune.candidates.gaussian_process import import_ahead

        import_ahead()

    from autotune import gpu
    from autotune.tuning.loop import tune

    with compiling(tunable.kernel) as (compile, sources):
        compile = checked(tunable, arguments, resolved.arch, compile, sources)
        if first:
            work = stand_in(tunable, work, index, compile, verify)
        tunable = replace(tunable, verified=work.verified)
        runner = gpu.open_kernel_runner(work, index, time_limit=verify.time_limit)
        try:
            origin = Origin(runner.driver, compiler.compiler_version(), digest_of(tunable, sources))
            with shown(None, search, progress) as observer:
                run = tunable, runner, store, search
                return tune(*run, compile=compile, origin=origin, observer=observer)
        finally:
            runner.close()


def best_kernel(
    name: str, arguments: Sequence[object], *, device: DeviceLike = DEFAULT
) -> KernelRecord:
    """The record of a user kernel, tuned with arguments of these types and shapes.

    Args:
        name: the kernel, with or without template arguments.
        arguments: as for `tune_kernel`; the contents of arrays do not matter.
        device: as for `tune_kernel`, or any GPU.

    Raises:
        NotFoundError: if the kernel was never tuned with such arguments.
        UsageError: for an invalid argument or an unknown device.
        MissingError: without a GPU, if no other device is given.
    """
    call = call_of(name.partition("<")[0].strip(), arguments)
    resolved = targets.resolve(device)
    record = Store(settings.cache_dir()).kernel(resolved, call)
    if record is None:
        raise NotFoundError(f"{call} is not tuned on {resolved.name}; call `autotune.tune_kernel`")
    return record


def kernel_occupancy(
    source: str | Path,
    name: str,
    parameters: Mapping[str, Sequence[Value]],
    *,
    block: Extents | None = None,
    grid: Extents | None = None,
    shared: SharedBytes = 0,
    constraints: Mapping[str, Predicate] | None = None,
    compile: Compilation | None = None,
    device: DeviceLike = DEFAULT,
    jobs: int | None = None,
) -> KernelTable:
    """The resources of each configuration of a user's CUDA kernel, compiled for a device, with its
    resident blocks per SM and their limiter; or why it cannot run.

    Needs no GPU. The arguments are those of `tune_kernel`; a `grid` is checked where it is given.
    `str()` of the result is a table.

    Raises:
        UsageError: for invalid arguments, or an unknown device.
        MissingError: without a compiler; without a GPU, if no other device is given.
    """
    kernel = define_kernel(
        *(source, name, parameters),
        constraints=constraints,
        grid=1 if grid is None else grid,
        block=block,
        shared=shared,
        compile=compile,
    )
    resolved = targets.resolve(device)
    targets.check_compilable(resolved)
    tunable = KernelTunable(kernel, KernelCall(kernel.name, ()))
    with compiling(kernel) as (compiled, _):
        return occupancy_table(tunable, resolved, compiled, jobs=jobs, any_grid=grid is None)
