"""The journal of a study: no finished trial is lost, whatever ends the process."""

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
    with pytest.warns(UserWarning, match=r"study\.log: broken, kept as study\.log\.broken-1"):
        assert journal(path).told == []
    assert (tmp_path / "study.log.broken-1").read_bytes().startswith(garbage)


def test_trial_of_another_version_is_not_misread(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    add(journal(path), MEASURED)
    path.write_bytes(path.read_bytes().replace(b'"spread_us"', b'"spread_ns"'))
    with pytest.warns(UserWarning, match="broken"):
        assert journal(path).told == []


@pytest.mark.parametrize("time", [b'"12"', b"-12.5", b"0", b"NaN", b"null"])
def test_invalid_time_is_refused(tmp_path: Path, time: bytes) -> None:
    path = tmp_path / "study.log"
    add(journal(path), MEASURED)
    path.write_bytes(path.read_bytes().replace(b'"time_us":12.5', b'"time_us":' + time))
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


def test_optuna_logging_is_left_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = optuna.logging.get_verbosity()
    add(journal(tmp_path / "study.log"), MEASURED)
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == before


# Claims


def measured(config: Config, time_us: float = 12.5) -> Trial:
    return Trial(config, Measurement(time_us))


def states(path: Path) -> list[tuple[str, str | None]]:
    """The state of each trial as Optuna sees it, and why one without an outcome ended."""
    backend = optuna.storages.journal.JournalFileBackend(str(path))
    study = optuna.load_study(study_name="simt", storage=optuna.storages.JournalStorage(backend))
    return [(trial.state.name, trial.user_attrs.get("ended")) for trial in study.trials]


def left_behind(
    monkeypatch: pytest.MonkeyPatch, path: Path, *, host: str | None = None, finish: bool = False
) -> None:
    """Leaves a claim on the first configuration by a process that has ended or of another host."""
    owner = trials.owner() | {"host": host or socket.gethostname(), "started": "long ago"}
    with monkeypatch.context() as patch:
        patch.setattr(trials, "owner", lambda: owner)
        opened = journal(path)
    assert opened.claim(CONFIGS[0])
    if finish:
        add(opened, measured(CONFIGS[0]))


def test_claimed_configuration_is_refused_to_others(tmp_path: Path) -> None:
    first, second = journal(tmp_path / "study.log"), journal(tmp_path / "study.log")
    assert first.claim(CONFIGS[0])
    assert not second.claim(CONFIGS[0])
    assert second.claim(CONFIGS[1])


def test_claim_is_a_running_trial_naming_its_process(tmp_path: Path) -> None:
    journal(tmp_path / "study.log").claim(CONFIGS[4])
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "study.log"))
    study = optuna.load_study(study_name="simt", storage=optuna.storages.JournalStorage(backend))
    [trial] = study.trials
    assert (trial.state.name, trial.params) == ("RUNNING", CONFIGS[4].values)
    claimer = (trial.user_attrs["host"], trial.user_attrs["pid"])
    assert claimer == (socket.gethostname(), os.getpid())


def test_outcome_completes_the_claim(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    opened = journal(path)
    for trial in (MEASURED, FAILED):
        opened.claim(trial.config)
        opened.finish(trial)
    opened.close()
    assert states(path) == [("COMPLETE", None), ("PRUNED", None)]
    assert journal(path).told == [MEASURED, FAILED]


def test_finished_configuration_is_refused_to_others(tmp_path: Path) -> None:
    first, second = journal(tmp_path / "study.log"), journal(tmp_path / "study.log")
    add(first, MEASURED)
    assert not second.claim(MEASURED.config)


def test_first_of_two_simultaneous_claims_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "study.log"
    first, second = journal(path), journal(path)
    granted: list[bool] = []
    create = SharedStudy._create

    def late(study: SharedStudy, trial: FrozenTrial) -> int:
        """The first journal claims after the second has looked and before it writes."""
        monkeypatch.setattr(SharedStudy, "_create", create)
        granted.append(first.claim(CONFIGS[0]))
        return create(study, trial)

    monkeypatch.setattr(SharedStudy, "_create", late)
    granted.append(second.claim(CONFIGS[0]))
    assert granted == [True, False]
    assert states(path) == [("RUNNING", None), ("FAIL", "another process was faster")]


def test_news_are_the_others_results_and_claims(tmp_path: Path) -> None:
    first, second = journal(tmp_path / "study.log"), journal(tmp_path / "study.log")
    second.claim(CONFIGS[5])
    add(second, MEASURED)
    first.claim(CONFIGS[6])
    assert first.news() == News((MEASURED,), frozenset({CONFIGS[5]}))
    add(second, FAILED)
    first.flush()
    assert first.news() == News((FAILED,), frozenset({CONFIGS[5]}))


def test_own_trials_and_told_ones_are_no_news(tmp_path: Path) -> None:
    add(journal(tmp_path / "study.log"), MEASURED)
    opened = journal(tmp_path / "study.log")
    opened.claim(CONFIGS[5])
    add(opened, FAILED)
    assert opened.news() == News((), frozenset())


def test_trial_finished_after_closing_is_written(tmp_path: Path) -> None:
    opened = journal(tmp_path / "study.log")
    opened.claim(MEASURED.config)
    opened.close()
    opened.finish(MEASURED)
    assert journal(tmp_path / "study.log").told == [MEASURED]


def test_closing_releases_unfinished_claims(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    opened = journal(path)
    opened.claim(CONFIGS[0])
    opened.close()
    opened.close()
    assert states(path) == [("FAIL", "released")]
    assert journal(path).claim(CONFIGS[0])


def test_opening_fails_claims_of_dead_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "study.log"
    left_behind(monkeypatch, path)
    again = journal(path)
    assert states(path) == [("FAIL", "orphaned")]
    assert again.claim(CONFIGS[0])


def test_claim_with_a_result_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "study.log"
    left_behind(monkeypatch, path, finish=True)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    assert journal(path).told == [measured(CONFIGS[0])]
    assert states(path) == [("COMPLETE", None)]


def test_process_that_dies_later_blocks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = journal(tmp_path / "study.log")
    left_behind(monkeypatch, tmp_path / "study.log")
    opened.flush()
    assert opened.news().claimed == frozenset()
    assert opened.claim(CONFIGS[0])


@pytest.mark.parametrize("later_s", [60.0, SILENT_S + 60.0])
def test_old_claim_of_another_host_is_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_s: float
) -> None:
    path = tmp_path / "study.log"
    left_behind(monkeypatch, path, host="elsewhere")
    now = time.time() + later_s
    monkeypatch.setattr(time, "time", lambda: now)
    assert journal(path).claim(CONFIGS[0]) == (later_s > SILENT_S)


def test_result_of_a_failed_claim_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "study.log"
    opened = journal(path)
    opened.claim(MEASURED.config)
    with monkeypatch.context() as patch:
        patch.setattr(trials, "abandoned", lambda _: True)
        journal(path)
    add(opened, MEASURED)
    assert states(path) == [("FAIL", "orphaned"), ("COMPLETE", None)]
    assert journal(path).told == [MEASURED]


# Claims every configuration it can get, in the same order as other processes.
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
def test_concurrent_processes_try_all_once(tmp_path: Path, url: str) -> None:
    where = url.format(tmp_path)
    running = [process(where) for _ in range(3)]
    tried = [line for each in running for line in each.communicate(timeout=60)[0].splitlines()]
    assert [each.returncode for each in running] == [0, 0, 0]
    assert set(tried) == set(map(str, CONFIGS))
    assert sorted(str(trial.config) for trial in journal(where).told) == sorted(tried)
    # A crowded database may answer late.
    assert len(tried) == len(CONFIGS) or where.startswith("sqlite")


def test_claim_lasts_as_long_as_its_process(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    claimer = process(f"journal://{path}", "dies")
    assert claimer.stdout is not None
    assert claimer.stdout.readline() == f"{CONFIGS[0]}\n"
    before = journal(path).claim(CONFIGS[0])
    claimer.kill()
    claimer.communicate()
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


def test_trials_that_fit_nowhere_are_reported_lost(tmp_path: Path, cache: Path) -> None:
    path = tmp_path / "mounted" / "study.log"
    opened = journal(path, patience_s=0.5)
    path.parent.rename(tmp_path / "away")
    cache.write_text("a file")
    opened.finish(MEASURED)
    with pytest.raises(CacheError, match="1 measured trials are lost: nor can the cache"):
        opened.close()


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
    paths = import_path(Path(__file__).parent)
    command = [sys.executable, "-c", code, f"journal://{tmp_path}/study.log", ""]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, check=False)
    assert done.returncode == 3
    assert len(journal(tmp_path / "study.log").told) == len(CONFIGS)


# Where a study may be


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
