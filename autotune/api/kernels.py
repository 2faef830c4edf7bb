"""User kernels: tune one, look it up, list the occupancy of its configurations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

from autotune import compiler, files, settings
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
from autotune.errors import NotFoundError, UsageError
from autotune.families.config import Value
from autotune.problem.kernel_call import KernelCall
from autotune.records import KernelRecord, Store
from autotune.runners.recording import Origin
from autotune.targets import targets
from autotune.targets.sources import DEFAULT, DeviceLike
from autotune.tuning.options import options_of
from autotune.user_kernels import (
    KernelTable,
    KernelTunable,
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
    from autotune.tuning.options import Options
    from autotune.user_kernels import Workload

TIME_LIMIT_S = 20.0
"""Seconds that a configuration may take, verification and all samples together."""


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
    include: Sequence[str | Path] = (),
    defines: bool = False,
    options: Sequence[str] = (),
    rtol: float | None = None,
    atol: float | None = None,
    device: DeviceLike = DEFAULT,
    trials: int | None = None,
    budget: float | None = None,
    seed: int = 0,
    sampler: str = "gp",
    jobs: int | None = None,
    time_limit: float = TIME_LIMIT_S,
    objective: str | Metric = "hot",
    metrics: Mapping[str, Metric] | None = None,
    energy: bool = False,
    storage: str | None = None,
    recording: str | Path | None = None,
    observer: Observer | None = None,
    progress: bool = True,
) -> KernelRecord:
    """Searches the fastest configuration of a user's CUDA kernel and records the best ten.

    Every candidate is verified against the reference before it is timed, in a separate process. A
    second call continues from the measurements of the first, unless the source, a header that it
    includes, the arguments or the geometry of a configuration changed.

    Args:
        source: CUDA C++, as text or the path of a file. Headers are searched beside the file and
            in `include`.
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
        include: folders of headers. CUDA's own, such as `cuda_fp16.h`, are found by themselves.
        defines: whether the parameters are macros of the source instead of arguments of a template.
        options: further options of the compiler (NVRTC), such as `--use_fast_math`; none that sets
            a parameter, the device or folders of headers, or writes files.
        rtol: relative tolerance of an element; by default 1e-2 in float16, 1e-4 in float32, 1e-9
            in float64, and 0 for whole numbers.
        atol: absolute tolerance, added to it; by default `rtol` times the mean absolute element.
        device: a GPU of this machine: `gpu`, `gpu:1`, a number, its name or a `Device`; or a file
            of `recording`.
        trials: stop at this number of configurations, those of earlier calls and of other processes
            included.
        budget: stop after this number of seconds; 60 if neither limit is given, except that
            `exhaustive` then tries everything.
        seed: random seed.
        sampler: `gp`, which stops by itself, `tpe`, `random` or `exhaustive`.
        jobs: compiler threads; by default one for each core but one.
        time_limit: seconds for one configuration; one that takes longer is not tried again.
        objective: `hot` minimises the time with inputs as the last run left them in L2, `cold` the
            time with L2 flushed before each run, `energy` the joules of a run among the ten fastest
            hot; a function of a `KernelResult` its value, a number above 0.
        metrics: further functions of a `KernelResult` by name; their values go into the record.
        energy: whether results have joules, power and clock: those of the ten fastest, which
            `metrics` are computed of, or if the objective is a function those of every trial, two
            seconds each.
        storage: storage of the trials: URL of an Optuna storage, or path of a journal file; by
            default a file of the cache.
        recording: a file, such as `saxpy.json.gz`, for the outcomes of all configurations that were
            tried; `device="replay:saxpy.json.gz"` searches among them without a GPU.
        observer: receives progress events.
        progress: whether to show a progress bar, on standard error or in the notebook, if there is
            no observer.

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
        include=include,
        defines=defines,
        options=options,
    )
    settings.refuse_frozen(f"cannot tune {kernel.name}")
    score = Score(objective) if callable(objective) else None
    decides = "hot" if callable(objective) else objective
    limits = trials, budget, seed, sampler, jobs, decides, storage
    search = replace(options_of(*limits), score=score, energy=energy).begun(monotonic())
    if not time_limit > 0:
        raise UsageError(f"time_limit is {time_limit!r}; give more than 0 seconds")
    work = work_of(kernel.name, arguments, reference, rtol, atol)
    tunable = replace(tunable_of(kernel, work, metrics, score), metered=search.meters_trials)
    store = Store(files.ensure(settings.cache_dir()))
    if (recorded := replayed(device, work.call)) is not None:
        return replay(tunable, recorded, store, search, observer, progress)
    tolerances = (rtol, atol) if reference is None else None
    where = on_hosts(arguments), device, time_limit, tolerances
    record = _measured(tunable, work, store, search, *where, observer, progress)
    if recording is not None:
        save_recording(record, store, Path(recording))
    return record


def _measured(
    tunable: KernelTunable,
    work: Workload,
    store: Store,
    search: Options,
    arguments: Sequence[object],
    device: DeviceLike,
    time_limit: float,
    tolerances: tuple[float | None, float | None] | None,
    observer: Observer | None,
    progress: bool,
) -> KernelRecord:
    """The record of a search on a GPU; with tolerances the first results are the reference."""
    index, resolved = targets.measuring(device, str(tunable))

    from autotune import gpu
    from autotune.tuning.loop import tune

    with compiling(tunable.kernel) as (compile, sources):
        compile = checked(tunable, arguments, resolved.arch, compile, sources)
        if tolerances is not None:
            work = stand_in(tunable, work, index, compile, time_limit, *tolerances)
        tunable = replace(tunable, verified=work.verified)
        runner = gpu.open_kernel_runner(work, index, time_limit=time_limit)
        try:
            origin = Origin(runner.driver, compiler.compiler_version(), digest_of(tunable, sources))
            with shown(None, search, observer, progress) as observes:
                run = tunable, runner, store, search
                return tune(*run, compile=compile, origin=origin, observer=observes)
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
    include: Sequence[str | Path] = (),
    defines: bool = False,
    options: Sequence[str] = (),
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
        include=include,
        defines=defines,
        options=options,
    )
    resolved = targets.resolve(device)
    targets.check_compilable(resolved)
    tunable = KernelTunable(kernel, KernelCall(kernel.name, ()))
    with compiling(kernel) as (compile, _):
        return occupancy_table(tunable, resolved, compile, jobs=jobs, any_grid=grid is None)
