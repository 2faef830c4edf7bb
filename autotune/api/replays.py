"""Searches among the recorded outcomes of a user kernel: nothing is compiled and nothing runs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from hashlib import sha256

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
from autotune.user_kernels.definition import define_kernel
from autotune.user_kernels.tunable import KernelTunable


def recording_of(device: DeviceLike) -> KernelRecording | None:
    """The recording that a device such as `replay:saxpy.json.gz` names; None for another device.

    Raises:
        NotFoundError: if there is no such file.
        AutotuneError: if it is not of a user kernel.
    """
    source = source_of(device)
    return KernelRecording.load(source.path) if isinstance(source, ReplayedFile) else None


def replayed(device: DeviceLike, tunable: KernelTunable) -> KernelRecording | None:
    """The recording of a kernel's call that a device names; None for another device.

    Raises:
        NotFoundError: if there is no such file.
        UsageError: if it is of another call, or a file of Kernel Tuner with other parameters.
    """
    recording, kernel = recording_of(device), tunable.kernel
    if recording is None or not recording.any_call:
        if recording is not None and recording.call != tunable.call:
            raise UsageError(f"{device} is a recording of {recording.call}, not of {tunable.call}")
        return recording
    recorded, own = sorted(recording.rows[0].config.values), sorted(kernel.parameters)
    if recorded != own:
        raise UsageError(
            f"{device} has the parameters {', '.join(recorded)}, {kernel.name} has "
            f"{', '.join(own) or 'none'}"
        )

    def renamed(config: Config) -> Config:
        values = config.values
        return Config.of(kernel.family, {name: values[name] for name in kernel.parameters})

    rows = tuple(replace(row, config=renamed(row.config)) for row in recording.rows)
    return replace(recording, rows=rows)


@dataclass(frozen=True)
class RecordedTunable(KernelTunable):
    """A kernel without its source: a recording states its configurations."""

    recorded: tuple[Config, ...] = ()

    def digest(self, sources: str) -> str:
        """A hash of the recording's file or sources; no geometry is known."""
        return sha256(f"recorded {sources}".encode()).hexdigest()

    def candidates(
        self, runner: Runner, barred: Collection[Config], *, ranked: int | None
    ) -> Candidates:
        """The recorded configurations."""
        del runner, barred, ranked
        return Candidates((), self.recorded, {})

    def _launch(self, config: Config) -> None:
        del config


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
    """Searches among recorded outcomes. Nothing is compiled and nothing runs.

    Raises:
        UsageError: for a search that records.
    """
    if search.recording is not None:
        raise UsageError("a replay has no times to record; give a GPU of this machine, or none")
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
