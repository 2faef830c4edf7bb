"""The journal of a study: nothing that was finished is lost, whatever ends the process."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import optuna
import pytest
from optuna.trial import FrozenTrial
from support.full_disk import small_files
from support.paths import import_path

from autotune import files
from autotune.errors import CacheError, MissingError, UsageError
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.runners.base import Failure, Measurement
from autotune.tuning.evaluate import Trial
from autotune.tuning.search import Journal, axes_of
from autotune.tuning.search.journal import News, places, rescue, trials
from autotune.tuning.search.journal.shared_study import SharedStudy
from autotune.tuning.search.journal.trials import SILENT_S

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


ONE_LINE = r"^.*study\.log: cannot be written: File too large .*make room or set AUTOTUNE_CACHE_DIR"


def journal(where: Path | str, study: str = "simt", *, patience_s: float = 60.0) -> Journal:
    return Journal(where, study, axes_of(CONFIGS), patience_s=patience_s)


def add(opened: Journal, trial: Trial) -> None:
    """Adds a trial, which is on the disk when this returns."""
    opened.finish(trial)
    opened.flush()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_the_journal_gives_back_what_was_added(tmp_path: Path) -> None:
    opened = journal(tmp_path / "a" / "study.log")
    add(opened, MEASURED)
    add(opened, FAILED)
    assert journal(tmp_path / "a" / "study.log").told == [MEASURED, FAILED]


def test_a_trial_is_one_line(tmp_path: Path) -> None:
    opened = journal(tmp_path / "study.log")
    before = (tmp_path / "study.log").read_bytes().count(b"\n")
    add(opened, MEASURED)
    assert (tmp_path / "study.log").read_bytes().count(b"\n") == before + 1


def test_studies_of_one_file_are_apart(tmp_path: Path) -> None:
    add(journal(tmp_path / "study.log", "simt@old"), MEASURED)
    assert journal(tmp_path / "study.log", "simt@new").told == []


def test_two_processes_lose_nothing_of_each_other(tmp_path: Path) -> None:
    one, other = journal(tmp_path / "study.log"), journal(tmp_path / "study.log")
    add(one, MEASURED)
    add(other, FAILED)
    add(one, MEASURED)
    assert journal(tmp_path / "study.log").told == [MEASURED, FAILED, MEASURED]


@pytest.mark.parametrize("left", [1, 40, -1])
def test_a_torn_last_line_costs_that_line_alone(tmp_path: Path, left: int) -> None:
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


def test_a_line_torn_by_another_process_is_mended_by_the_next_to_write(tmp_path: Path) -> None:
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
def test_a_broken_journal_is_kept_aside_and_begun_anew(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "study.log"
    add(journal(path), MEASURED)
    path.write_bytes(garbage + path.read_bytes())
    with pytest.warns(UserWarning, match=r"study\.log: broken, kept as study\.log\.broken-1"):
        assert journal(path).told == []
    assert (tmp_path / "study.log.broken-1").read_bytes().startswith(garbage)


def test_a_trial_of_another_version_is_not_misread(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    add(journal(path), MEASURED)
    path.write_bytes(path.read_bytes().replace(b'"spread_us"', b'"spread_ns"'))
    with pytest.warns(UserWarning, match="broken"):
        assert journal(path).told == []


@pytest.mark.parametrize("time", [b'"12"', b"-12.5", b"0", b"NaN", b"null"])
def test_a_time_that_is_none_is_not_believed(tmp_path: Path, time: bytes) -> None:
    path = tmp_path / "study.log"
    add(journal(path), MEASURED)
    path.write_bytes(path.read_bytes().replace(b'"time_us":12.5', b'"time_us":' + time))
    with pytest.warns(UserWarning, match="broken"):
        assert journal(path).told == []


def test_a_directory_in_the_place_of_a_journal_is_refused(tmp_path: Path) -> None:
    (tmp_path / "study.log").mkdir()
    with pytest.raises(CacheError, match=r"study\.log: cannot be written: Is a directory"):
        journal(tmp_path / "study.log")


def test_a_journal_on_a_full_disk_is_refused(tmp_path: Path) -> None:
    with small_files(100), pytest.raises(CacheError, match=r"study\.log: cannot be written: File"):
        journal(tmp_path / "study.log")


def test_a_journal_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="file"):
        journal(tmp_path / "file" / "study.log")


def test_a_full_disk_is_said_in_one_line_and_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    opened = journal(path, patience_s=0.1)
    add(opened, MEASURED)
    with small_files(path.stat().st_size + 100), pytest.raises(CacheError, match=ONE_LINE):
        add(opened, FAILED)
    assert journal(path).told == [MEASURED]


def test_once_there_is_room_again_what_was_kept_is_written(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    opened = journal(path, patience_s=0.1)
    with small_files(path.stat().st_size + 100):
        opened.finish(FAILED)
        time.sleep(0.3)
        with pytest.raises(CacheError, match=ONE_LINE):
            opened.finish(MEASURED)
    opened.close()
    assert journal(path).told == [FAILED, MEASURED]


def test_the_journal_is_a_study_that_optuna_reads(tmp_path: Path) -> None:
    add(journal(tmp_path / "study.log"), MEASURED)
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
    study = optuna.load_study(study_name="simt", storage=optuna.storages.JournalStorage(backend))
    assert study.best_trial.value == 12.5
    assert study.best_trial.params["bm"] == MEASURED.config.values["bm"]


def test_the_journal_holds_no_pickle(tmp_path: Path) -> None:
    add(journal(tmp_path / "study.log"), MEASURED)
    assert all(json.loads(line) for line in (tmp_path / "study.log").read_bytes().splitlines())


def test_a_journal_holds_trials_of_several_families(tmp_path: Path) -> None:
    axes = axes_of([*CONFIGS, *OTHERS])
    trials = [Trial(one, Measurement(5.0)) for one in (CONFIGS[3], OTHERS[2])]
    opened = Journal(tmp_path / "study.log", "both", axes)
    for trial in trials:
        add(opened, trial)
    assert Journal(tmp_path / "study.log", "both", axes).told == trials


def test_optuna_is_neither_heard_nor_silenced(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = optuna.logging.get_verbosity()
    add(journal(tmp_path / "study.log"), MEASURED)
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == before


# Claims


def measured(config: Config, time_us: float = 12.5) -> Trial:
    return Trial(config, Measurement(time_us))


def states(path: Path) -> list[tuple[str, str | None]]:
    """How Optuna sees each trial of the study, and why those ended that have no outcome."""
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    study = optuna.load_study(study_name="simt", storage=optuna.storages.JournalStorage(backend))
    return [(one.state.name, one.user_attrs.get("ended")) for one in study.trials]


def left_behind(
    monkeypatch: pytest.MonkeyPatch, path: Path, *, host: str | None = None, finish: bool = False
) -> None:
    """A claim on the first configuration by a process that is no more, or of another host."""
    owner = trials.owner() | {"host": host or socket.gethostname(), "started": "long ago"}
    with monkeypatch.context() as patch:
        patch.setattr(trials, "owner", lambda: owner)
        there = journal(path)
    assert there.claim(CONFIGS[0])
    if finish:
        add(there, measured(CONFIGS[0]))


def test_what_is_claimed_is_no_one_elses_to_try(tmp_path: Path) -> None:
    one, other = journal(tmp_path / "study.log"), journal(tmp_path / "study.log")
    assert one.claim(CONFIGS[0])
    assert not other.claim(CONFIGS[0])
    assert other.claim(CONFIGS[1])


def test_a_claim_is_a_running_trial_with_its_parameters_and_its_process(tmp_path: Path) -> None:
    journal(tmp_path / "study.log").claim(CONFIGS[4])
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
    study = optuna.load_study(study_name="simt", storage=optuna.storages.JournalStorage(backend))
    [trial] = study.trials
    assert (trial.state.name, trial.params) == ("RUNNING", CONFIGS[4].values)
    claimer = (trial.user_attrs["host"], trial.user_attrs["pid"])
    assert claimer == (socket.gethostname(), os.getpid())


def test_a_claim_is_completed_with_its_outcome(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    opened = journal(path)
    for trial in (MEASURED, FAILED):
        opened.claim(trial.config)
        opened.finish(trial)
    opened.close()
    assert states(path) == [("COMPLETE", None), ("PRUNED", None)]
    assert journal(path).told == [MEASURED, FAILED]


def test_what_another_has_finished_is_not_tried_again(tmp_path: Path) -> None:
    one, other = journal(tmp_path / "study.log"), journal(tmp_path / "study.log")
    add(one, MEASURED)
    assert not other.claim(MEASURED.config)


def test_of_two_that_claim_at_once_the_first_in_the_storage_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "study.log"
    one, other = journal(path), journal(path)
    granted: list[bool] = []
    create = SharedStudy._create

    def late(ledger: SharedStudy, trial: FrozenTrial) -> int:
        """The other looks, and then the first writes before it does."""
        monkeypatch.setattr(SharedStudy, "_create", create)
        granted.append(one.claim(CONFIGS[0]))
        return create(ledger, trial)

    monkeypatch.setattr(SharedStudy, "_create", late)
    granted.append(other.claim(CONFIGS[0]))
    assert granted == [True, False]
    assert states(path) == [("RUNNING", None), ("FAIL", "another process was faster")]


def test_news_are_what_the_others_finished_and_what_they_try(tmp_path: Path) -> None:
    one, other = journal(tmp_path / "study.log"), journal(tmp_path / "study.log")
    other.claim(CONFIGS[5])
    add(other, MEASURED)
    one.claim(CONFIGS[6])
    assert one.news() == News((MEASURED,), frozenset({CONFIGS[5]}))
    add(other, FAILED)
    one.flush()
    assert one.news() == News((FAILED,), frozenset({CONFIGS[5]}))


def test_what_was_told_and_what_is_its_own_are_no_news(tmp_path: Path) -> None:
    add(journal(tmp_path / "study.log"), MEASURED)
    opened = journal(tmp_path / "study.log")
    opened.claim(CONFIGS[5])
    add(opened, FAILED)
    assert opened.news() == News((), frozenset())


def test_what_is_finished_after_closing_is_written_all_the_same(tmp_path: Path) -> None:
    opened = journal(tmp_path / "study.log")
    opened.claim(MEASURED.config)
    opened.close()
    opened.finish(MEASURED)
    assert journal(tmp_path / "study.log").told == [MEASURED]


def test_closing_gives_up_what_was_claimed_and_not_finished(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    opened = journal(path)
    opened.claim(CONFIGS[0])
    opened.close()
    opened.close()
    assert states(path) == [("FAIL", "released")]
    assert journal(path).claim(CONFIGS[0])


def test_the_claims_of_a_dead_process_are_failed_on_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "study.log"
    left_behind(monkeypatch, path)
    again = journal(path)
    assert states(path) == [("FAIL", "orphaned")]
    assert again.claim(CONFIGS[0])


def test_a_result_without_its_state_is_a_finished_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "study.log"
    left_behind(monkeypatch, path, finish=True)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert journal(path).told == [measured(CONFIGS[0])]
    assert states(path) == [("COMPLETE", None)]


def test_a_process_that_dies_later_bars_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = journal(tmp_path / "study.log")
    left_behind(monkeypatch, tmp_path / "study.log")
    opened.flush()
    assert opened.news().claimed == frozenset()
    assert opened.claim(CONFIGS[0])


@pytest.mark.parametrize("later_s", [60.0, SILENT_S + 60.0])
def test_a_process_of_another_host_is_gone_once_it_was_silent_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_s: float
) -> None:
    path = tmp_path / "study.log"
    left_behind(monkeypatch, path, host="elsewhere")
    now = time.time() + later_s
    monkeypatch.setattr(time, "time", lambda: now)
    assert journal(path).claim(CONFIGS[0]) == (later_s > SILENT_S)


def test_a_trial_of_a_process_that_was_taken_for_gone_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "study.log"
    opened = journal(path)
    opened.claim(MEASURED.config)
    with monkeypatch.context() as patch:
        patch.setattr(trials, "abandoned", lambda _: True)
        journal(path)
    add(opened, MEASURED)
    assert states(path) == [("FAIL", "orphaned"), ("COMPLETE", None)]
    assert journal(path).told == [MEASURED]


# What each of several processes does: it claims all it can get, in the same order as the others.
PROCESS = """
import sys, time
from test_journal import CONFIGS, journal, measured
opened = journal(sys.argv[1])
for config in CONFIGS:
    if opened.claim(config):
        print(config, flush=True)
        if sys.argv[2] == "dies":
            time.sleep(60)
        opened.finish(measured(config))
opened.close()
"""


def process(where: str, then: str = "ends") -> subprocess.Popen[str]:
    paths = import_path(Path(__file__).parent)
    command = [sys.executable, "-c", PROCESS, where, then]
    return subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": paths}, stdout=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize("url", ["journal://{}/study.log", "sqlite:///{}/study.db"])
def test_processes_at_once_try_everything_once_and_lose_nothing(tmp_path: Path, url: str) -> None:
    where = url.format(tmp_path)
    processes = [process(where) for _ in range(3)]
    tried = [line for one in processes for line in one.communicate(timeout=60)[0].splitlines()]
    assert [one.returncode for one in processes] == [0, 0, 0]
    assert set(tried) == set(map(str, CONFIGS))
    assert sorted(str(one.config) for one in journal(where).told) == sorted(tried)
    # A crowded database may answer late.
    assert len(tried) == len(CONFIGS) or where.startswith("sqlite")


def test_a_claim_holds_as_long_as_its_process_lives(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    other = process(f"journal://{path}", "dies")
    assert other.stdout is not None
    assert other.stdout.readline() == f"{CONFIGS[0]}\n"
    before = journal(path).claim(CONFIGS[0])
    other.kill()
    other.communicate()
    assert (before, journal(path).claim(CONFIGS[0])) == (False, True)


# A storage that is gone


def test_finishing_does_not_wait_for_the_disk(tmp_path: Path) -> None:
    opened = journal(tmp_path / "study.log")
    opened.claim(MEASURED.config)
    with files.locked(tmp_path):
        began = time.monotonic()
        opened.finish(MEASURED)
        assert time.monotonic() - began < 0.1
        assert journal_lines(tmp_path) == 2
    opened.close()
    assert journal(tmp_path / "study.log").told == [MEASURED]


def journal_lines(directory: Path) -> int:
    return (directory / "study.log").read_bytes().count(b"\n")


def test_what_is_finished_while_the_storage_is_gone_is_written_once_it_is_back(
    tmp_path: Path,
) -> None:
    path = tmp_path / "there" / "study.log"
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


def test_another_file_in_the_place_of_the_journal_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    opened = journal(path, patience_s=0.1)
    path.unlink()
    path.touch()
    with pytest.raises(CacheError, match="another file has taken its place"):
        add(opened, MEASURED)
    assert path.read_bytes() == b""


def test_what_a_storage_never_takes_is_kept_and_restored(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "there" / "study.log"
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


def test_a_journal_that_was_closed_in_vain_bars_nothing(tmp_path: Path) -> None:
    path = tmp_path / "there" / "study.log"
    opened = journal(path, patience_s=0.1)
    opened.claim(CONFIGS[0])
    path.parent.rename(tmp_path / "away")
    opened.finish(measured(CONFIGS[1]))
    with pytest.raises(CacheError):
        opened.close()
    (tmp_path / "away").rename(path.parent)
    assert journal(path).claim(CONFIGS[0])


def test_what_does_not_fit_into_the_rescue_file_leaves_it_as_it_was() -> None:
    path = rescue.keep("place", "simt", [MEASURED])
    assert path is not None
    with small_files(path.stat().st_size + 100):
        assert rescue.keep("place", "simt", [FAILED]) is None
    restored: list[Trial] = []
    rescue.restore("place", "simt", restored.append)
    assert restored == [MEASURED]


def test_what_can_be_kept_nowhere_is_said(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "there" / "study.log"
    opened = journal(path, patience_s=0.5)
    path.parent.rename(tmp_path / "away")
    cache.write_text("a file")
    opened.finish(MEASURED)
    with pytest.raises(CacheError, match="1 measured trials are lost: nor can the cache"):
        opened.close()


def test_a_broken_rescue_file_is_passed_over(tmp_path: Path) -> None:
    path = rescue.path_of(str(tmp_path / "study.log"), "simt")
    path.parent.mkdir(parents=True)
    path.write_text("{}\n")
    with pytest.warns(UserWarning, match="passed over"):
        assert journal(tmp_path / "study.log").told == []
    assert path.exists()


def test_an_interrupt_ends_the_waiting(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "there" / "study.log"
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


def test_a_process_that_ends_without_closing_has_written_everything(tmp_path: Path) -> None:
    code = PROCESS.replace("opened.close()", "raise SystemExit(3)")
    paths = import_path(Path(__file__).parent)
    command = [sys.executable, "-c", code, f"journal://{tmp_path}/study.log", ""]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, check=False)
    assert done.returncode == 3
    assert len(journal(tmp_path / "study.log").told) == len(CONFIGS)


# Where a study may be


def test_a_study_may_be_in_a_database(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    opened = journal(url)
    opened.claim(MEASURED.config)
    opened.finish(MEASURED)
    add(opened, FAILED)
    opened.close()
    assert journal(url).told == [MEASURED, FAILED]
    assert optuna.load_study(study_name="simt", storage=url).best_trial.value == 12.5


def test_a_database_takes_trials_of_other_choices(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    add(Journal(url, "simt", axes_of(CONFIGS[:2])), measured(CONFIGS[0]))
    opened = journal(url, patience_s=0.0)
    assert opened.claim(CONFIGS[-1])
    add(opened, measured(CONFIGS[-1]))
    add(opened, measured(CONFIGS[-2]))
    told = [CONFIGS[0], CONFIGS[-1], CONFIGS[-2]]
    assert [trial.config for trial in journal(url).told] == told


@pytest.mark.parametrize("form", ["journal://{}/study.log", "{}/study.log"])
def test_words_name_a_journal_file(tmp_path: Path, form: str) -> None:
    add(journal(form.format(tmp_path)), MEASURED)
    assert journal(tmp_path / "study.log").told == [MEASURED]


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        ("journal://study.log", "not an absolute path"),
        ("magic://somewhere", "no URL of a storage"),
    ],
)
def test_what_is_no_storage_is_refused(where: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        journal(where)


def test_a_database_without_its_driver_says_what_is_missing() -> None:
    with pytest.raises(MissingError, match="install the driver of that database") as caught:
        journal("postgresql+pg8000://someone:secret@nowhere/studies")
    assert "secret" not in str(caught.value)


def test_a_database_that_cannot_be_reached_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "PAUSES_S", (0.0, 0.0))
    with pytest.raises(CacheError, match=r"study\.db: cannot be written: .*unable to open"):
        journal(f"sqlite:///{tmp_path}/nowhere/study.db")


def test_a_database_with_another_kind_of_study_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/study.db"
    journal(url)
    optuna.load_study(study_name="simt", storage=url).optimize(lambda _: 1.0, n_trials=1)
    with pytest.raises(CacheError, match="no study of ours"):
        journal(url)


def test_locks_that_a_killed_process_has_left_are_removed(tmp_path: Path) -> None:
    stale, fresh = tmp_path / "study.log.lock", tmp_path / "study.log.lock4f1c.rename"
    stale.symlink_to("study.log")
    fresh.touch()
    old = time.time() - 60
    os.utime(stale, (old, old), follow_symlinks=False)
    journal(tmp_path / "study.log")
    assert [os.path.lexists(lock) for lock in (stale, fresh)] == [False, True]
