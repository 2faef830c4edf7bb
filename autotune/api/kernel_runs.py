"""The call, the compiler and the checks that tuning a user kernel and its occupancy share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from autotune import compiler, settings
from autotune.tuning.evaluate import Compile
from autotune.user_kernels import (
    KernelTunable,
    UserKernel,
    Workload,
    check_signature,
    first_results,
    source_folder,
    workload,
)
from autotune.user_kernels.arrays import in_own_library, on_hosts
from autotune.user_kernels.expected import Reference
from autotune.user_kernels.outcomes import Metric, Score, check_metrics
from autotune.user_kernels.workload import unverified, with_results

if TYPE_CHECKING:
    pass

Places = tuple[Path, tuple[Path, ...]]
"""The folder of a source, and the folders of headers."""


def tunable_of(
    kernel: UserKernel, work: Workload, metrics: Mapping[str, Metric] | None, score: Score | None
) -> KernelTunable:
    """The kernel and its call, with the user's numbers."""
    own = check_metrics(metrics)
    return KernelTunable(kernel, work.call, work.arguments, metrics=own, score=score)


def work_of(
    name: str,
    arguments: Sequence[object],
    reference: Reference | None,
    rtol: float | None,
    atol: float | None,
) -> Workload:
    """The call with the results that a reference expects; without one, with none."""
    hosts = on_hosts(arguments)
    if reference is None:
        return unverified(name, hosts)
    own = in_own_library(reference, arguments) if callable(reference) else on_hosts(reference)
    return workload(name, hosts, own, rtol=rtol, atol=atol)


def stand_in(
    tunable: KernelTunable,
    work: Workload,
    index: int,
    compile: Compile,
    time_limit: float,
    rtol: float | None,
    atol: float | None,
) -> Workload:
    """The call with the results of the first configuration that runs as those expected."""
    from autotune import gpu

    runner = gpu.open_kernel_runner(work, index, time_limit=time_limit)
    try:
        config, results = first_results(tunable, runner, compile)
    finally:
        runner.close()
    return with_results(work, results, str(config), rtol=rtol, atol=atol)


@contextmanager
def compiling(kernel: UserKernel) -> Iterator[tuple[Compile, Places]]:
    """A compiler of the kernel's configurations, the folder of its source and those of headers."""
    cache = settings.cache_dir()
    with source_folder(kernel) as (folder, includes):
        yield (
            partial(compiler.compile, cache=cache, sources=folder, includes=includes),
            (folder, includes),
        )


def check_arguments(
    tunable: KernelTunable, arguments: Sequence[object], arch: str, places: Places
) -> None:
    """Checks the arguments against the signature of the first legal configuration."""
    first = next(
        (config for config, result in tunable.combinations if not isinstance(result, str)), None
    )
    if first is not None:
        check_signature(tunable.kernel, first, arguments, arch, places)


def digest_of(tunable: KernelTunable, places: Places) -> str:
    """A hash of all that times depend on but the device."""
    folder, includes = places
    file = tunable.kernel.source.file
    return tunable.digest(compiler.source_hash(file, directory=folder, includes=includes))
