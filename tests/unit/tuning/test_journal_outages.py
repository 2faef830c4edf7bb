"""The journal while its storage is gone, and trials that it never accepts."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from optuna.storages import JournalStorage
from optuna.trial import FrozenTrial
from support.full_disk import small_files
from support.paths import import_path
from support.sample_journals import (
    CONFIGS,
    FAILED,
    MEASURED,
    PROCESS,
    add,
    journal,
    measured,
    states,
)
from support.sample_journals import cache as cache

from autotune import files, settings
from autotune.errors import CacheError, UnsavedError
from autotune.tuning.evaluate import Trial
from autotune.tuning.search import Journal
from autotune.tuning.search.journal import rescue

pytestmark = pytest.mark.usefixtures("cache")


def test_finishing_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    opened = journal(tmp_path / "study.log")
    opened.claim(MEASURED.config)
    with files.locked_file(tmp_path / "study.log"):
        began = time.monotonic()
        opened.finish(MEASURED)
        assert time.monotonic() - began < 0.1
        assert journal_lines(tmp_path) == 2
    opened.close()
    assert journal(tmp_path / "study.log").told == [MEASURED]


def journal_lines(directory: Path) -> int:
    return (directory / "study.log").read_bytes().count(b"\n")


def test_trials_of_an_outage_are_written_after_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mounted" / "study.log"
    opened = journal(path)
    add(opened, measured(CONFIGS[0]))
    path.parent.rename(tmp_path / "away")
    for config in CONFIGS[1:5]:
        began = time.monotonic()
        assert opened.claim(config)
        opened.finish(measured(config))
        assert time.monotonic() - began < 0.5
    assert not path.parent.exists()
    (tmp_path / "away").rename(path.parent)
    opened.close()
    assert [trial.config for trial in journal(path).told] == CONFIGS[:5]


def test_shared_study_waits_for_the_storage(tmp_path: Path) -> None:
    path = tmp_path / "mounted" / "study.log"
    first, second = journal(path), journal(path)
    assert second.claim(CONFIGS[0])
    assert first.claim(CONFIGS[1])
    path.parent.rename(tmp_path / "away")
    threading.Timer(0.5, lambda: (tmp_path / "away").rename(path.parent)).start()
    assert first.claim(CONFIGS[2])
    assert path.exists()
    assert not second.claim(CONFIGS[2])


def test_shared_study_gone_for_too_long_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "mounted" / "study.log"
    first, second = journal(path, patience_s=0.3), journal(path)
    assert second.claim(CONFIGS[0])
    assert first.claim(CONFIGS[1])
    path.parent.rename(tmp_path / "away")
    with pytest.raises(CacheError, match=r"study\.log: cannot be written: No such file"):
        first.claim(CONFIGS[2])
    (tmp_path / "away").rename(path.parent)


def acknowledgement_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The storage writes the next trial and raises an error, as when a server ends in between."""
    create = JournalStorage.create_new_trial

    def written(storage: JournalStorage, study: int, template_trial: FrozenTrial) -> int:
        monkeypatch.setattr(JournalStorage, "create_new_trial", create)
        create(storage, study, template_trial)
        raise OSError(errno.EIO, "connection lost")

    monkeypatch.setattr(JournalStorage, "create_new_trial", written)


@pytest.mark.parametrize("claims", [True, False])
def test_trial_written_despite_an_error_is_kept_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, claims: bool
) -> None:
    path = tmp_path / "study.log"
    opened = journal(path)
    acknowledgement_lost(monkeypatch)
    assert not claims or opened.claim(MEASURED.config)
    add(opened, MEASURED)
    opened.close()
    assert states(path) == [("COMPLETE", None)]


def test_file_that_replaced_the_journal_is_untouched(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    opened = journal(path, patience_s=0.1)
    path.unlink()
    path.touch()
    with pytest.raises(CacheError, match="another file has taken its place"):
        add(opened, MEASURED)
    assert path.read_bytes() == b""


def test_unwritten_trials_are_rescued_and_restored(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "mounted" / "study.log"
    opened = journal(path, patience_s=0.5)
    path.parent.rename(tmp_path / "away")
    opened.finish(MEASURED)
    opened.finish(FAILED)
    with pytest.raises(CacheError, match=r"study\.log.*2 measured trials are kept in") as caught:
        opened.close()
    [kept] = (cache / "rescued").glob("*.jsonl")
    assert str(kept) in str(caught.value)
    (tmp_path / "away").rename(path.parent)
    assert journal(path).told == [MEASURED, FAILED]
    assert journal(path).told == [MEASURED, FAILED]
    assert not kept.exists()


def test_claims_of_an_unwritable_journal_block_nothing(tmp_path: Path) -> None:
    path = tmp_path / "mounted" / "study.log"
    opened = journal(path, patience_s=0.1)
    opened.claim(CONFIGS[0])
    path.parent.rename(tmp_path / "away")
    opened.finish(measured(CONFIGS[1]))
    with pytest.raises(CacheError):
        opened.close()
    (tmp_path / "away").rename(path.parent)
    assert journal(path).claim(CONFIGS[0])


def test_full_disk_leaves_the_rescue_file_intact() -> None:
    path = rescue.keep("place", "simt", [MEASURED])
    assert path is not None
    with small_files(path.stat().st_size + 100):
        assert rescue.keep("place", "simt", [FAILED]) is None
    restored: list[Trial] = []
    rescue.restore("place", "simt", restored.append)
    assert restored == [MEASURED]


def refused_by_disk_and_cache(path: Path, cache: Path) -> Journal:
    """A journal with a finished trial, whose folder has become `away` and whose cache is a file."""
    opened = journal(path, patience_s=0.5)
    path.parent.rename(path.parent.with_name("away"))
    cache.write_text("a file")
    opened.finish(MEASURED)
    return opened


def test_trials_that_fit_nowhere_are_reported_lost(tmp_path: Path, cache: Path) -> None:
    opened = refused_by_disk_and_cache(tmp_path / "mounted" / "study.log", cache)
    with pytest.raises(UnsavedError, match="1 measured trials are lost: nor can the cache") as lost:
        opened.close()
    assert lost.value.trials == (MEASURED,)


@pytest.fixture
def spare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """This user's folder on another disk."""
    (tmp_path / "other").mkdir()
    monkeypatch.setattr(settings, "spare_dirs", lambda: [tmp_path / "other"])
    return tmp_path / "other" / f"autotune-rescued-{os.geteuid()}"


def test_trials_the_cache_refuses_are_kept_elsewhere(
    tmp_path: Path, cache: Path, spare: Path
) -> None:
    path = tmp_path / "mounted" / "study.log"
    opened = refused_by_disk_and_cache(path, cache)
    with pytest.raises(CacheError, match="1 measured trials are kept in") as caught:
        opened.close()
    [kept] = spare.glob("*.jsonl")
    assert f"{kept}, which a restart of the machine may delete" in str(caught.value)
    (tmp_path / "away").rename(path.parent)
    assert journal(path).told == [MEASURED]
    assert not kept.exists()


def test_folder_that_others_can_write_is_not_used(cache: Path, spare: Path) -> None:
    cache.write_text("a file")
    assert rescue.keep("place", "simt", [MEASURED]) is not None
    restored: list[Trial] = []
    spare.chmod(0o777)
    assert rescue.keep("place", "simt", [FAILED]) is None
    rescue.restore("place", "simt", restored.append)
    assert restored == []
    spare.chmod(0o700)
    rescue.restore("place", "simt", restored.append)
    assert restored == [MEASURED]


def test_broken_rescued_line_costs_no_other_line() -> None:
    path = rescue.keep("place", "simt", [MEASURED, FAILED])
    assert path is not None
    first, second = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([first, b"[" * 100_000, b'{"config": 7}', second]) + b"\n")
    restored: list[Trial] = []
    with pytest.warns(UserWarning, match="line [23] is passed over") as warned:
        rescue.restore("place", "simt", restored.append)
    assert (restored, len(warned), path.exists()) == ([MEASURED, FAILED], 2, True)


def test_broken_rescue_file_is_passed_over(tmp_path: Path) -> None:
    path = rescue.path_of(str(tmp_path / "study.log"), "simt")
    path.parent.mkdir(parents=True)
    path.write_text("{}\n")
    with pytest.warns(UserWarning, match="passed over"):
        assert journal(tmp_path / "study.log").told == []
    assert path.exists()


def test_interrupt_ends_the_waiting(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "mounted" / "study.log"
    opened = journal(path)
    path.parent.rename(tmp_path / "away")
    opened.finish(MEASURED)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    with (
        pytest.raises(KeyboardInterrupt),
        pytest.warns(UserWarning, match=f"1 measured trials are kept in {cache}"),
    ):
        opened.close()
    signal.signal(signal.SIGALRM, previous)


def test_process_without_close_writes_everything(tmp_path: Path) -> None:
    code = PROCESS.replace("opened.close()", "raise SystemExit(3)")
    paths = import_path()
    command = [sys.executable, "-c", code, f"journal://{tmp_path}/study.log", ""]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, check=False)
    assert done.returncode == 3
    assert len(journal(tmp_path / "study.log").told) == len(CONFIGS)
