"""User kernels: tune one, look it up, list the occupancy of its configurations."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from hashlib import sha256
from pathlib import Path
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any

from autotune import files, settings
from autotune.api.replays import recording_of, replay, replayed, tunable_of
from autotune.api.tuning import import_ahead, save_recording, shown
from autotune.api.words import naming
from autotune.cuda import compiler
from autotune.cuda.program import source_hash
from autotune.device import Device
from autotune.errors import NotFoundError, UsageError
from autotune.families.config import Config, Value
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
from autotune.user_kernels.compilation import Places, check_signature, compiling, with_compiler
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
from autotune.user_kernels.space import MOST, Constraints
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
    from autotune.user_kernels.bench import KernelRunner

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
        progress: whether to show a progress bar, on standard error; `lines` for plain lines, which
            notebooks get too; or an observer, which receives the progress events instead.

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
    call = TunedCall(arguments, constants_of(constants), reference, verify)
    tunable = _tunable(kernel, call, metrics, limited)
    call.answers(tunable)  # refuses what cannot be a reference
    store = Store(files.ensure(settings.cache_dir()))
    if (recorded := replayed(device, tunable)) is not None:
        return replay(tunable, recorded, store, limited, progress)
    record = _measured(tunable, call, store, limited, device, progress)
    if limited.recording is not None:
        save_recording(record, store, Path(limited.recording))
    return record


@dataclass(frozen=True)
class TunedCall:
    """The call to tune, and what verifies its results, as `tune_kernel` takes them.

    Attributes:
        arguments: the arguments, in the caller's library.
        constants: the contents of `__constant__` variables.
        reference: what gives the expected results.
        verify: how they are compared; None compares nothing.
    """

    arguments: Sequence[object]
    constants: Mapping[str, Array]
    reference: Reference | Step | None
    verify: Verification | None

    @cached_property
    def hosts(self) -> list[Any]:
        """The arguments with their contents in the host's memory."""
        return on_hosts(self.arguments)

    def answers(self, tunable: KernelTunable) -> KernelTunable | None:
        """The kernel whose results stand in for a reference; None with one.

        Raises:
            UsageError: if the reference does not go together with the arguments or the kernel.
        """
        if self.verify is None:
            return None
        self.verify.require(self.hosts, self.reference)
        if isinstance(self.reference, Step):
            naive = reference_kernel(tunable.kernel, self.reference, self.arguments)
            return replace(tunable, kernel=naive, varying={})
        return tunable if self.reference is None else None

    def work(self, kernel: UserKernel) -> Workload:
        """The call with the results that a reference expects; without one, with none."""
        verify, reference = self.verify, self.reference
        if verify is None or reference is None or isinstance(reference, Step):
            work = unverified(kernel.name, self.hosts, self.constants)
            return replace(work, verified=NOT_VERIFIED) if verify is None else work

        def own(*values: Mapping[str, Value]) -> Reference:
            if not callable(reference):
                return on_hosts(reference)
            return in_own_library(partial(reference, *values), self.arguments)

        first = [kernel.first.values] if verify.by_configuration else []
        work = workload(kernel.name, self.hosts, own(*first), verify, self.constants)
        if not verify.by_configuration:
            return compared_on_host(work, verify)
        inputs = for_reference(self.hosts)
        return compared_on_host(
            work, verify, lambda config: run_reference(own(config.values), inputs)
        )

    def stand_in(
        self, answers: KernelTunable, work: Workload, runner: ResultRunner, compile: Compile
    ) -> Workload:
        """The call with the results of the first configuration of `answers` that runs."""
        assert self.verify is not None  # else nothing answers
        config, results = first_results(answers, runner, compile)
        work = with_results(work, results, str(config), self.verify)
        return compared_on_host(work, self.verify)

    def check(
        self, kernel: UserKernel, arch: str, compile: Compile, places: Callable[[Config], Places]
    ) -> None:
        """Checks the first and the last legal configuration: their arguments against the signature,
        their macros and their variables, which `constants` fill.

        Where all trials stand since an earlier run, nothing else compiles.

        Raises:
            UsageError: for another signature, a macro that the source changes, or a variable that
                nothing fills.
        """
        if not (legal := kernel.space.configs):
            return
        first, last = legal[0], legal[-1]
        own, values = kernel.at(first), in_configuration(self.hosts, first)
        for place, step in enumerate(kernel.steps):
            sizes = own.sizes[place : place + 1]
            single = replace(own, source=step.of(own.source), steps=(step,), sizes=sizes)
            passed = step.taken(values)
            check_signature(single, first, passed, arch, places(first), self.constants)
            for config in dict.fromkeys([first, last] if kernel.source.defines else [first]):
                compile(kernel.template(config, place), arch)


def _limited(search: Search, began: float) -> Search:
    if search.quick:
        search = replace(search, effort="default", trials=search.trials or QUICK_TRIALS)
    elif search.seconds is not None and search.trials is None:
        search = replace(search, trials=MOST)  # the seconds are used: no cost model says enough
    score = None if search.score is None else Score(search.score)
    return replace(search.limited(), score=score).begun(began)


def _tunable(
    kernel: UserKernel, call: TunedCall, metrics: Mapping[str, Metric | str] | None, search: Search
) -> KernelTunable:
    return KernelTunable(
        kernel,
        call_of(kernel.name, call.hosts, call.constants),
        launch_arguments(call.hosts),
        varying(call.hosts),
        verified=NOT_VERIFIED if call.verify is None else "",
        metrics=check_metrics(metrics, kernel.parameters),
        score=search.score if isinstance(search.score, Score) else None,
        metered=search.meters_trials,
    )


def _measured(
    tunable: KernelTunable,
    call: TunedCall,
    store: Store,
    search: Search,
    device: DeviceLike,
    progress: ProgressLike,
) -> KernelRecord:
    """The record of a search on a GPU.

    The worker process starts and the first configurations compile while the reference runs.
    """
    limit = (call.verify or DEFAULT_VERIFICATION).time_limit
    with ExitStack() as opened:
        runner, resolved = opened.enter_context(_runner(tunable, device, limit))
        kernel = with_compiler(tunable.kernel, resolved.arch)
        tunable = replace(tunable, kernel=kernel)
        compile, places = opened.enter_context(compiling(kernel, call.constants))
        checks = partial(call.check, kernel, resolved.arch, compile, places)
        check = opened.enter_context(background(checks))
        import_ahead(search)
        expected = cache(partial(call.work, kernel))
        if not resolved.knows_clusters:  # nothing compiles before the worker has stated its GPU
            expected()
        from autotune.tuning.loop import tune
        from autotune.user_kernels.bench import seconds_limit

        def hand_over(work: Workload) -> None:
            check()
            runner.switch_to(work, seconds_limit(work, limit))

        if (answers := call.answers(tunable)) is not None:
            hand_over(work := expected())
            if answers is not tunable:
                call.check(answers.kernel, resolved.arch, compile, places)
            hand_over(work := call.stand_in(answers, work, runner, compile))
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


@contextmanager
def _runner(
    tunable: KernelTunable, device: DeviceLike, limit: float
) -> Iterator[tuple[KernelRunner, Device]]:
    index, resolved = targets.measuring(device, str(tunable))
    from autotune.user_kernels import bench

    exact = resolved if resolved.knows_clusters else None
    nothing = Workload(tunable.call, tunable.arguments, ())
    runner = bench.open_kernel_runner(nothing, index, time_limit=limit, device=exact)
    with closing(runner):
        yield runner, resolved


def _origin(tunable: KernelTunable, driver: str, places: Callable[[Config], Places]) -> Origin:
    """The driver, the compiler, and a hash of the source and its headers; of the texts of all
    legal configurations, where they differ."""
    kernel = tunable.kernel
    if kernel.text is None:
        folder, includes = places(next(kernel.combinations()))
        sources = source_hash(kernel.source.file, directory=folder, includes=includes)
    else:
        digests = sorted({kernel.at(config).source.digest for config in kernel.space.configs})
        sources = sha256(json.dumps(digests).encode()).hexdigest()
    version = compiler.compiler_version(kernel.source.compiler)
    return Origin(driver, version, tunable.digest(sources))


@contextmanager
def background(function: Callable[[], object]) -> Iterator[Callable[[], object]]:
    """Calls a function that compiles in a thread; yields what waits for its result."""
    threads: list[int] = []
    with ThreadPoolExecutor(1, initializer=lambda: threads.append(get_ident())) as pool:
        try:
            yield pool.submit(function).result
        finally:
            compiler.stop_compiling(threads)


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
        fields: fields of the `Search` by their names.
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
