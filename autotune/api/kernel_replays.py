"""Recordings of user kernels: written after a search, and replayed in place of a GPU."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from autotune.api.shown import shown
from autotune.compiler import CompileFailure, Program
from autotune.errors import AutotuneError, UsageError
from autotune.families.plan import Template
from autotune.problem.call import Call
from autotune.records import KernelRecord, Store
from autotune.runners.base import Failure, Measurement
from autotune.runners.energy import Energy
from autotune.runners.kernel_recording import KernelRecording
from autotune.runners.recording import Origin, SweepRow
from autotune.runners.replay import ReplayRunner
from autotune.targets.sources import DeviceLike
from autotune.tuning.events import Observer
from autotune.tuning.options import Options
from autotune.user_kernels import KernelTunable

PREFIX = "replay:"


def replayed(device: DeviceLike, call: Call) -> KernelRecording | None:
    """The recording that a device such as `replay:saxpy.json.gz` names; None for another device.

    Raises:
        NotFoundError: if there is no such file.
        UsageError: if it is of another call.
    """
    if not isinstance(device, str) or not device.startswith(PREFIX) or "." not in device:
        return None
    path = Path(device.removeprefix(PREFIX)).expanduser()
    recording = KernelRecording.load(path)
    if recording.call != call:
        raise UsageError(f"{path} is a recording of {recording.call}, not of {call}")
    return recording


def replay(
    tunable: KernelTunable,
    recording: KernelRecording,
    store: Store,
    search: Options,
    observer: Observer | None,
    progress: bool,
) -> KernelRecord:
    """Searches among recorded outcomes. Nothing is compiled and nothing runs."""
    from autotune.tuning.loop import tune

    source = tunable.digest(recording.origin.source)
    origin = Origin(recording.origin.driver, recording.origin.compiler, source)
    runner = ReplayRunner(recording, search.seed)
    with shown(None, search, observer, progress) as observes:
        run = tunable, runner, store, search
        return tune(*run, compile=_uncompiled, origin=origin, observer=observes)


def save_recording(record: KernelRecord, store: Store, path: Path) -> None:
    """Writes the trials of a record's search, which are in the cache, as a recording.

    Raises:
        AutotuneError: if the trials are kept elsewhere, or the file cannot be written.
    """
    from autotune.report.analysis.subject import subject_of  # imports Optuna

    subject = subject_of(record, store.root)
    if subject.source != "journal":
        raise AutotuneError(f"{path} is not written: {subject.note}")
    # The leaders' energies are measured after the trials.
    energies = {entry.config: entry.measurement.energy for entry in record.entries}
    rows = {
        trial.config: SweepRow(
            trial.config, trial.resources, _with_energy(trial.outcome, energies.get(trial.config))
        )
        for trial in (finished.trial for finished in subject.trials)
        if trial.resources is not None
    }
    run = record.provenance
    origin = Origin(run.driver, run.compiler, run.source)
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    KernelRecording(record.call, record.device, origin, date, tuple(rows.values())).save(path)


def _with_energy(outcome: Measurement | Failure, energy: Energy | None) -> Measurement | Failure:
    if isinstance(outcome, Failure) or energy is None:
        return outcome
    return replace(outcome, energy=energy)


def _uncompiled(template: Template, arch: str) -> Program | CompileFailure:
    return CompileFailure(template, arch, "a replay compiles nothing", "")
