"""The journal of a study: nothing that was finished is lost, whatever ends the process."""

from __future__ import annotations

import errno
import json
import os
from itertools import product
from pathlib import Path

import optuna
import pytest

from autotune.config import Config
from autotune.errors import CacheError
from autotune.evaluate import Trial
from autotune.plan import Resources
from autotune.runner import Failure, Measurement
from autotune.search import Journal, axes_of

CONFIGS = [
    Config.of("square", {"bm": bm, "bk": bk, "order": order})
    for bm, bk, order in product((32, 64, 128, 256), (8, 16, 32), ("columns", "rows", "snake"))
]
OTHERS = [Config.of("thin", {"bk": bk, "splits": splits}) for bk in (16, 64) for splits in (1, 8)]
MEASURED = Trial(
    CONFIGS[0],
    Measurement(12.5, 0.25, 20, 13.0, 1e-4, 1e-3),
    Resources(256, 128, 8192, 0, 1),
    0.25,
    "registers and shared memory",
)
FAILED = Trial(CONFIGS[1], Failure("compile", "error: expected a ;\nsecond line"))


def journal(path: Path, study: str = "simt") -> Journal:
    return Journal(path, study, axes_of(CONFIGS))


def test_the_journal_gives_back_what_was_added(tmp_path: Path) -> None:
    opened = journal(tmp_path / "a" / "study.log")
    opened.add(MEASURED)
    opened.add(FAILED)
    assert journal(tmp_path / "a" / "study.log").told == [MEASURED, FAILED]


def test_a_trial_is_one_line(tmp_path: Path) -> None:
    opened = journal(tmp_path / "study.log")
    before = (tmp_path / "study.log").read_bytes().count(b"\n")
    opened.add(MEASURED)
    assert (tmp_path / "study.log").read_bytes().count(b"\n") == before + 1


def test_studies_of_one_file_are_apart(tmp_path: Path) -> None:
    journal(tmp_path / "study.log", "simt@old").add(MEASURED)
    assert journal(tmp_path / "study.log", "simt@new").told == []


def test_two_processes_lose_nothing_of_each_other(tmp_path: Path) -> None:
    one, other = journal(tmp_path / "study.log"), journal(tmp_path / "study.log")
    one.add(MEASURED)
    other.add(FAILED)
    one.add(MEASURED)
    assert journal(tmp_path / "study.log").told == [MEASURED, FAILED, MEASURED]


@pytest.mark.parametrize("left", [1, 40, -1])
def test_a_torn_last_line_costs_that_line_alone(tmp_path: Path, left: int) -> None:
    path = tmp_path / "study.log"
    opened = journal(path)
    opened.add(MEASURED)
    whole = path.read_bytes()
    opened.add(FAILED)
    line = path.read_bytes()[len(whole) :]
    path.write_bytes(whole + line[:left])
    again = journal(path)
    assert again.told == [MEASURED]
    again.add(FAILED)
    assert journal(path).told == [MEASURED, FAILED]


def test_a_line_torn_by_another_process_is_mended_by_the_next_to_write(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    opened = journal(path)
    with path.open("ab") as file:
        file.write(b'{"op_code": 4, "stu')
    opened.add(MEASURED)
    assert journal(path).told == [MEASURED]


@pytest.mark.parametrize(
    "garbage",
    [b"\x00\xff\n", b"{}\n", b"[1]\n", b"3\n", b'{"op_code": 99, "worker_id": "newer"}\n'],
)
def test_a_broken_journal_is_kept_aside_and_begun_anew(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "study.log"
    journal(path).add(MEASURED)
    path.write_bytes(garbage + path.read_bytes())
    with pytest.warns(UserWarning, match=r"study\.log: broken, kept as study\.log\.broken-1"):
        assert journal(path).told == []
    assert (tmp_path / "study.log.broken-1").read_bytes().startswith(garbage)


def test_a_trial_of_another_version_is_not_misread(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    journal(path).add(MEASURED)
    path.write_bytes(path.read_bytes().replace(b'"spread_us"', b'"spread_ns"'))
    with pytest.warns(UserWarning, match="broken"):
        assert journal(path).told == []


@pytest.mark.parametrize("time", [b'"12"', b"-12.5", b"0", b"NaN", b"null"])
def test_a_time_that_is_none_is_not_believed(tmp_path: Path, time: bytes) -> None:
    path = tmp_path / "study.log"
    journal(path).add(MEASURED)
    path.write_bytes(path.read_bytes().replace(b'"time_us":12.5', b'"time_us":' + time))
    with pytest.warns(UserWarning, match="broken"):
        assert journal(path).told == []


def test_a_directory_in_the_place_of_a_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.log").mkdir()
    with pytest.raises(CacheError, match=r"study\.log: cannot be written: Is a directory"):
        journal(tmp_path / "study.log")


def test_a_journal_on_a_full_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(optuna.storages.journal.JournalFileBackend, "append_logs", full)
    with pytest.raises(CacheError, match=r"study\.log.*No space left on device"):
        journal(tmp_path / "study.log")


def test_a_journal_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="file"):
        journal(tmp_path / "file" / "study.log")


def test_a_full_disk_is_said_in_one_line(tmp_path: Path) -> None:
    opened = journal(tmp_path / "study.log")
    (tmp_path / "study.log").unlink()
    (tmp_path / "study.log").symlink_to("/dev/full")
    with pytest.raises(CacheError, match=r"study\.log.*No space left on device"):
        opened.add(MEASURED)


def test_the_journal_is_a_study_that_optuna_reads(tmp_path: Path) -> None:
    journal(tmp_path / "study.log").add(MEASURED)
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
    study = optuna.load_study(study_name="simt", storage=optuna.storages.JournalStorage(backend))
    assert study.best_trial.value == 12.5
    assert study.best_trial.params["bm"] == MEASURED.config.values["bm"]


def test_the_journal_holds_no_pickle(tmp_path: Path) -> None:
    journal(tmp_path / "study.log").add(MEASURED)
    assert all(json.loads(line) for line in (tmp_path / "study.log").read_bytes().splitlines())


def test_a_journal_holds_trials_of_several_families(tmp_path: Path) -> None:
    axes = axes_of([*CONFIGS, *OTHERS])
    trials = [Trial(one, Measurement(5.0)) for one in (CONFIGS[3], OTHERS[2])]
    opened = Journal(tmp_path / "study.log", "both", axes)
    for trial in trials:
        opened.add(trial)
    assert Journal(tmp_path / "study.log", "both", axes).told == trials


def test_optuna_is_neither_heard_nor_silenced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = optuna.logging.get_verbosity()
    journal(tmp_path / "study.log").add(MEASURED)
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == before
