"""Runners of a problem on a device: measured, replayed or predicted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune import settings
from autotune.cuda.compiler import compiler_version
from autotune.cuda.program import source_hashes
from autotune.device import Device, SmLimits, sm_named
from autotune.errors import DeviceError, MissingError, ProblemError, UsageError
from autotune.problem import Problem
from autotune.runners.base import Runner
from autotune.runners.recording import Origin, Recording
from autotune.targets import local, recorded
from autotune.targets.sources import (
    DEFAULT,
    DeviceLike,
    LocalGpu,
    Replayed,
    local_gpu,
    source_of,
)

if TYPE_CHECKING:
    from autotune.gpu import GpuRunner

OLDEST = (7, 5)
"""The oldest compute capability that the compilers of CUDA 13 know."""


@dataclass(frozen=True)
class Target:
    """The runners of a problem, and where their measurements come from.

    Attributes:
        runner: the first runner.
        origin: driver, compiler and sources of the measurements.
        further: runners on further GPUs of the same model.
    """

    runner: Runner
    origin: Origin
    further: tuple[Runner, ...] = ()


def resolve(device: DeviceLike = DEFAULT, *, enter: bool = False) -> Device:
    """The identity and limits of a device.

    Args:
        device: the device.
        enter: whether to create a context on a GPU of this machine where the resident clusters
            are not known otherwise.

    Raises:
        MissingError: if it is a GPU of this machine and there is none.
        DeviceError: if there is no such device.
        NotFoundError: if there is no such recording.
    """
    source = source_of(device)
    if isinstance(source, LocalGpu):
        return local.entered(source.index) if enter else local.probe(source.index)
    return recorded.device_of(source) if isinstance(source, Replayed) else source


def resolve_limits(text: str) -> SmLimits:
    """The device that a text means, or the SM of a compute capability such as `sm_86`.

    Raises:
        AutotuneError: as `resolve`.
    """
    return sm_named(text) or resolve(text)


@contextmanager
def opening(
    problem: Problem,
    device: DeviceLike = DEFAULT,
    *,
    numbers: str | Sequence[int] | None = None,
    seed: int = 0,
    quick: bool = False,
) -> Iterator[Callable[[], Target]]:
    """Starts the runners of a problem, and closes them at the end. The function that it yields
    waits until they are ready.

    Args:
        problem: what is measured.
        device: where.
        numbers: several GPUs of this machine in place of `device`, also as text such as `0,1`, or
            `all`.
        seed: random seed of a recording's noise.
        quick: calls cuBLAS without PyTorch where that serves.

    Raises:
        UsageError: for numbers of no GPU, or numbers and a device.
        ProblemError: if the device cannot hold the problem.
        DeviceError: if the GPUs are of several models.
        FrozenError: in the frozen mode, as measuring compiles and writes.
        AutotuneError: as `resolve`, or if kernels cannot be compiled or measured for the device.
    """
    settings.refuse_frozen(f"cannot measure {problem}")
    if numbers is not None and device != DEFAULT:
        raise UsageError(f"GPUs {numbers!r} and a device {device!r}; give one of both")
    gpu = local_gpu(device)
    with ExitStack() as stack:
        if numbers is not None:
            yield _measured(problem, local.numbered(numbers), stack, quick)
        elif gpu is not None:
            yield _measured(problem, (gpu.index,), stack, quick)
        else:
            yield lambda: _target(problem, device, seed, stack, quick)


@contextmanager
def opened(problem: Problem, device: DeviceLike = DEFAULT, *, seed: int = 0) -> Iterator[Target]:
    """The target of a problem on a device; `seed` is that of a recording's noise.

    Raises:
        AutotuneError: as `opening`.
    """
    with opening(problem, device, seed=seed) as target:
        yield target()


def here() -> Origin:
    """The driver, compiler and kernel sources that a GEMM measured on this machine would have.

    A missing driver or compiler is an empty text.
    """
    try:
        compiler = compiler_version()
    except MissingError:
        compiler = ""
    return Origin(local.driver_version(), compiler, _kernel_sources())


def measuring(device: DeviceLike, tunable: str) -> tuple[int, Device]:
    """The GPU of this machine on which something is measured that cannot be predicted: its number
    and its identity.

    Args:
        device: where.
        tunable: what is measured, for messages.

    Raises:
        MissingError: if this machine has no such GPU, or nothing to measure with.
        DeviceError: if there is no such device, or kernels cannot be compiled for it.
    """
    from autotune import gpu

    source = source_of(device)
    if isinstance(source, Replayed):
        raise DeviceError(f"{device} holds times of GEMMs, none of {tunable}; give `gpu`")
    if isinstance(source, LocalGpu):
        index: int | None = source.index
    else:
        index = local.present(source)
    if index is None:
        raise MissingError(
            f"{tunable}: {resolve(device).name} is not in this machine, and the time of a "
            "user kernel cannot be predicted; `autotune.kernel_occupancy` shows without a GPU what "
            "its configurations occupy"
        )
    try:
        probed = gpu.probe(index)
    except MissingError as error:
        raise MissingError(
            f"{error}; without a GPU `autotune.kernel_occupancy` shows what the configurations of "
            "a user kernel occupy"
        ) from error
    check_compilable(probed)
    return index, probed


def measures(device: DeviceLike = DEFAULT) -> bool:
    """Whether times on a device would be measured: it names a GPU of this machine.

    Raises:
        DeviceError: if there is no such device.
    """
    source = source_of(device)
    if isinstance(source, Device):
        return local.present(source) is not None
    return isinstance(source, LocalGpu)


def ordinal_of(device: DeviceLike) -> int:
    """The number of the GPU of this machine that a device names, to run kernels on.

    Raises:
        MissingError: without a driver or a GPU.
        DeviceError: if it names a recording, or a GPU that this machine does not have.
    """
    source = source_of(device)
    if isinstance(source, LocalGpu):
        return source.index
    if isinstance(source, Replayed):
        raise DeviceError(f"{device} is a recording, not a GPU; give `gpu` or the number of one")
    return local.running_on(source)


def recording_of(problem: Problem, device: DeviceLike) -> Recording | None:
    """The recording of a problem; None if the device is not that of a recording.

    Raises:
        NotFoundError: if there is no such recording or it does not hold the problem.
        AutotuneError: if the file is broken.
    """
    source = source_of(device)
    return recorded.recording_of(problem, source) if isinstance(source, Replayed) else None


def check_memory(problem: Problem, device: Device) -> None:
    """Checks that the matrices of a problem fit into the device's memory.

    Raises:
        ProblemError: if they do not; with the sizes.
    """
    if problem.bytes > device.memory_bytes:
        raise ProblemError(
            f"{problem}: A, B and C take {problem.bytes / 2**30:,.1f} GiB, {device.name} has "
            f"{device.memory_bytes / 2**30:,.1f} GiB; give a smaller shape"
        )


def check_compilable(device: Device) -> None:
    """Checks that the compilers in use support a device.

    Raises:
        DeviceError: if they do not; with its compute capability.
    """
    if device.compute_capability < OLDEST:
        own, oldest = ("{}.{}".format(*each) for each in (device.compute_capability, OLDEST))
        refused = f"kernels are compiled for {oldest} and newer"
        raise DeviceError(f"{device.name} has compute capability {own}; {refused}")


def _measured(
    problem: Problem, indices: Iterable[int], stack: ExitStack, quick: bool
) -> Callable[[], Target]:
    """Starts a runner on each GPU; the function that it returns waits for them."""
    from autotune import gpu

    runners: dict[int, GpuRunner] = {}
    with local.explained():
        for index in indices:
            # The vendor baseline is timed on the first GPU only.
            runner = gpu.open_runner(problem, index, with_baseline=not runners, quick=quick)
            stack.callback(runner.close)
            runners[index] = runner

    def target() -> Target:
        tools = compiler_version(), _kernel_sources()  # while the runners start
        with local.explained():
            models = {index: runner.device for index, runner in runners.items()}
        local.check_alike(models)
        first, *further = runners.values()
        check_memory(problem, first.device)
        check_compilable(first.device)
        return Target(first, Origin(first.driver, *tools), tuple(further))

    return target


def _target(
    problem: Problem, device: DeviceLike, seed: int, stack: ExitStack, quick: bool
) -> Target:
    """The target of a recording, of a named GPU that is in this machine, or of predictions."""
    if (recording := recording_of(problem, device)) is not None:
        from autotune.runners.replay import ReplayRunner

        check_memory(problem, recording.device)
        return Target(ReplayRunner(recording, seed), recording.origin)
    resolved = resolve(device)
    check_memory(problem, resolved)
    check_compilable(resolved)
    index = local.present(resolved)
    if index is not None:
        return _measured(problem, (index,), stack, quick)()
    from autotune.runners.predicted import PredictedRunner

    origin = Origin("", compiler_version(), _kernel_sources())
    return Target(PredictedRunner(problem, resolved), origin)


def _kernel_sources() -> str:
    """The hash of each family's sources, as one text."""
    # The families take long to import, and a measurement starts its workers first.
    from autotune.families import registry, source_text

    families = registry.FAMILIES.items()
    return source_text.joined(source_hashes({name: row.sources for name, row in families}))
