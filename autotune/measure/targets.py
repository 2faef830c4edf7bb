"""Targets: runners of problems on a device, which measure, replay or predict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from autotune import settings
from autotune.cuda.compiler import compiler_version
from autotune.cuda.program import source_hashes
from autotune.device import Device, SmLimits, sm_named
from autotune.errors import DeviceError, MissingError, ProblemError, UsageError
from autotune.measure import devices
from autotune.measure.devices import DEFAULT, DeviceLike, LocalGpu, Replayed, local_gpu, source_of
from autotune.measure.recording import Origin
from autotune.measure.runner import Runner
from autotune.problem import Problem

if TYPE_CHECKING:
    from autotune.measure.gpu_runner import GpuRunner

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


@runtime_checkable
class Switchable(Protocol):
    """A runner that can take up another problem, as a GPU's can."""

    def switch_to(self, problem: Problem) -> None:
        """Takes up the problem."""
        ...


class TargetOpener:
    """Opens the target of one problem after the other. Runners that can switch to the next problem
    stay open: their processes take longer to start than a race takes. Close it after use.

    Args:
        device: device that measures problems.
        numbers: several GPUs of this machine in place of `device`, also as text such as `0,1`, or
            `all`.
        seed: random seed of a recording's noise.
        quick: calls cuBLAS without PyTorch where that serves.
    """

    def __init__(
        self,
        device: DeviceLike = DEFAULT,
        *,
        numbers: str | Sequence[int] | None = None,
        seed: int = 0,
        quick: bool = False,
    ) -> None:
        self.device = device
        self._numbers, self._seed, self._quick = numbers, seed, quick
        self._stack = ExitStack()
        self._target: Target | None = None

    def __enter__(self) -> TargetOpener:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def starting(self, problem: Problem) -> Iterator[Callable[[], Target]]:
        """Starts the runners of a problem, or lets the open ones take it up. The function that it
        yields waits until they are ready. They stay open unless an error leaves the block.

        Raises:
            UsageError: for numbers of no GPU, or numbers and a device.
            ProblemError: if the device cannot hold the problem.
            DeviceError: if the GPUs are of several models.
            FrozenError: in the frozen mode, as measuring compiles and writes.
            AutotuneError: as `resolve`, or if kernels cannot be compiled or measured for the
                device.
        """
        try:
            if (switched := self._switched(problem)) is not None:
                yield lambda: switched
            else:
                self.close()
                ready = self._started(problem)

                def target() -> Target:
                    self._target = ready()
                    return self._target

                yield target
        except BaseException:
            self.close()
            raise

    def target(self, problem: Problem) -> Target:
        """The target of the problem, ready.

        Raises:
            AutotuneError: as `starting`.
        """
        with self.starting(problem) as ready:
            return ready()

    def close(self) -> None:
        """Closes the runners; the next problem starts new ones."""
        self._target = None
        self._stack.close()

    def _switched(self, problem: Problem) -> Target | None:
        """The open target, if all its runners could take up the problem, and did."""
        if (target := self._target) is None:
            return None
        runners = target.runner, *target.further
        switchable = [runner for runner in runners if isinstance(runner, Switchable)]
        if len(switchable) < len(runners):
            return None
        check_memory(problem, target.runner.device)
        for runner in switchable:
            runner.switch_to(problem)
        return target

    def _started(self, problem: Problem) -> Callable[[], Target]:
        """Starts the runners of a problem; the function that it returns waits for them."""
        settings.refuse_frozen(f"cannot measure {problem}")
        if self._numbers is not None:
            if self.device != DEFAULT:
                numbers, device = self._numbers, self.device
                raise UsageError(f"GPUs {numbers!r} and a device {device!r}; give one of both")
            return self._measured(problem, devices.numbered(self._numbers))
        if (gpu := local_gpu(self.device)) is not None:
            return self._measured(problem, (gpu.index,))
        return lambda: self._named(problem)

    def _measured(self, problem: Problem, indices: Iterable[int]) -> Callable[[], Target]:
        """Starts a runner on each GPU; the function that it returns waits for them."""
        from autotune.measure import gpu_runner

        runners: dict[int, GpuRunner] = {}
        with devices.explained():
            for index in indices:
                # The vendor baseline is timed on the first GPU only.
                runner = gpu_runner.open_runner(
                    problem, index, with_baseline=not runners, quick=self._quick
                )
                self._stack.callback(runner.close)
                runners[index] = runner

        def target() -> Target:
            tools = compiler_version(), _kernel_sources()  # while the runners start
            with devices.explained():
                models = {index: runner.device for index, runner in runners.items()}
            _check_alike(models)
            first, *further = runners.values()
            check_memory(problem, first.device)
            check_compilable(first.device)
            return Target(first, Origin(first.driver, *tools), tuple(further))

        return target

    def _named(self, problem: Problem) -> Target:
        """The target of a recording, of a named GPU that is in this machine, or of predictions."""
        from autotune.measure import without_gpu

        if (recording := devices.recording_of(problem, self.device)) is not None:
            check_memory(problem, recording.device)
            return Target(without_gpu.ReplayRunner(recording, self._seed), recording.origin)
        resolved = resolve(self.device)
        check_memory(problem, resolved)
        check_compilable(resolved)
        index = devices.present(resolved)
        if index is not None:
            return self._measured(problem, (index,))()
        origin = Origin("", compiler_version(), _kernel_sources())
        return Target(without_gpu.PredictedRunner(problem, resolved), origin)


@contextmanager
def opened(problem: Problem, device: DeviceLike = DEFAULT) -> Iterator[Target]:
    """The target of a problem on a device.

    Raises:
        AutotuneError: as `TargetOpener.starting`.
    """
    with TargetOpener(device) as opener:
        yield opener.target(problem)


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
        with devices.suggesting():
            probed = devices.probe(source.index)
            unknown = enter and not probed.knows_clusters
            return devices.probe(source.index, enter=True) if unknown else probed
    return devices.recorded_device(source) if isinstance(source, Replayed) else source


def resolve_limits(text: str) -> SmLimits:
    """The device that a text means, or the SM of a compute capability such as `sm_86`.

    Raises:
        AutotuneError: as `resolve`.
    """
    return sm_named(text) or resolve(text)


def here() -> Origin:
    """The driver, compiler and kernel sources that a GEMM measured on this machine would have.

    A missing driver or compiler is an empty text.
    """
    try:
        compiler = compiler_version()
    except MissingError:
        compiler = ""
    return Origin(devices.driver_version(), compiler, _kernel_sources())


def measuring(device: DeviceLike, tunable: str) -> tuple[int, Device]:
    """The GPU of this machine on which something is measured that cannot be predicted: its number
    and its identity.

    Args:
        device: device that measures.
        tunable: name of the tunable, for messages.

    Raises:
        MissingError: if this machine has no such GPU, or nothing to measure with.
        DeviceError: if there is no such device, or kernels cannot be compiled for it.
    """
    source = source_of(device)
    if isinstance(source, Replayed):
        raise DeviceError(f"{device} holds times of GEMMs, none of {tunable}; give `gpu`")
    index = source.index if isinstance(source, LocalGpu) else devices.present(source)
    if index is None:
        raise MissingError(
            f"{tunable}: {resolve(device).name} is not in this machine, and the time of a "
            "user kernel cannot be predicted; `autotune.kernel_occupancy` shows its occupancy "
            "without a GPU"
        )
    try:
        probed = devices.probe(index)
    except MissingError as error:
        raise MissingError(
            f"{error}; without a GPU `autotune.kernel_occupancy` shows the occupancy of a user "
            "kernel"
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
        return devices.present(source) is not None
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
        raise DeviceError(f"{device} is a recording, not a GPU; give `gpu` or the number of a GPU")
    return devices.index_of(source)


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


def _kernel_sources() -> str:
    """The hash of each family's sources, and the version of cuBLASLt if it is installed, as one
    text."""
    # The families take long to import, and a measurement starts its workers first.
    from autotune.cuda.cublaslt import version
    from autotune.families import cublaslt, registry, source_text

    sources = {name: row.sources for name, row in registry.FAMILIES.items() if row.sources}
    return source_text.joined({**source_hashes(sources), cublaslt.NAME: version()})


def _check_alike(models: Mapping[int, Device]) -> None:
    """Checks that GPUs are of one model: times on one model do not predict those on another.

    Raises:
        DeviceError: if they are not; with the names of two.
    """
    (first_index, first), *rest = models.items()
    for index, device in rest:
        if device.slug != first.slug:
            raise DeviceError(
                f"GPU {first_index} is {first.name}, GPU {index} is {device.name}; give GPUs of "
                "one model"
            )
