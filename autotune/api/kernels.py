"""User kernels: tune one, look it up, list the occupancy of its configurations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from autotune import files, settings
from autotune.api.replays import recording_of, replay, replayed, tunable_of
from autotune.api.tuning import save_recording, shown
from autotune.api.words import naming
from autotune.cuda import compiler
from autotune.cuda.program import source_hash
from autotune.errors import NotFoundError, UsageError
from autotune.families.config import Value
from autotune.measure import targets
from autotune.measure.devices import DEFAULT, DeviceLike
from autotune.measure.recording import Origin
from autotune.problem.call import KernelCall
from autotune.records import KernelRecord, Store
from autotune.tuning.options import Search
from autotune.tuning.pipeline import Compile
from autotune.user_kernels.arguments import call_of, in_own_library, on_hosts
from autotune.user_kernels.checks import Places, check_signature, macros_kept, variables_filled
from autotune.user_kernels.definition import UserKernel, define_kernel
from autotune.user_kernels.geometry import Divisor, Extents, SharedBytes
from autotune.user_kernels.results import Reference, Verification
from autotune.user_kernels.source import Compilation, unpacked
from autotune.user_kernels.space import Predicate
from autotune.user_kernels.table import KernelTable, occupancy_table
from autotune.user_kernels.tunable import KernelTunable, Metric, Score, check_metrics, first_results
from autotune.user_kernels.workload import Workload, unverified, with_results, workload

if TYPE_CHECKING:
    from autotune.api.tuning import ProgressLike


QUICK_TRIALS = 25
"""Trials of a quick search. On twelve recorded spaces 20 trials reach 87.5 % of the best speed, 50
reach 96.0 %, after which a search stops by itself."""


VALUES = {"search": Search, "compile": Compilation, "verify": Verification}
"""The keywords of `tune_kernel` whose values hold further options."""


@naming(**VALUES)
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
    progress: ProgressLike = True,
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
            that `Search.recording` wrote.
        search: effort, limits, sampler and objective, or a `score`: a function of a `KernelResult`
            whose value, a number above 0, is minimised. `quick` is a search of 25 trials here.
            `energy` adds joules, power and clock to the results of the ten fastest; with a score it
            adds them to every result, in two seconds each. `recording` writes the outcomes of all
            configurations that were tried, for `device="replay:saxpy.json.gz"`.
        metrics: further functions of a `KernelResult` by name; their values go into the record.
        progress: whether to show a progress bar, on standard error or in the notebook; `lines` for
            plain lines; or an observer, which receives the progress events instead.

    Raises:
        UsageError: for invalid arguments or limits, a reference that does not fit them, or an
            unknown device.
        MissingError: without a GPU, a driver or a compiler.
        CacheError: if the cache directory cannot be written.
        AutotuneError: if no configuration can run, or none is correct.
    """
    kernel = define_kernel(
        source,
        name,
        parameters,
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
    tunable = _tunable(kernel, work, metrics, limited)
    store = Store(files.ensure(settings.cache_dir()))
    if (recorded := replayed(device, tunable)) is not None:
        return replay(tunable, recorded, store, limited, progress)
    first = reference is None
    record = _measured(
        tunable, work, store, limited, on_hosts(arguments), device, verify, first, progress
    )
    if limited.recording is not None:
        save_recording(record, store, Path(limited.recording))
    return record


def _limited(search: Search) -> Search:
    """The search with its limits, from now on, and the user's score."""
    if search.quick:
        search = replace(search, effort="default", trials=search.trials or QUICK_TRIALS)
    score = None if search.score is None else Score(search.score)
    return replace(search.limited(), score=score).begun(monotonic())


def _tunable(
    kernel: UserKernel, work: Workload, metrics: Mapping[str, Metric] | None, search: Search
) -> KernelTunable:
    """The kernel and its call, with the user's numbers."""
    return KernelTunable(
        kernel,
        work.call,
        work.arguments,
        metrics=check_metrics(metrics),
        score=search.score if isinstance(search.score, Score) else None,
        metered=search.meters_trials,
    )


def _measured(
    tunable: KernelTunable,
    work: Workload,
    store: Store,
    search: Search,
    arguments: Sequence[object],
    device: DeviceLike,
    verify: Verification,
    first: bool,
    progress: ProgressLike,
) -> KernelRecord:
    """The record of a search on a GPU; with `first` the first results are the reference."""
    index, resolved = targets.measuring(device, str(tunable))
    if search.modelled:
        from autotune.model.gaussian_process import import_ahead

        import_ahead()

    from autotune.tuning.loop import tune
    from autotune.user_kernels import bench

    with compiling(tunable.kernel) as (compile, places):
        compile = checked(tunable, arguments, resolved.arch, compile, places)
        if first:
            work = stand_in(tunable, work, index, compile, verify)
        tunable = replace(tunable, verified=work.verified)
        runner = bench.open_kernel_runner(work, index, time_limit=verify.time_limit)
        try:
            folder, includes = places
            file = tunable.kernel.source.file
            digest = source_hash(file, directory=folder, includes=includes)
            origin = Origin(runner.driver, compiler.compiler_version(), tunable.digest(digest))
            with shown(None, search, progress) as observer:
                return tune(
                    tunable,
                    runner,
                    store,
                    search,
                    compile=compile,
                    origin=origin,
                    observer=observer,
                )
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


@naming(compile=Compilation)
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
        source,
        name,
        parameters,
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


def tune_recording(
    fields: Mapping[str, Any], *, device: str, progress: ProgressLike = True
) -> KernelRecord:
    """Searches all that a user kernel's recording has, without its source.

    Args:
        fields: those of the `Search`.
        device: such as `replay:stencil` or `replay:A100_T4.json.gz`.
        progress: as for `tune_kernel`.

    Raises:
        UsageError: if the device is not the recording of a user kernel.
        NotFoundError: if there is no such file.
    """
    if (recording := recording_of(device)) is None:
        raise UsageError(f"{device} is not the recording of a user kernel; give a shape to tune")
    search, store = _limited(Search(**fields)), Store(files.ensure(settings.cache_dir()))
    return replay(tunable_of(recording), recording, store, search, progress)


def work_of(
    name: str,
    arguments: Sequence[object],
    reference: Reference | None,
    verify: Verification,
) -> Workload:
    """The call with the results that a reference expects; without one, with none."""
    hosts = on_hosts(arguments)
    if reference is None:
        return unverified(name, hosts)
    own = in_own_library(reference, arguments) if callable(reference) else on_hosts(reference)
    return workload(name, hosts, own, verify)


def stand_in(
    tunable: KernelTunable,
    work: Workload,
    index: int,
    compile: Compile,
    verify: Verification,
) -> Workload:
    """The call with the results of the first configuration that runs as those expected."""
    from autotune.user_kernels import bench

    runner = bench.open_kernel_runner(work, index, time_limit=verify.time_limit)
    try:
        config, results = first_results(tunable, runner, compile)
    finally:
        runner.close()
    return with_results(work, results, str(config), verify)


@contextmanager
def compiling(kernel: UserKernel) -> Iterator[tuple[Compile, Places]]:
    """Yields a compiler of a kernel's configurations and the folders of its source and headers."""
    cache = settings.cache_dir()
    with unpacked(kernel.source, kernel.includes) as (folder, includes):
        compile = partial(compiler.compile, cache=cache, sources=folder, includes=includes)
        yield macros_kept(compile), (folder, includes)


def checked(
    tunable: KernelTunable,
    arguments: Sequence[object],
    arch: str,
    compile: Compile,
    places: Places,
) -> Compile:
    """A compiler of trials, after a check of the first and the last legal configuration: their
    arguments against the signature, their macros and their variables.

    Where all trials stand since an earlier run, nothing else compiles.

    Raises:
        UsageError: for another signature, a macro that the source changes, or a variable that
            nothing fills.
    """
    kernel, trials = tunable.kernel, variables_filled(compile, tunable.kernel.source, places)
    legal = [config for config, result in tunable.combinations if not isinstance(result, str)]
    if legal:
        check_signature(kernel, legal[0], arguments, arch, places)
    for config in dict.fromkeys(legal[:1] + (legal[-1:] if kernel.source.defines else [])):
        trials(kernel.source.template(config), arch)
    return trials
