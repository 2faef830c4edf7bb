"""A store whose study can be read back."""

from __future__ import annotations

from pathlib import Path

import optuna
import pytest

from autotune import settings
from autotune.records import Store
from autotune.tuning.evaluate import Trial
from autotune.tuning.search import Journal


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(settings, "spare_dirs", list)
    return Store(tmp_path)


def told(store: Store) -> list[Trial]:
    """The trials of the journal, which must be readable as it is."""
    [path] = (store.root / "studies").rglob("*.log")
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    [name] = optuna.get_all_study_names(optuna.storages.JournalStorage(backend))
    opened = Journal(path, name, ())
    opened.close()
    return opened.told
