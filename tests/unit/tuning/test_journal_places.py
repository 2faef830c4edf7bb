"""Where a study is kept: journal files and databases."""

from __future__ import annotations

import os
import time
from pathlib import Path

import optuna
import pytest
from support.sample_journals import (
    CONFIGS,
    FAILED,
    MEASURED,
    add,
    journal,
    measured,
)
from support.sample_journals import cache as cache

from autotune.errors import CacheError, MissingError, UsageError
from autotune.tuning.search import Journal, axes_of
from autotune.tuning.search.journal import places

pytestmark = pytest.mark.usefixtures("cache")


def test_study_in_a_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    opened = journal(url)
    opened.claim(MEASURED.config)
    opened.finish(MEASURED)
    add(opened, FAILED)
    opened.close()
    assert journal(url).told == [MEASURED, FAILED]
    assert optuna.load_study(study_name="simt", storage=url).best_trial.value == 12.5


def test_database_accepts_words_new_to_the_study(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    add(Journal(url, "simt", axes_of(CONFIGS[:2])), measured(CONFIGS[0]))
    opened = journal(url, patience_s=0.0)
    assert opened.claim(CONFIGS[-1])
    add(opened, measured(CONFIGS[-1]))
    add(opened, measured(CONFIGS[-2]))
    told = [CONFIGS[0], CONFIGS[-1], CONFIGS[-2]]
    assert [trial.config for trial in journal(url).told] == told


@pytest.mark.parametrize("form", ["journal://{}/study.log", "{}/study.log"])
def test_url_or_path_names_a_journal_file(tmp_path: Path, form: str) -> None:
    add(journal(form.format(tmp_path)), MEASURED)
    assert journal(tmp_path / "study.log").told == [MEASURED]


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("journal://study.log", "not an absolute path"),
        ("magic://somewhere", "no URL of a storage"),
    ],
)
def test_invalid_storage_is_a_usage_error(where: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        journal(where)


def test_missing_database_driver_is_named() -> None:
    with pytest.raises(MissingError, match="install the driver of that database") as caught:
        journal("postgresql+pg8000://someone:secret@nowhere/studies")
    assert "secret" not in str(caught.value)


def test_unreachable_database_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "PAUSES_S", (0.0, 0.0))
    with pytest.raises(CacheError, match=r"study\.db: cannot be written: .*unable to open"):
        journal(f"sqlite:///{tmp_path}/nowhere/study.db")


def test_study_of_another_program_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    journal(url)
    optuna.load_study(study_name="simt", storage=url).optimize(lambda _: 1.0, n_trials=1)
    with pytest.raises(CacheError, match="no study of ours"):
        journal(url)


def test_stale_locks_are_removed(tmp_path: Path) -> None:
    stale, fresh = tmp_path / "study.log.lock", tmp_path / "study.log.lock4f1c.rename"
    stale.symlink_to("study.log")
    fresh.touch()
    old = time.time() - 60
    os.utime(stale, (old, old), follow_symlinks=False)
    journal(tmp_path / "study.log")
    assert [os.path.lexists(lock) for lock in (stale, fresh)] == [False, True]
