"""The journal of a study: no finished trial is lost, whatever ends the process."""

from __future__ import annotations

import json
import time
from pathlib import Path

import optuna
import pytest
from support.full_disk import small_files
from support.sample_journals import (
    CONFIGS,
    FAILED,
    MEASURED,
    OTHERS,
    add,
    journal,
)
from support.sample_journals import cache as cache

from autotune.errors import CacheError
from autotune.families.config import Config, Value
from autotune.runners.base import Measurement
from autotune.tuning.evaluate import Trial
from autotune.tuning.search import Journal, axes_of

pytestmark = pytest.mark.usefixtures("cache")

ONE_LINE = r"^.*study\.log: cannot be written: File too large .*make room or set AUTOTUNE_CACHE_DIR"


def test_journal_returns_added_trials(tmp_path: Path) -> None:
    opened = journal(tmp_path / "a" / "study.log")
    add(opened, MEASURED)
    add(opened, FAILED)
    assert journal(tmp_path / "a" / "study.log").told == [MEASURED, FAILED]


def test_unclaimed_trial_is_one_line(tmp_path: Path) -> None:
    opened = journal(tmp_path / "study.log")
    before = (tmp_path / "study.log").read_bytes().count(b"\n")
    add(opened, MEASURED)
    assert (tmp_path / "study.log").read_bytes().count(b"\n") == before + 1


def test_studies_of_one_file_are_separate(tmp_path: Path) -> None:
    add(journal(tmp_path / "study.log", "simt@old"), MEASURED)
    assert journal(tmp_path / "study.log", "simt@new").told == []


def test_two_journals_of_one_file_keep_each_others_trials(tmp_path: Path) -> None:
    first, second = journal(tmp_path / "study.log"), journal(tmp_path / "study.log")
    add(first, MEASURED)
    add(second, FAILED)
    add(first, MEASURED)
    assert journal(tmp_path / "study.log").told == [MEASURED, FAILED, MEASURED]


@pytest.mark.parametrize("left", [1, 40, -1])
def test_torn_last_line_costs_that_line_alone(tmp_path: Path, left: int) -> None:
    path = tmp_path / "study.log"
    opened = journal(path)
    add(opened, MEASURED)
    whole = path.read_bytes()
    add(opened, FAILED)
    line = path.read_bytes()[len(whole) :]
    path.write_bytes(whole + line[:left])
    again = journal(path)
    assert again.told == [MEASURED]
    add(again, FAILED)
    assert journal(path).told == [MEASURED, FAILED]


def test_next_write_mends_a_torn_line(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    opened = journal(path)
    with path.open("ab") as file:
        file.write(b'{"op_code": 4, "stu')
    add(opened, MEASURED)
    assert journal(path).told == [MEASURED]


@pytest.mark.parametrize(
    "garbage",
    [b"\x00\xff\n", b"{}\n", b"[1]\n", b"3\n", b'{"op_code": 99, "worker_id": "newer"}\n'],
)
def test_broken_journal_is_kept_aside(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "study.log"
    add(journal(path), MEASURED)
    path.write_bytes(garbage + path.read_bytes())
    warning = r"study\.log: broken, kept as study\.log\.broken-1: 1 of 3 lines were damaged"
    with pytest.warns(UserWarning, match=warning):
        assert journal(path).told == [MEASURED]
    assert (tmp_path / "study.log.broken-1").read_bytes().startswith(garbage)


def replace(path: Path, old: bytes, new: bytes) -> None:
    """Replaces a part of each line, as a program would that writes no checksums."""
    lines = path.read_bytes().splitlines()
    assert any(old in line for line in lines)
    plain = (line.partition(b',"crc":')[0] + b"}\n" for line in lines)
    path.write_bytes(b"".join(plain).replace(old, new))


def test_trial_of_another_version_is_not_misread(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    add(journal(path), MEASURED)
    replace(path, b'"spread_us"', b'"spread_ns"')
    with pytest.warns(UserWarning, match="broken"):
        assert journal(path).told == []


@pytest.mark.parametrize("time", [b'"12"', b"-12.5", b"0", b"NaN", b"null"])
def test_invalid_time_is_refused(tmp_path: Path, time: bytes) -> None:
    path = tmp_path / "study.log"
    add(journal(path), MEASURED)
    replace(path, b'"time_us":12.5', b'"time_us":' + time)
    with pytest.warns(UserWarning, match="broken"):
        assert journal(path).told == []


def test_directory_as_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.log").mkdir()
    with pytest.raises(CacheError, match=r"study\.log: cannot be written: Is a directory"):
        journal(tmp_path / "study.log")


def test_new_journal_on_a_full_disk_is_refused(tmp_path: Path) -> None:
    with small_files(100), pytest.raises(CacheError, match=r"study\.log: cannot be written: File"):
        journal(tmp_path / "study.log")


def test_unwritable_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="file"):
        journal(tmp_path / "file" / "study.log")


def test_full_disk_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    opened = journal(path, patience_s=0.1)
    add(opened, MEASURED)
    with small_files(path.stat().st_size + 100), pytest.raises(CacheError, match=ONE_LINE):
        add(opened, FAILED)
    assert journal(path).told == [MEASURED]


def test_kept_trials_are_written_once_there_is_room(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    opened = journal(path, patience_s=0.1)
    with small_files(path.stat().st_size + 100):
        opened.finish(FAILED)
        time.sleep(0.3)
        with pytest.raises(CacheError, match=ONE_LINE):
            opened.finish(MEASURED)
    opened.close()
    assert journal(path).told == [FAILED, MEASURED]


def test_optuna_loads_the_journal_as_a_study(tmp_path: Path) -> None:
    add(journal(tmp_path / "study.log"), MEASURED)
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
    study = optuna.load_study(study_name="simt", storage=optuna.storages.JournalStorage(backend))
    assert study.best_trial.value == 12.5
    assert study.best_trial.params["bm"] == MEASURED.config.values["bm"]


def test_journal_holds_no_pickle(tmp_path: Path) -> None:
    add(journal(tmp_path / "study.log"), MEASURED)
    assert all(json.loads(line) for line in (tmp_path / "study.log").read_bytes().splitlines())


def test_journal_holds_several_families(tmp_path: Path) -> None:
    axes = axes_of([*CONFIGS, *OTHERS])
    trials = [Trial(config, Measurement(5.0)) for config in (CONFIGS[3], OTHERS[2])]
    opened = Journal(tmp_path / "study.log", "both", axes)
    for trial in trials:
        add(opened, trial)
    assert Journal(tmp_path / "study.log", "both", axes).told == trials


@pytest.mark.parametrize(
    "values",
    [
        {"bm": 512, "bk": 8, "order": "rows"},
        {"bm": 32, "bk": 8, "order": "diagonal"},
        {"bm": "wide", "bk": 8, "order": "rows"},
    ],
)
def test_journal_holds_values_that_its_axes_lack(tmp_path: Path, values: dict[str, Value]) -> None:
    trial = Trial(Config.of("square", values), Measurement(5.0))
    opened = journal(tmp_path / "study.log")
    assert opened.claim(trial.config)
    add(opened, trial)
    assert journal(tmp_path / "study.log").told == [trial]


def test_optuna_logging_is_left_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = optuna.logging.get_verbosity()
    add(journal(tmp_path / "study.log"), MEASURED)
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == before
