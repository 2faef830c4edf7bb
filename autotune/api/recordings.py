"""Recordings of searches on a GPU, written from their trials."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.measure import targets
from autotune.measure.measurement import completed
from autotune.measure.recording import KernelRecording, Origin, Recording, SweepRow
from autotune.records import KernelRecord, Record, Store
from autotune.records.merging import made_from


def save_recording(record: Record | KernelRecord, store: Store, path: Path) -> None:
    """Writes the trials of a record's search, which are in the cache, as a recording.

    Raises:
        AutotuneError: if the trials are kept elsewhere, or the file cannot be written.
    """
    from autotune.report.analysis.subject import subject_of  # imports Optuna

    subject = subject_of(record, store.root)
    if subject.source != "log":
        raise AutotuneError(f"{path} is not written: {subject.note}")
    leaders = {entry.config: entry.measurement for entry in record.entries}
    rows = {
        trial.config: SweepRow(
            trial.config, trial.resources, completed(trial.outcome, leaders.get(trial.config))
        )
        for trial in (finished.trial for finished in subject.trials)
        if trial.resources is not None
    }
    run, today = record.provenance, targets.here().source
    # A record names the sources of its entries' families alone; trials are of other families too.
    source = today if made_from(record, today) else run.source
    origin = Origin(run.driver, run.compiler, source)
    date = datetime.now(timezone.utc).isoformat(timespec="seconds")
    made, swept = (record.device, origin, date), tuple(rows.values())
    if isinstance(record, KernelRecord):
        KernelRecording(record.call, *made, swept).save(path)
    else:
        Recording(record.problem, *made, record.baseline, swept).save(path)
