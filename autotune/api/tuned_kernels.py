"""Loads user kernels in a recorded configuration."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from autotune import compiler, runtime, settings
from autotune.api.loading import ordinal_of
from autotune.compiler import CompileFailure
from autotune.errors import AutotuneError
from autotune.records.kernel_record import KernelEntry
from autotune.runtime.tuned_kernel import TunedKernel
from autotune.user_kernels.sources import unpacked

if TYPE_CHECKING:
    from autotune.targets.sources import DeviceLike


def load(entry: KernelEntry, device: DeviceLike | None = None) -> TunedKernel:
    """The kernel of an entry, compiled or fetched from the cache, and loaded on a GPU.

    Args:
        entry: a recorded configuration of a user kernel.
        device: a GPU of this machine; None is that of the current context, else the first.

    Raises:
        NotFoundError: if the record does not have the source.
        MissingError: without a driver, a GPU or a compiler.
        FrozenError: in the frozen mode, if the kernel is not in the cache.
        AutotuneError: if it does not compile for the GPU.
    """
    launch = entry.launchable()
    own, ordinal = runtime.current().runtime, ordinal_of(device)
    if ordinal is None:
        ordinal = own.driver.current() or 0
    gpu, plan = own.gpu(ordinal).device, launch.plan(entry.config)
    build = partial(compiler.compile, cache=settings.cache_dir())
    with unpacked(launch.source) as (folder, folders):
        program = build(plan.main.template, gpu.arch, sources=folder, includes=folders)
    if isinstance(program, CompileFailure):
        raise AutotuneError(f"{entry.config} does not compile for {gpu.arch}: {program.reason}")
    return TunedKernel(own, ordinal, launch.call, plan, program)
