"""What the text of a device stands for, and how a problem is measured there.

gpu, gpu:1         the first or another GPU of this machine: measured
replay:h100        a recording that the package ships: replayed
h100, file.json    a device of the catalogue or of a file: predicted
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autotune import device as devices
from autotune.compiler import compiler_version, source_hash
from autotune.device import Device
from autotune.errors import DeviceError, MissingError, ProblemError, UsageError
from autotune.families import registry
from autotune.problem import Problem
from autotune.runners import recording
from autotune.runners.base import Runner
from autotune.runners.recording import Origin, Recording
from autotune.targets import local

if TYPE_CHECKING:
    from autotune.gpu import GpuRunner

DEFAULT = "gpu"
OLDEST = (7, 5)
"""The oldest compute capability that the compilers of CUDA 13 know."""

_REPLAY = "replay:"
_GPU = re.compile(r"gpu(?::(\d{1,9}))?", re.IGNORECASE)


@dataclass(frozen=True)
class Target:
    """What answers for a problem, and what its answers are made with.

    Attributes:
        runner: what answers.
        origin: what its answers are made with.
        others: of further GPUs of the same model.
    """

    runner: Runner
    origin: Origin
    others: tuple[Runner, ...] = ()


def resolve(spec: str = DEFAULT) -> Device:
    """The device that `spec` names.

    Raises:
        MissingError: if it names a GPU of this machine and there is none.
        DeviceError: if there is no such device.
        NotFoundError: if there is no such recording.
    """
    _check_text(spec)
    if (index := _index(spec)) is not None:
        return local.probe(index)
    if (name := _recorded(spec)) is not None:
        first, *_ = recording.names().get(name, (Problem(1, 1, 1),))
        return recording.find(name, first).device
    return devices.load(spec)


@contextmanager
def opening(
    problem: Problem,
    spec: str = DEFAULT,
    *,
    numbers: str | Sequence[int] | None = None,
    seed: int = 0,
) -> Iterator[Callable[[], Target]]:
    """Starts what answers for a problem; what comes back waits for it. At the end all is closed.

    Args:
        problem: what is measured.
        spec: names the device.
        numbers: of GPUs of this machine in its place, also as text such as `0,1`, or `all`.
        seed: of a recording's noise.

    Raises:
        UsageError: for numbers that are none, or with a device besides.
        ProblemError: if the device cannot hold the problem.
        DeviceError: if the GPUs are of several models.
        AutotuneError: as `resolve`, or if kernels cannot be compiled or measured for the device.
    """
    if numbers is not None and spec != DEFAULT:
        raise UsageError(f"GPUs {numbers!r} and a device {spec!r}; give one of both")
    _check_text(spec)
    index = _index(spec)
    with ExitStack() as stack:
        if numbers is not None:
            yield _measured(problem, local.numbered(numbers), stack)
        elif index is not None:
            yield _measured(problem, (index,), stack)
        else:
            yield lambda: _found(problem, spec, seed, stack)


@contextmanager
def opened(problem: Problem, spec: str = DEFAULT, *, seed: int = 0) -> Iterator[Target]:
    """The target of a problem on the device that `spec` names; `seed` is of a recording's noise.

    Raises:
        AutotuneError: as `opening`.
    """
    with opening(problem, spec, seed=seed) as target:
        yield target()


def here() -> Origin:
    """What this machine would measure matrix products with, as far as that is known.

    The driver is empty without one, the compiler without one.
    """
    try:
        compiler = compiler_version()
    except MissingError:
        compiler = ""
    return Origin(local.driver_version(), compiler, source_hash(*registry.kernel_sources()))


def measuring(spec: str, subject: str) -> tuple[int, Device]:
    """The number of the GPU of this machine that `spec` names, for what is measured or not at all.

    Args:
        spec: what names it.
        subject: what is to be measured, for the message.

    Raises:
        MissingError: if it is not there, or there is nothing to measure with.
        DeviceError: if there is no such device, or no kernels can be compiled for it.
    """
    from autotune import gpu

    _check_text(spec)
    if _recorded(spec) is not None:
        raise DeviceError(f"{spec} holds times of matrix products, none of {subject}; give `gpu`")
    index = _index(spec)
    if index is None:
        device = resolve(spec)
        index = local.present(device)
        if index is None:
            raise MissingError(
                f"{subject}: {device.name} is not in this machine, and nothing can predict the "
                "time of a kernel of yours; `autotune.kernel_occupancy` tells without a GPU what "
                "its configurations occupy"
            )
    try:
        device = gpu.probe(index)
    except MissingError as error:
        raise MissingError(
            f"{error}; without a GPU `autotune.kernel_occupancy` tells what the configurations of "
            "a kernel of yours occupy"
        ) from error
    check_compilable(device)
    return index, device


def recording_of(problem: Problem, spec: str) -> Recording | None:
    """The recording of a problem; None if `spec` names something else than a recording.

    Raises:
        NotFoundError: if there is no such recording or it does not hold the problem.
    """
    name = _recorded(spec)
    return None if name is None else recording.find(name, problem)


def check_memory(problem: Problem, device: Device) -> None:
    """Refuses a problem whose matrices do not fit into the device's memory.

    Raises:
        ProblemError: with the numbers.
    """
    if problem.bytes > device.memory_bytes:
        raise ProblemError(
            f"{problem}: A, B and C take {problem.bytes / 2**30:,.1f} GiB, {device.name} has "
            f"{device.memory_bytes / 2**30:,.1f} GiB; give a smaller shape"
        )


def check_compilable(device: Device) -> None:
    """Refuses a device that no compiler in use has code for.

    Raises:
        DeviceError: with its compute capability.
    """
    if device.compute_capability < OLDEST:
        raise DeviceError(
            f"{device.name} has compute capability {_dotted(device.compute_capability)}; "
            f"kernels are compiled for {_dotted(OLDEST)} and newer"
        )


def _measured(problem: Problem, indices: Iterable[int], stack: ExitStack) -> Callable[[], Target]:
    """Starts the runners of GPUs; what comes back waits for them and makes them a target."""
    from autotune import gpu

    runners: dict[int, GpuRunner] = {}
    with local.explained():
        for index in indices:
            # The vendor's library is timed on the first alone.
            runner = gpu.open_runner(problem, index, with_baseline=not runners)
            stack.callback(runner.close)
            runners[index] = runner

    def target() -> Target:
        with local.explained():
            found = {index: runner.device for index, runner in runners.items()}
        local.check_alike(found)
        first, *others = runners.values()
        return Target(first, _origin(problem, first.device, first.driver), tuple(others))

    return target


def _found(problem: Problem, spec: str, seed: int, stack: ExitStack) -> Target:
    """The target of a recording, of a named GPU that is in this machine, or of predictions."""
    device = resolve(spec)
    check_memory(problem, device)
    if (recorded := recording_of(problem, spec)) is not None:
        from autotune.runners.replay import ReplayRunner

        return Target(ReplayRunner(recorded, seed), recorded.origin)
    check_compilable(device)
    index = local.present(device)
    if index is not None:
        return _measured(problem, (index,), stack)()
    from autotune.runners.predicted import PredictedRunner

    return Target(PredictedRunner(problem, device), _origin(problem, device, ""))


def _origin(problem: Problem, device: Device, driver: str) -> Origin:
    check_memory(problem, device)
    check_compilable(device)
    return Origin(driver, compiler_version(), source_hash(*registry.kernel_sources()))


def _check_text(spec: object) -> None:
    if not isinstance(spec, str):
        raise DeviceError(f"device is {spec!r}; give its name, such as 'h100', or a file's path")


def _index(spec: str) -> int | None:
    match = _GPU.fullmatch(spec)
    return int(match[1] or 0) if match else None


def _recorded(spec: str) -> str | None:
    lower = spec.lower()  # as the catalogue takes names
    return lower.removeprefix(_REPLAY) if lower.startswith(_REPLAY) else None


def _dotted(compute_capability: tuple[int, int]) -> str:
    return "{}.{}".format(*compute_capability)
