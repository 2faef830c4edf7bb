"""Searches among the recorded outcomes of a user kernel: nothing is compiled and nothing runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from autotune.api.tuning import ProgressLike, shown
from autotune.cuda.program import CompileFailure, Program
from autotune.errors import UsageError
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.measure.devices import DeviceLike, ReplayedFile, source_of
from autotune.measure.recording import KernelRecording, Origin
from autotune.measure.runner import Runner
from autotune.measure.without_gpu import ReplayRunner
from autotune.records import KernelRecord, Store
from autotune.tuning.options import Search
from autotune.tuning.tunable import Candidates
from autotune.user_kernels.definition import UserKernel, define_kernel
from autotune.user_kernels.tunable import KernelTunable


def replayed(device: DeviceLike, tunable: KernelTunable) -> KernelRecording | None:
    """The recording that a device such as `replay:saxpy.json.gz` names; None for another device.

    Raises:
        NotFoundError: if there is no such file.
        UsageError: if it is of another call, or a file of Kernel Tuner with other parameters.
    """
    source = source_of(device)
    if not isinstance(source, ReplayedFile):
        return None
    recording = KernelRecording.load(source.path)
    if recording.any_call:
        return _of_kernel(recording, tunable.kernel, source.path)
    if recording.call != tunable.call:
        raise UsageError(f"{source.path} is a recording of {recording.call}, not of {tunable.call}")
    return recording


def _of_kernel(recording: KernelRecording, kernel: UserKernel, path: Path) -> KernelRecording:
    """A recording of Kernel Tuner with the kernel's name and the order of its parameters."""
    rows = []
    for row in recording.rows:
        values = row.config.values
        if values.keys() != kernel.parameters.keys():
            raise UsageError(
                f"{path} has the parameters {', '.join(sorted(values))}, {kernel.name} has "
                f"{', '.join(sorted(kernel.parameters)) or 'none'}"
            )
        ordered = {name: values[name] for name in kernel.parameters}
        rows.append(replace(row, config=Config.of(kernel.family, ordered)))
    return replace(recording, rows=tuple(rows))


@dataclass(frozen=True)
class RecordedTunable(KernelTunable):
    """A kernel without its source, whose configurations are those of a recording."""

    recorded: tuple[Config, ...] = ()

    def digest(self, sources: str) -> str:
        """A hash of the recording's file or sources; no geometry is known."""
        return sha256(f"recorded {sources}".encode()).hexdigest()

    def candidates(
        self, runner: Runner, unsafe: Callable[[Config], bool], *, ranked: int | None
    ) -> Candidates:
        """The recorded configurations."""
        del runner, unsafe, ranked
        return Candidates((), self.recorded, {})


def recording_of(device: DeviceLike) -> KernelRecording:
    """The recording of a user kernel that a device names.

    Raises:
        UsageError: if it names another device.
        NotFoundError: if there is no such file.
    """
    source = source_of(device)
    if not isinstance(source, ReplayedFile):
        raise UsageError(f"{device} is not the recording of a user kernel; give a shape to tune")
    return KernelRecording.load(source.path)


def tunable_of(recording: KernelRecording) -> KernelTunable:
    """The kernel of a recording, without its source."""
    configs = tuple(row.config for row in recording.rows)
    values = {name: [value] for name, value in configs[0].params}
    kernel = define_kernel(
        "", configs[0].family, values, constraints=None, grid=1, block=1, shared=0
    )
    return RecordedTunable(kernel, recording.call, recorded=configs)


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
