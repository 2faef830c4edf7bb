"""Finished trials on disk, one line each, which outlive a kill at any moment."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock
from optuna.trial import TrialState

from autotune.config import Config
from autotune.errors import CacheError
from autotune.evaluate import Trial
from autotune.plan import Resources
from autotune.runner import Failure, Measurement
from autotune.search.axes import FAMILY, Axis
from autotune.search.studies import study_of
from autotune.store import codec, files


class Journal:
    """An Optuna study in a journal file, as optuna-dashboard shows it.

    A trial is added whole once it is finished, so there is never half of one. Several processes
    may add to one file. A broken file is kept as `<file>.broken-<n>`, with a warning.

    Attributes:
        told: the trials that were there when it was opened, in the order in which they were added.

    Args:
        path: of the file, which is made if needed; it may hold several studies.
        study: the name of this one.
        axes: what its trials are chosen from.

    Raises:
        CacheError: if the file cannot be written.
    """

    def __init__(self, path: Path, study: str, axes: Sequence[Axis]) -> None:
        self._path = path.absolute()
        self._space = {axis.name: axis.plain for axis in axes}
        try:
            self._study, self.told = self._open(study)
        except OSError as error:
            raise files.unwritable(self._path, 0, error) from error
        except CacheError:
            raise
        except Exception as error:  # Optuna trusts the file, so it may trip over anything in it
            with files.locked(self._path.parent):
                aside = files.copy_aside(self._path, "broken")
                self._path.unlink()
            warnings.warn(f"{path}: broken, kept as {aside.name}: {error}", stacklevel=2)
            self._study, self.told = self._open(study)

    def add(self, trial: Trial) -> None:
        """Adds a finished trial; it is on the disk when this returns.

        Raises:
            CacheError: if the disk is full or read-only.
        """
        ran = isinstance(trial.outcome, Measurement)
        held = {FAMILY: trial.config.family, **trial.config.values}
        shown = [name for name in self._space if name in held]
        frozen = optuna.create_trial(
            state=TrialState.COMPLETE if ran else TrialState.PRUNED,
            value=trial.time_us if ran else None,
            params={name: held[name] for name in shown},
            distributions={name: self._space[name] for name in shown},
            user_attrs=_encode(trial),
        )
        try:
            self._study.add_trial(frozen)
        except OSError as error:
            raise files.unwritable(self._path, 0, error) from error

    def _open(self, study: str) -> tuple[optuna.Study, list[Trial]]:
        lock = _Lock(self._path)
        lock.acquire()
        lock.release()
        storage = JournalStorage(JournalFileBackend(str(self._path), lock_obj=lock))
        opened = study_of(study, storage)
        return opened, [_decode(trial.user_attrs) for trial in opened.get_trials(deepcopy=False)]


class _Lock(JournalFileOpenLock):
    """A lock that the kernel lets go of when its holder is killed; Optuna's own then stay.

    Whoever takes it first cuts off a last line that a kill has torn, since the next line would
    otherwise be glued to it and make the file unreadable.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._held = ExitStack()

    def acquire(self) -> bool:
        """Waits for the lock."""
        self._held.enter_context(files.locked(self._path.parent))
        files.cut_torn_line(self._path)
        return True

    def release(self) -> None:
        """Lets go of the lock."""
        self._held.close()


def _encode(trial: Trial) -> dict[str, Any]:
    return {**asdict(trial), "config": str(trial.config)}


def _decode(attributes: Mapping[str, Any]) -> Trial:
    outcome, resources = attributes["outcome"], attributes["resources"]
    return Trial(
        config=Config.parse(attributes["config"]),
        outcome=Failure(**outcome) if "stage" in outcome else codec.measurement(outcome),
        resources=resources and Resources(**resources),
        occupancy=attributes["occupancy"],
        limiter=attributes["limiter"],
    )
