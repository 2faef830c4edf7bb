"""The record of a run: saved, or else kept elsewhere or handed to the caller."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TypeVar

from autotune.errors import CacheError, UnsavedError
from autotune.files import spare
from autotune.records import Provenance, Store, TuningRecord, codec
from autotune.runners.base import Measurement, Runner
from autotune.runners.recording import Origin
from autotune.tuning.leaderboard import Leaderboard
from autotune.tuning.tunable import Tunable
from autotune.version import __version__

R = TypeVar("R", bound=TuningRecord)


def record_of(
    tunable: Tunable[R],
    runner: Runner,
    origin: Origin,
    leaderboard: Leaderboard,
    baseline: Measurement | None,
    *,
    seed: int,
    seconds: float,
    interrupted: bool,
) -> R:
    """The record of the leaders; `interrupted` if the run was not over."""
    provenance = Provenance(
        driver=origin.driver,
        compiler=origin.compiler,
        source=origin.source,
        autotune=__version__,
        date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        seed=seed,
        trials=len(leaderboard.trials),
        seconds=seconds,
        interrupted=interrupted,
        baseline_fault=runner.baseline_fault,
    )
    return tunable.record(
        device=runner.device,
        evidence=runner.evidence,
        entries=[entry for trial in leaderboard.leaders if (entry := trial.entry)],
        baseline=baseline,
        provenance=provenance,
    )


def saved(store: Store, record: R, leaderboard: Leaderboard, earlier: BaseException | None) -> R:
    """The record as saved, merged with what was recorded before.

    Args:
        store: where to save it.
        record: the record.
        leaderboard: the run's leaderboard. Configurations that failed leave the earlier record; so
            do timed ones if that record has another driver or compiler.
        earlier: the error that had ended the run, if any; an error of the log is part of the
            message.

    Raises:
        UnsavedError: if it cannot be saved; the record is kept elsewhere or is in the error.
    """
    try:
        return store.save(record, leaderboard.failed, leaderboard.timed)
    except CacheError as error:
        why = error
    name = f"{record.device.slug}-{record.slug}.{record.evidence}.json"
    path = spare.keep(name, codec.dumps(record))
    if path is None:
        fate = "the record is in no file"
    else:
        fate = f"the record is kept in {path}: `autotune cache import` it when there is room"
    message = f"{why}; {fate}"
    if isinstance(earlier, CacheError):
        message = f"{earlier}; the record cannot be saved either: {message}"
    raise UnsavedError(
        message,
        record=None if path else record,
        trials=earlier.trials if isinstance(earlier, UnsavedError) else (),
    ) from why
