"""What the text of a device stands for, and how a problem is measured there.

gpu, gpu:1         the first or another GPU of this machine: measured
replay:h100        a recording that the package ships: replayed
h100, file.json    a device of the catalogue or of a file: predicted
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from autotune import device as devices
from autotune import recording
from autotune.compiler import compiler_version, source_hash
from autotune.device import Device
from autotune.errors import DeviceError, MissingError, ProblemError
from autotune.predicted import PredictedRunner
from autotune.problem import Problem
from autotune.recording import Origin, Recording
from autotune.replay import ReplayRunner
from autotune.runner import Runner

DEFAULT = "gpu"
OLDEST = (7, 5)
"""The oldest compute capability that the compilers of CUDA 13 know."""

KERNEL_SOURCES = (
    *("gemv.cu", "mma.cu", "naive.cu", "pack.cu", "simt.cu", "split_k.cu", "tiled.cu"),
    "wgmma.cu",
)

_REPLAY = "replay:"
_GPU = re.compile(r"gpu(?::(\d{1,9}))?", re.IGNORECASE)


@dataclass(frozen=True)
class Target:
    """What answers for a problem, and what its answers are made with."""

    runner: Runner
    origin: Origin


def resolve(spec: str = DEFAULT) -> Device:
    """The device that `spec` names.

    Raises:
        MissingError: if it names a GPU of this machine and there is none.
        DeviceError: if there is no such device.
        NotFoundError: if there is no such recording.
    """
    _check_text(spec)
    if (index := _index(spec)) is not None:
        return _probe(index)
    if (name := _recorded(spec)) is not None:
        first, *_ = recording.names().get(name, (Problem(1, 1, 1),))
        return recording.find(name, first).device
    return devices.load(spec)


@contextmanager
def opened(problem: Problem, spec: str = DEFAULT, *, seed: int = 0) -> Iterator[Target]:
    """The target of a problem on the device that `spec` names; `seed` is of a recording's noise.

    Raises:
        ProblemError: if the device cannot hold the problem.
        AutotuneError: as `resolve`, or if kernels cannot be compiled or measured for the device.
    """
    device = resolve(spec)
    check_memory(problem, device)
    target = _target(problem, spec, device, seed)
    try:
        yield target
    finally:
        target.runner.close()


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
        index = _present(device)
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


def index_of(device: Device) -> int:
    """The number of this machine's first GPU of that model.

    Raises:
        DeviceError: if there is none.
        MissingError: without PyCUDA, a driver or a GPU.
    """
    from autotune import gpu

    index = 0
    while gpu.probe(index).slug != device.slug:
        index += 1
    return index


def _target(problem: Problem, spec: str, device: Device, seed: int) -> Target:
    if (recorded := recording_of(problem, spec)) is not None:
        return Target(ReplayRunner(recorded, seed), recorded.origin)
    check_compilable(device)
    compiler, source = compiler_version(), source_hash(*KERNEL_SOURCES)
    index = _index(spec)
    if index is None:
        index = _present(device)
    if index is None:
        return Target(PredictedRunner(problem, device), Origin("", compiler, source))
    from autotune import gpu

    runner = gpu.open_runner(problem, index)
    return Target(runner, Origin(runner.driver, compiler, source))


def _present(device: Device) -> int | None:
    """The number of this machine's first GPU of that model, if it can measure on one."""
    try:
        return index_of(device)
    except (DeviceError, MissingError):
        return None


def _check_text(spec: object) -> None:
    if not isinstance(spec, str):
        raise DeviceError(f"device is {spec!r}; give its name, such as 'h100', or a file's path")


def _index(spec: str) -> int | None:
    match = _GPU.fullmatch(spec)
    return int(match[1] or 0) if match else None


def _recorded(spec: str) -> str | None:
    lower = spec.lower()  # as the catalogue takes names
    return lower.removeprefix(_REPLAY) if lower.startswith(_REPLAY) else None


def _probe(index: int) -> Device:
    from autotune import gpu, runtime

    try:
        return gpu.probe(index)
    except MissingError:
        # Only measuring needs PyCUDA.
        try:
            return runtime.probe(index)
        except MissingError as error:
            raise MissingError(
                f"{error}; or give another device: --device replay:h100 for recorded times, "
                "--device h100 for predicted ones"
            ) from error


def _dotted(compute_capability: tuple[int, int]) -> str:
    return "{}.{}".format(*compute_capability)
