"""A cache of a test's own, and a store whose study can be read back."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.records import Store
from autotune.tuning.trial_log import LoggedTrials, read
from autotune.tuning.trials import Trial


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    return Store(tmp_path)


def logged(store: Store) -> LoggedTrials:
    """The content of the only trial log."""
    [path] = (store.root / "studies").rglob("*.jsonl")
    return read(path)


def told(store: Store) -> list[Trial]:
    """The trials of the log, whose lines must all be whole."""
    content = logged(store)
    assert content.broken == 0
    return [row.trial for row in content.trials]
