"""The trials in a journal file, read without changing it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from optuna.storages import BaseStorage, JournalStorage
from optuna.trial import FrozenTrial

from autotune.errors import CacheError
from autotune.tuning.evaluate import Trial
from autotune.tuning.search.journal import trials
from autotune.tuning.search.journal.journal_file import JournalFile


@dataclass(frozen=True)
class FinishedTrial:
    """A trial and when it finished: seconds since the first trial of its study began, None if the
    journal does not say."""

    trial: Trial
    seconds: float | None


def read(path: Path) -> dict[str, tuple[FinishedTrial, ...]]:
    """The finished trials of each study in a journal file, in the order in which they finished.

    Trials that another version or program wrote are passed over. A configuration that was tried
    twice counts with its last result.

    Raises:
        FileNotFoundError: if there is no such file.
        CacheError: if it is damaged, or cannot be read.
    """
    try:
        storage = JournalStorage(JournalFile(path))
        studies = storage.get_all_studies()
        return {study.study_name: _finished(storage, study._study_id) for study in studies}
    except FileNotFoundError:
        raise
    except Exception as error:  # Optuna trusts the file, so anything may be raised
        line = str(error).partition("\n")[0] or type(error).__name__
        raise CacheError(
            f"{path}: cannot be read: {line}; the next `autotune tune` mends it"
        ) from error


def _finished(storage: BaseStorage, study: int) -> tuple[FinishedTrial, ...]:
    stored = storage.get_all_trials(study, deepcopy=False)
    began = min((trial.datetime_start for trial in stored if trial.datetime_start), default=None)
    finished: dict[str, FinishedTrial] = {}
    for trial in sorted(stored, key=_end):
        with suppress(KeyError, TypeError, ValueError):
            outcome = trials.decode(trial.user_attrs)
            ended = trial.datetime_complete
            seconds = None if began is None or ended is None else (ended - began).total_seconds()
            finished.pop(str(outcome.config), None)
            finished[str(outcome.config)] = FinishedTrial(outcome, seconds)
    return tuple(finished.values())


def _end(trial: FrozenTrial) -> tuple[datetime, int]:
    """The order of finishing; trials whose time is unknown come last."""
    return trial.datetime_complete or datetime.max, trial.number
