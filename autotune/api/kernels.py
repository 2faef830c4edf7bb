"""User kernels: tune one, look it up, list the occupancy of its configurations.

A specification is a Python file whose `KERNEL` has the keywords of `tune_kernel`.
"""

from __future__ import annotations

import inspect
import runpy
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from threading import get_ident
from time import monotonic
from typing import TYPE_CHECKING, Any

from autotune import files, settings
from autotune.api.tuning import save_recording, shown
from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure, Program, source_hash
from autotune.errors import AutotuneError, NotFoundError, UsageError
from autotune.families.config import Value
from autotune.families.plan import Template
from autotune.measure import devices, targets
from autotune.measure.devices import DEFAULT, DeviceLike, ReplayedFile, source_of
from autotune.measure.recording import KernelRecording, Origin
from autotune.measure.without_gpu import ReplayRunner
from autotune.problem.call import KernelCall
from autotune.records import KernelRecord, Store
from autotune.tuning.options import Search
from autotune.tuning.pipeline import Compile
from autotune.user_kernels.arguments import call_of, in_own_library, launch_arguments, on_hosts
from autotune.user_kernels.checks import Places, check_signature, macros_kept, variables_filled
from autotune.user_kernels.definition import UserKernel, define_kernel
from autotune.user_kernels.geometry import Divisor, Extents, SharedBytes
from autotune.user_kernels.results import Reference, Verification
from autotune.user_kernels.source import Compilation, unpacked
from autotune.user_kernels.space import Predicate
from autotune.user_kernels.table import KernelTable, occupancy_table
from autotune.user_kernels.tunable import (
    KernelTunable,
    Metric,
    ResultRunner,
    Score,
    check_metrics,
    first_results,
)
from autotune.user_kernels.workload import Workload, unverified, with_results, workload

if TYPE_CHECKING:
    from autotune.api.tuning import ProgressLike


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
            of `recording`.
        search: effort, limits, sampler and objective, or a `score`: a function of a `KernelResult`
            whose value, a number above 0, is minimised. `quick` is a search of 25 trials here.
            `energy` adds joules, power and clock to the results of the ten fastest; with a score it
            adds them to every result, in two seconds each.
        metrics: further functions of a `KernelResult` by name; their values go into the record.
        recording: a file, such as `saxpy.json.gz`, for the outcomes of all configurations that were
            tried; `device="replay:saxpy.json.gz"` searches among them without a GPU.
        progress: whether to show a progress bar, on standard error or in the notebook; `lines` for
            plain lines; or an observer, which receives the progress events instead.

    Raises:
        UsageError: for invalid arguments or limits, a reference that does not fit them, or an
            unknown device.
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
    limited, verify = _limited(search or Search(), began), verify or Verification()
    hosts = on_hosts(arguments)
    tunable = _tunable(kernel, hosts, metrics, limited)
    store = Store(files.ensure(settings.cache_dir()))
    if (recorded := replayed(device, tunable.call)) is not None:
        return replay(tunable, recorded, store, limited, progress)
    expected = partial(work_of, kernel.name, arguments, reference, verify)
    first = reference is None
    record = _measured(tunable, expected, store, limited, hosts, device, verify, first, progress)
    if recording is not None:
        save_recording(record, store, Path(recording))
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
    metrics: Mapping[str, Metric] | None,
    search: Search,
) -> KernelTunable:
    """The kernel and its call, with the user's numbers."""
    return KernelTunable(
        kernel,
        call_of(kernel.name, arguments),
        launch_arguments(arguments),
        metrics=check_metrics(metrics),
        score=search.score if isinstance(search.score, Score) else None,
        metered=search.meters_trials,
    )


def _measured(
    tunable: KernelTunable,
    expected: Callable[[], Workload],
    store: Store,
    search: Search,
    arguments: Sequence[object],
    device: DeviceLike,
    verify: Verification,
    first: bool,
    progress: ProgressLike,
) -> KernelRecord:
    """The record of a search on a GPU; with `first` the first results are the reference.

    The worker process starts and the first configurations compile while the reference runs.
    """
    index, resolved = targets.measuring(device, str(tunable))
    from autotune.user_kernels import bench

    limit, exact = verify.time_limit, resolved if resolved.knows_clusters else None
    with ExitStack() as opened:
        nothing = Workload(tunable.call, tunable.arguments, ())
        runner = bench.open_kernel_runner(nothing, index, time_limit=limit, device=exact)
        opened.callback(runner.close)
        compile, places = opened.enter_context(compiling(tunable.kernel))
        compile = variables_filled(compile, tunable.kernel.source, places)
        checks = partial(checked, tunable, arguments, resolved.arch, compile, places)
        check = opened.enter_context(background(checks))
        _import_ahead(search)
        if exact is None:  # nothing compiles before the worker has stated its GPU
            expected = partial(replace, expected())
        from autotune.tuning.loop import tune

        def hand_over(work: Workload) -> None:
            check()
            runner.switch_to(work, bench.seconds_limit(work, limit))

        if first:
            hand_over(work := expected())
            hand_over(work := stand_in(tunable, work, runner, compile, verify))
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
                begin=None if first else lambda: hand_over(expected()),
            )


def _origin(tunable: KernelTunable, driver: str, places: Places) -> Origin:
    folder, includes = places
    digest = source_hash(tunable.kernel.source.file, directory=folder, includes=includes)
    return Origin(driver, compiler.compiler_version(), tunable.digest(digest))


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


def replayed(device: DeviceLike, call: KernelCall) -> KernelRecording | None:
    """The recording that a device such as `replay:saxpy.json.gz` names; None for another device.

    Raises:
        NotFoundError: if there is no such file.
        UsageError: if it is of another call.
    """
    source = source_of(device)
    if not isinstance(source, ReplayedFile):
        return None
    recording = KernelRecording.load(source.path)
    if recording.call != call:
        raise UsageError(f"{source.path} is a recording of {recording.call}, not of {call}")
    return recording


def replay(
    tunable: KernelTunable,
    recording: KernelRecording,
    store: Store,
    search: Search,
    progress: ProgressLike,
) -> KernelRecord:
    """Searches among recorded outcomes. Nothing is compiled and nothing runs."""
    from autotune.tuning.loop import tune

    source = tunable.digest(recording.origin.source)
    origin = Origin(recording.origin.driver, recording.origin.compiler, source)
    runner = ReplayRunner(recording, search.seed)
    with shown(None, search, progress) as observer:
        return tune(
            tunable, runner, store, search, compile=_uncompiled, origin=origin, observer=observer
        )


def _uncompiled(template: Template, arch: str) -> Program | CompileFailure:
    return CompileFailure(template, arch, "a replay compiles nothing", "")


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
    runner: ResultRunner,
    compile: Compile,
    verify: Verification,
) -> Workload:
    """The call with the results of the first configuration that runs as those expected."""
    config, results = first_results(tunable, runner, compile)
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
) -> None:
    """Checks the first and the last legal configuration: their arguments against the signature,
    their macros and their variables.

    Where all trials stand since an earlier run, nothing else compiles.

    Raises:
        UsageError: for another signature, a macro that the source changes, or a variable that
            nothing fills.
    """
    kernel = tunable.kernel
    legal = [config for config, result in tunable.combinations if not isinstance(result, str)]
    if legal:
        check_signature(kernel, legal[0], arguments, arch, places)
    for config in dict.fromkeys(legal[:1] + (legal[-1:] if kernel.source.defines else [])):
        compile(kernel.source.template(config), arch)


NAME = "KERNEL"
"""The variable of a specification."""


MODULE = "autotune_spec"
"""The `__name__` of a specification while it runs."""


def tune_spec(
    path: Path, changes: Mapping[str, object], fields: Mapping[str, object]
) -> KernelRecord:
    """Tunes the kernel of a specification.

    Args:
        path: a Python file whose `KERNEL` is a mapping of keywords of `tune_kernel` to their
            values, or a function that returns one. A relative path of a source is looked for
            beside it.
        changes: keywords that replace the file's.
        fields: replacements for fields of the file's `search`. An objective replaces a score too.

    Raises:
        UsageError: for a file that is not a specification, and as `tune_kernel`.
        AutotuneError: as `tune_kernel`.
    """
    keywords = {**read_spec(path), **changes}
    own = dict(fields) | ({"score": None} if "objective" in fields else {})
    keywords["search"] = replace(keywords.get("search") or Search(), **own)
    _require(path, keywords, "arguments")
    record: KernelRecord = tune_kernel(**keywords)
    return record


def spec_occupancy(path: Path, device: str | None) -> KernelTable:
    """The occupancy of the kernel of a specification; needs no GPU if the device is named.

    Raises:
        UsageError: for a file that is not a specification, and as `kernel_occupancy`.
    """
    keywords = read_spec(path)
    names = inspect.signature(kernel_occupancy).parameters
    chosen = {name: value for name, value in keywords.items() if name in names}
    return kernel_occupancy(**chosen | ({"device": device} if device else {}))


def read_spec(path: Path) -> dict[str, Any]:
    """The keywords of a specification, with its source beside it.

    Raises:
        UsageError: for a file that cannot be run or has no `KERNEL`, and for one that lacks or
            misspells a keyword.
    """
    spec = _run(path).get(NAME)
    if callable(spec):
        spec = _called(path, spec)
    if not isinstance(spec, Mapping):
        raise UsageError(
            f"{path} has no {NAME}; set it to a dict of the keywords of autotune.tune_kernel, or "
            "to a function that returns such a dict"
        )
    known_names = [*inspect.signature(tune_kernel).parameters]
    for name in spec:
        if name not in known_names:
            close = get_close_matches(str(name), known_names, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise UsageError(f"{path}: {NAME} has {name!r}, no keyword of tune_kernel{hint}")
    keywords = dict(spec)
    _require(path, keywords, "source", "name", "parameters")
    source = keywords["source"]
    if isinstance(source, Path) and not source.is_absolute():
        keywords["source"] = path.resolve().parent / source
    return keywords


def _require(path: Path, keywords: Mapping[str, object], *names: str) -> None:
    if missing := [name for name in names if name not in keywords]:
        raise UsageError(f"{path}: {NAME} lacks {', '.join(missing)}")


def _run(path: Path) -> dict[str, Any]:
    """The variables of a Python file, which may import what lies beside it."""
    if not path.is_file():
        raise UsageError(f"{path} is not a file; give a Python file with {NAME}")
    folder = str(path.resolve().parent)
    sys.path.insert(0, folder)
    try:
        names: dict[str, Any] = _called(path, lambda: runpy.run_path(str(path), run_name=MODULE))
        return names
    finally:
        sys.path.remove(folder)


def _called(path: Path, function: Callable[[], Any]) -> Any:
    """The result of the user's code; a failure in a line that says where."""
    try:
        return function()
    except AutotuneError:
        raise
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if Path(frame.filename).name == path.name]
        where = f"{path}:{lines[-1]}" if lines else f"{path}"
        raise UsageError(f"{where}: {type(error).__name__}: {error}") from error
