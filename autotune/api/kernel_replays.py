"""Recordings of user kernels, replayed in place of a GPU."""

from __future__ import annotations

from autotune.api.shown import shown
from autotune.cuda.program import CompileFailure, Program
from autotune.errors import UsageError
from autotune.families.plan import Template
from autotune.problem.call import KernelCall
from autotune.records import KernelRecord, Store
from autotune.runners.kernel_recording import KernelRecording
from autotune.runners.recording import Origin
from autotune.runners.replay import ReplayRunner
from autotune.targets.sources import DeviceLike, ReplayedFile, source_of
from autotune.tuning.events import Observer
from autotune.tuning.options import Search
from autotune.user_kernels import KernelTunable


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
    progress: bool | Observer,
) -> KernelRecord:
    """Searches among recorded outcomes. Nothing is compiled and nothing runs."""
    from autotune.tuning.loop import tune

    source = tunable.digest(recording.origin.source)
    origin = Origin(recording.origin.driver, recording.origin.compiler, source)
    runner = ReplayRunner(recording, search.seed)
    with shown(None, search, progress) as observer:
        run = tunable, runner, store, search
        return tune(*run, compile=_uncompiled, origin=origin, observer=observer)


def _uncompiled(template: Template, arch: str) -> Program | CompileFailure:
    return CompileFailure(template, arch, "a replay compiles nothing", "")
