"""The call, the compiler and the checks that tuning a user kernel and its occupancy share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial

from autotune import settings
from autotune.cuda import compiler
from autotune.cuda.program import source_hash
from autotune.tuning.evaluate import Compile
from autotune.tuning.options import Search
from autotune.user_kernels import (
    KernelTunable,
    UserKernel,
    Verification,
    Workload,
    check_signature,
    first_results,
    source_folder,
    workload,
)
from autotune.user_kernels.arrays import in_own_library, on_hosts
from autotune.user_kernels.expected import Reference
from autotune.user_kernels.mistakes import Places, macros_kept, variables_filled
from autotune.user_kernels.outcomes import Metric, Score, check_metrics
from autotune.user_kernels.workload import unverified, with_results


def tunable_of(
    kernel: UserKernel, work: Workload, metrics: Mapping[str, Metric] | None, search: Search
) -> KernelTunable:
    """The kernel and its call, with the user's numbers."""
    return KernelTunable(
        *(kernel, work.call, work.arguments),
        metrics=check_metrics(metrics),
        score=search.score if isinstance(search.score, Score) else None,
        metered=search.meters_trials,
    )


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
    return workload(name, hosts, own, rtol=verify.rtol, atol=verify.atol)


def stand_in(
    tunable: KernelTunable,
    work: Workload,
    index: int,
    compile: Compile,
    verify: Verification,
) -> Workload:
    """The call with the results of the first configuration that runs as those expected."""
    from autotune import gpu

    runner = gpu.open_kernel_runner(work, index, time_limit=verify.time_limit)
    try:
        config, results = first_results(tunable, runner, compile)
    finally:
        runner.close()
    return with_results(work, results, str(config), rtol=verify.rtol, atol=verify.atol)


@contextmanager
def compiling(kernel: UserKernel) -> Iterator[tuple[Compile, Places]]:
    """A compiler of the kernel's configurations, the folder of its source and those of headers."""
    cache = settings.cache_dir()
    with source_folder(kernel) as (folder, includes):
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


def digest_of(tunable: KernelTunable, places: Places) -> str:
    """A hash of all that times depend on but the device."""
    folder, includes = places
    file = tunable.kernel.source.file
    return tunable.digest(source_hash(file, directory=folder, includes=includes))
