"""User kernels: tune one, look it up, list the occupancy of its configurations."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any

from autotune import files, settings
from autotune.api.replays import recording_of, replay, replayed, tunable_of
from autotune.api.tuning import save_recording, shown
from autotune.api.words import naming
from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure, Program, source_hash
from autotune.errors import AutotuneError, NotFoundError, UsageError
from autotune.families.config import Config, Value
from autotune.families.plan import Template
from autotune.measure import devices, targets
from autotune.measure.devices import DEFAULT, DeviceLike
from autotune.measure.recording import Origin
from autotune.problem.call import KernelCall
from autotune.records import KernelRecord, Store
from autotune.records.kernel_record import NOT_VERIFIED
from autotune.tuning.options import Search
from autotune.tuning.pipeline import Compile
from autotune.user_kernels.arguments import (
    ContentOf,
    call_of,
    constants_of,
    in_own_library,
    launch_arguments,
    on_hosts,
)
from autotune.user_kernels.checks import Places, check_signature, variables_filled
from autotune.user_kernels.compilation import compiling, with_compiler
from autotune.user_kernels.definition import (
    UserKernel,
    checked_arguments,
    define_kernel,
    reference_kernel,
    steps_of,
)
from autotune.user_kernels.geometry import Divisor, Extents, SharedBytes
from autotune.user_kernels.results import (
    DEFAULT_VERIFICATION,
    Array,
    Reference,
    Verification,
    run_reference,
)
from autotune.user_kernels.source import Compilation, Source
from autotune.user_kernels.space import Constraints
from autotune.user_kernels.steps import Step, for_reference, in_configuration, varying
from autotune.user_kernels.table import KernelTable, occupancy_table
from autotune.user_kernels.tunable import (
    KernelTunable,
    Metric,
    ResultRunner,
    Score,
    check_metrics,
    first_results,
)
from autotune.user_kernels.workload import (
    Workload,
    compared_on_host,
    unverified,
    with_results,
    workload,
)

if TYPE_CHECKING:
    from autotune.api.tuning import ProgressLike


QUICK_TRIALS = 25
"""Trials of a quick search. On twelve recorded spaces 20 trials reach 87.5 % of the best speed, 50
reach 96.0 %, after which a search stops by itself."""

VALUES = {"search": Search, "compile": Compilation, "verify": Verification}
"""The keywords of `tune_kernel` whose values hold further options."""


@naming(**VALUES)
def tune_kernel(
    source: Source,
    name: str | Step | Sequence[str | Step],
    parameters: Mapping[str, Sequence[Value]],
    *,
    arguments: Sequence[object],
    constants: ContentOf | None = None,
    reference: Reference | Step | None = None,
    grid: Extents | None = None,
    block: Extents | None = None,
    problem_size: Extents | None = None,
    grid_div: Sequence[Divisor | None] | None = None,
    shared: SharedBytes = 0,
    constraints: Constraints | None = None,
    compile: Compilation | None = None,
    verify: Verification | None = DEFAULT_VERIFICATION,
    device: DeviceLike = DEFAULT,
    search: Search | None = None,
    metrics: Mapping[str, Metric | str] | None = None,
    progress: ProgressLike = True,
) -> KernelRecord:
    """Searches the fastest configuration of a user's CUDA kernel and records the best ten.

    Every candidate is verified against the reference before it is timed, in a separate process. A
    second call continues from the measurements of the first, unless the source, a header that it
    includes, the arguments or the geometry of a configuration changed.

    Args:
        source: CUDA C++, as text or the path of a file; several paths, of which the first has the
            kernel and includes the others; or a function of the parameters that returns text.
            Headers are searched beside the files and in the folders of `compile`.
        name: the kernel: `transpose`, a template that takes the parameters in their order, or
            `transpose<float, TILE>` with explicit template arguments; `saxpy<>` is not a template.
            `scale(float*, int)` chooses an overload. A parameter that the kernel does not take
            affects `grid`, `block` and `shared` only. Several kernels that run in order as one, or
            one with a cooperative launch, are a list of `autotune.Step`. The record is called after
            the first.
        parameters: the values of each parameter: whole numbers, booleans, words such as `float4`,
            or floats, which only macros can be.
        arguments: arrays of NumPy, PyTorch, CuPy or PyCUDA, NumPy numbers and structures, and
            `autotune.Texture`s, in the kernel's order. Arrays are copied to the measuring process,
            in C or Fortran order as they lie. `autotune.Scratch` is memory whose contents nobody
            checks. A function of the parameters returns a NumPy number that depends on the
            configuration.
        constants: arrays or NumPy numbers for `__constant__` variables, by their names in C++, such
            as `{"filters::weights": array}`. What a smaller array leaves keeps its initial value.
        reference: called with the arguments; returns for each the expected array, or None if the
            kernel must leave it unchanged. Outputs that the reference does not read start with
            other contents for the kernel, such as NaN. A list of the expected arrays may stand in
            its place, or a `Step` without tuned parameters: a kernel of the same source, which runs
            once on the same arguments. None verifies against the results of the first configuration
            that runs. The record names either as `verified`.
        grid: blocks: a number, or two or three along x, y and z; or a function that returns them
            for a mapping from the names of the parameters to their values. Texts can stand for
            functions: Python expressions in the parameters, such as `"ceil(4096 / TILE)"`.
        block: threads, likewise; by default the parameters block_size_x, block_size_y and
            block_size_z.
        problem_size: in place of `grid`, the size of the problem along x, y and z.
        grid_div: for each axis what a block covers of that: a text such as `"TILE"`, a number, a
            list of them that are multiplied, or a function of the parameters; by default, and for
            an axis that is missing, its threads.
        shared: bytes of dynamic shared memory (`extern __shared__`), or a function returning them.
        constraints: functions of the parameters, or texts such as `"TILE * ROWS <= 1024"`, by a
            short reason or as a list. A configuration is rejected under the first reason whose
            constraint is not true. Of more than 250,000 combinations, the first is the one whose
            parameters are set first. Functions must depend on the parameters alone.
        compile: folders of headers, the compiler and its options, and whether the parameters are
            macros instead of arguments of a template.
        verify: tolerances, or a function that compares, and the seconds for one configuration.
            None verifies nothing: configurations only run and are timed, which the record says; a
            reference is not called.
        device: a GPU of this machine: `gpu`, `gpu:1`, a number, its name or a `Device`; or a file
            that `Search.recording` wrote.
        search: effort, limits, sampler and objective, or a `score`: a function of a `KernelResult`
            whose value, a number above 0, is minimised. `quick` is a search of 25 trials here.
            `energy` adds joules, power and clock to the results of the ten fastest; with a score it
            adds them to every result, in two seconds each. `recording` writes the outcomes of all
            configurations that were tried, for `device="replay:saxpy.json.gz"`.
        metrics: further functions of a `KernelResult` by name, or texts in its attributes and the
            parameters; their values go into the record.
        progress: whether to show a progress bar, on standard error or in the notebook; `lines` for
            plain lines; or an observer, which receives the progress events instead.

    Raises:
        UsageError: for invalid arguments or limits, a reference that does not fit them, more than
            2,000,000 legal configurations, or an unknown device.
        MissingError: without a GPU, a driver or a compiler.
        CacheError: if the cache directory cannot be written.
        AutotuneError: if no configuration can run, or none is correct.
    """
    began = monotonic()
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
    limited = _limited(search or Search(), began)
    arguments = checked_arguments(kernel, arguments)
    hosts = on_hosts(arguments)
    tunable = _tunable(kernel, hosts, constants, metrics, limited)
    if verify is None:
        tunable = replace(tunable, verified=NOT_VERIFIED)
    else:
        verify.require(hosts, reference)
        _answers(tunable, reference, arguments)  # refuses what cannot be a reference
    store = Store(files.ensure(settings.cache_dir()))
    if (recorded := replayed(device, tunable)) is not None:
        return replay(tunable, recorded, store, limited, progress)
    expected = partial(
        work_of,
        *(kernel.name, arguments, reference, verify, constants),
        partial(_first_values, kernel),
    )
    record = _measured(
        *(tunable, expected, store, limited, hosts, constants_of(constants)),
        *(device, reference, verify, progress),
    )
    if limited.recording is not None:
        save_recording(record, store, Path(limited.recording))
    return record


def _limited(search: Search, began: float) -> Search:
    """The search with its limits, from `began` on, and the user's score."""
    if search.quick:
        search = replace(search, effort="default", trials=search.trials or QUICK_TRIALS)
    score = None if search.score is None else Score(search.score)
    return replace(search.limited(), score=score).begun(began)


def _tunable(
    kernel: UserKernel,
    arguments: Sequence[object],
    constants: ContentOf | None,
    metrics: Mapping[str, Metric | str] | None,
    search: Search,
) -> KernelTunable:
    """The kernel and its call, with the user's numbers."""
    return KernelTunable(
        kernel,
        call_of(kernel.name, arguments, constants),
        launch_arguments(arguments),
        varying(arguments),
        metrics=check_metrics(metrics, kernel.parameters),
        score=search.score if isinstance(search.score, Score) else None,
        metered=search.meters_trials,
    )


def _answers(
    tunable: KernelTunable, reference: Reference | Step | None, arguments: Sequence[object]
) -> KernelTunable | None:
    """The kernel whose results stand in for a reference; None with one."""
    if isinstance(reference, Step):
        naive = reference_kernel(tunable.kernel, reference, arguments)
        return replace(tunable, kernel=naive, varying={})
    return tunable if reference is None else None


def _measured(
    tunable: KernelTunable,
    expected: Callable[[], Workload],
    store: Store,
    search: Search,
    arguments: Sequence[object],
    constants: Mapping[str, Array],
    device: DeviceLike,
    reference: Reference | Step | None,
    verify: Verification | None,
    progress: ProgressLike,
) -> KernelRecord:
    """The record of a search on a GPU.

    The worker process starts and the first configurations compile while the reference runs.
    """
    index, resolved = targets.measuring(device, str(tunable))
    from autotune.user_kernels import bench

    limit = (verify or DEFAULT_VERIFICATION).time_limit
    exact = resolved if resolved.knows_clusters else None
    with ExitStack() as opened:
        nothing = Workload(tunable.call, tunable.arguments, ())
        runner = bench.open_kernel_runner(nothing, index, time_limit=limit, device=exact)
        opened.callback(runner.close)
        tunable = replace(tunable, kernel=with_compiler(tunable.kernel, resolved.arch))
        compile, places = opened.enter_context(compiling(tunable.kernel))
        compile = filled(tunable.kernel, compile, places, constants)
        checks = partial(checked, tunable, arguments, constants, resolved.arch, compile, places)
        check = opened.enter_context(background(checks))
        _import_ahead(search)
        if exact is None:  # nothing compiles before the worker has stated its GPU
            expected = partial(replace, expected())
        from autotune.tuning.loop import tune

        def hand_over(work: Workload) -> None:
            check()
            runner.switch_to(work, bench.seconds_limit(work, limit))

        answers = None
        if verify is not None and (answers := _answers(tunable, reference, arguments)):
            hand_over(work := expected())
            if answers is not tunable:
                checked(answers, arguments, constants, resolved.arch, compile, places)
            hand_over(work := stand_in(answers, work, runner, compile, verify))
            tunable = replace(tunable, verified=work.verified)
        # The runner's process may still start.
        origin = _origin(tunable, devices.driver_version() or runner.driver, places)
        with shown(None, search, progress) as observer:
            return tune(
                tunable,
                runner,
                store,
                search,
                compile=compile,
                origin=origin,
                observer=observer,
                begin=None if answers else lambda: hand_over(expected()),
            )


def _origin(tunable: KernelTunable, driver: str, places: Callable[[Config], Places]) -> Origin:
    version = compiler.compiler_version(tunable.kernel.source.compiler)
    return Origin(driver, version, tunable.digest(_sources_hash(tunable, places)))


def _sources_hash(tunable: KernelTunable, places: Callable[[Config], Places]) -> str:
    """A hash of the source with its headers; of the texts of all legal configurations, where they
    differ."""
    kernel = tunable.kernel
    if kernel.text is None:
        folder, includes = places(next(kernel.combinations()))
        return source_hash(kernel.source.file, directory=folder, includes=includes)
    digests = sorted({kernel.at(config).source.digest for config in kernel.space.configs})
    return sha256(json.dumps(digests).encode()).hexdigest()


@contextmanager
def background(function: Callable[[], object]) -> Iterator[Callable[[], object]]:
    """Calls a function that compiles in a thread; yields what waits for its result."""
    threads: list[int] = []
    with ThreadPoolExecutor(1, initializer=lambda: threads.append(get_ident())) as pool:
        try:
            yield pool.submit(function).result
        finally:
            compiler.stop_compiling(threads)


def _import_ahead(search: Search) -> None:
    if search.modelled:
        from autotune.model.gaussian_process import import_ahead

        import_ahead()


def best_kernel(
    name: str,
    arguments: Sequence[object],
    *,
    constants: ContentOf | None = None,
    device: DeviceLike = DEFAULT,
) -> KernelRecord:
    """The record of a user kernel, tuned with arguments of these types and shapes.

    Args:
        name: the kernel, with or without template arguments.
        arguments: as for `tune_kernel`; the contents of arrays do not matter. The place of a
            function takes the type that it returns, such as `numpy.int32`.
        constants: as for `tune_kernel`; their contents do not matter.
        device: as for `tune_kernel`, or any GPU.

    Raises:
        NotFoundError: if the kernel was never tuned with such arguments.
        UsageError: for an invalid argument or an unknown device.
        MissingError: without a GPU, if no other device is given.
    """
    call = call_of(re.split("[<(]", name, maxsplit=1)[0].strip(), arguments, constants)
    resolved = targets.resolve(device)
    record = Store(settings.cache_dir()).kernel(resolved, call)
    if record is None:
        raise NotFoundError(f"{call} is not tuned on {resolved.name}; call `autotune.tune_kernel`")
    return record


@naming(compile=Compilation)
def kernel_occupancy(
    source: Source,
    name: str | Step | Sequence[str | Step],
    parameters: Mapping[str, Sequence[Value]],
    *,
    block: Extents | None = None,
    grid: Extents | None = None,
    shared: SharedBytes = 0,
    constraints: Constraints | None = None,
    compile: Compilation | None = None,
    device: DeviceLike = DEFAULT,
    jobs: int | None = None,
) -> KernelTable:
    """The resources of each configuration of a user's CUDA kernel, compiled for a device, with its
    resident blocks per SM and their limiter; or why it cannot run.

    Needs no GPU. The arguments are those of `tune_kernel`; a `grid` is checked where it is given.
    `str()` of the result is a table.

    Raises:
        UsageError: for invalid arguments, more than 250,000 combinations, or an unknown device.
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
    kernel = with_compiler(kernel, resolved.arch)
    steps = tuple(replace(step, takes=None) for step in kernel.steps)
    tunable = KernelTunable(replace(kernel, steps=steps), KernelCall(kernel.name, ()))
    any_grid = [place for place, step in enumerate(steps_of(name)) if grid is step.grid is None]
    with compiling(kernel) as (compiled, _):
        return occupancy_table(tunable, resolved, compiled, jobs=jobs, any_grid=any_grid)


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
    began = monotonic()
    if (recording := recording_of(device)) is None:
        raise UsageError(f"{device} is not the recording of a user kernel; give a shape to tune")
    search, store = _limited(Search(**fields), began), Store(files.ensure(settings.cache_dir()))
    return replay(tunable_of(recording), recording, store, search, progress)


def work_of(
    name: str,
    arguments: Sequence[object],
    reference: Reference | Step | None,
    verify: Verification | None,
    constants: ContentOf | None = None,
    first_values: Callable[[], Mapping[str, Value]] = dict,
) -> Workload:
    """The call with the results that a reference expects; without one, with none. A reference by
    configuration is called with `first_values` at first."""
    hosts = on_hosts(arguments)
    if verify is None:
        return replace(unverified(name, hosts, constants), verified=NOT_VERIFIED)
    if reference is None or isinstance(reference, Step):
        return unverified(name, hosts, constants)

    def own(*values: Mapping[str, Value]) -> Reference:
        if not callable(reference):
            return on_hosts(reference)
        return in_own_library(partial(reference, *values), arguments)

    if not verify.by_configuration:
        return compared_on_host(workload(name, hosts, own(), verify, constants), verify)
    work, given = (
        workload(name, hosts, own(first_values()), verify, constants),
        for_reference(hosts),
    )
    return compared_on_host(work, verify, lambda config: run_reference(own(config.values), given))


def _first_values(kernel: UserKernel) -> Mapping[str, Value]:
    """The parameters of the first configuration that fulfils the constraints."""
    if not (legal := kernel.space.configs):
        raise AutotuneError(f"no configuration of {kernel.name} fulfils the constraints")
    values: Mapping[str, Value] = legal[0].values
    return values


def stand_in(
    tunable: KernelTunable,
    work: Workload,
    runner: ResultRunner,
    compile: Compile,
    verify: Verification,
) -> Workload:
    """The call with the results of the first configuration that runs as those expected."""
    config, results = first_results(tunable, runner, compile)
    return compared_on_host(with_results(work, results, str(config), verify), verify)


def checked(
    tunable: KernelTunable,
    arguments: Sequence[object],
    constants: Mapping[str, Array],
    arch: str,
    compile: Compile,
    places: Callable[[Config], Places],
) -> None:
    """Checks the first and the last legal configuration: their arguments against the signature,
    their macros and their variables, which `constants` fill.

    Where all trials stand since an earlier run, nothing else compiles.

    Raises:
        UsageError: for another signature, a macro that the source changes, or a variable that
            nothing fills.
    """
    kernel, legal = tunable.kernel, tunable.kernel.space.configs
    if not legal:
        return
    first = legal[0]
    own = kernel.at(first)
    ends = dict.fromkeys([*legal[:1], *(legal[-1:] if kernel.source.defines else ())])
    for at, step in enumerate(kernel.steps):
        values = in_configuration(arguments, first)
        values = values if step.takes is None else [values[place] for place in step.takes]
        single = replace(own, source=step.of(own.source), steps=(step,))
        check_signature(single, first, values, arch, places(first), constants)
        for config in ends:
            compile(kernel.template(config, at), arch)


def filled(
    kernel: UserKernel,
    compile: Compile,
    places: Callable[[Config], Places],
    constants: Mapping[str, Array],
) -> Compile:
    """A compiler that raises a `UsageError` if a kernel reads a variable which nothing fills."""

    def compiled(template: Template, arch: str) -> Program | CompileFailure:
        config = kernel.config_of(template)
        source = kernel.at(config).source
        return variables_filled(compile, source, places(config), constants)(template, arch)

    return compiled
