"""The log of a study: no finished trial is lost, and no configuration is tried by two processes."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import which
from subprocess import run

import pytest
from support.full_disk import small_files
from support.sample_logs import (
    CONFIGS,
    FAILED,
    MEASURED,
    OTHERS,
    STUDY,
    as_process,
    begin,
    log,
    measured,
    process,
)
from support.sample_study import cache as cache

from autotune.errors import CacheError, UnsavedError
from autotune.families.config import Config
from autotune.measure.measurement import Measurement
from autotune.tuning import trial_log as module
from autotune.tuning.trial_log import EXPIRES_S, News, TrialLog, logs_in, place, read
from autotune.tuning.trials import Trial

pytestmark = pytest.mark.usefixtures("cache")


FULL = r"^.*study\.jsonl: cannot be written: File too large .*make room or set AUTOTUNE_CACHE_DIR"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "study.jsonl"


def trials(path: Path) -> list[Trial]:
    return [row.trial for row in read(path).trials]


def test_log_returns_its_trials(tmp_path: Path) -> None:
    path = tmp_path / "a" / "study.jsonl"
    opened = log(path)
    opened.finish(MEASURED)
    opened.finish(FAILED)
    assert log(path).told == (MEASURED, FAILED)
    assert trials(path) == [MEASURED, FAILED]
    assert read(path).study == STUDY


def test_trial_and_claim_are_a_line_each(path: Path) -> None:
    opened = log(path)
    opened.claim(CONFIGS[4])
    opened.finish(measured(CONFIGS[4]))
    name, claim, trial = map(json.loads, path.read_text().splitlines())
    assert name["study"] == STUDY
    assert claim["claim"] == trial["trial"]["config"] == str(CONFIGS[4])
    assert claim["owner"]["pid"] == os.getpid()
    assert {"host", "boot", "namespace"} < claim["owner"].keys()


def test_trial_is_in_the_file_when_finish_returns(path: Path) -> None:
    opened = log(path)
    for config in CONFIGS[:3]:
        opened.finish(measured(config))
        assert trials(path)[-1] == measured(config)


def test_two_logs_keep_each_others_trials(path: Path) -> None:
    first, second = log(path), log(path)
    first.finish(MEASURED)
    second.finish(FAILED)
    first.finish(measured(CONFIGS[2]))
    assert log(path).told == (MEASURED, FAILED, measured(CONFIGS[2]))


def test_last_result_of_a_configuration_counts(path: Path) -> None:
    opened = log(path)
    opened.finish(MEASURED)
    opened.finish(FAILED)
    failed = Trial(MEASURED.config, FAILED.outcome)
    opened.finish(failed)
    assert trials(path) == [FAILED, failed]


@pytest.mark.parametrize(
    "values",
    [
        {"bm": 512, "bk": 8, "order": "rows"},
        {"bm": "wide", "bk": 8, "order": "diagonal"},
        dict(OTHERS[2].values),
    ],
)
def test_log_takes_any_configuration(path: Path, values: dict[str, int | str]) -> None:
    trial = Trial(Config.of("square", values), Measurement(5.0))
    opened = log(path)
    assert opened.claim(trial.config)
    opened.finish(trial)
    assert log(path).told == (trial,)


@pytest.mark.parametrize("left", [1, 40, -1])
def test_torn_last_line_costs_that_line_alone(path: Path, left: int) -> None:
    opened = log(path)
    opened.finish(MEASURED)
    whole = path.read_bytes()
    opened.finish(FAILED)
    line = path.read_bytes()[len(whole) :]
    path.write_bytes(whole + line[:left])
    assert read(path).broken == 1
    again = log(path)
    assert again.told == (MEASURED,)
    again.finish(FAILED)
    # Without its end alone, the line is whole as soon as another one follows.
    assert (trials(path), read(path).broken) == ([MEASURED, FAILED], left != -1)
    assert path.read_bytes().startswith(whole + line[:left])


def test_line_torn_while_the_log_is_open_is_skipped(path: Path) -> None:
    opened = log(path)
    with path.open("ab") as file:
        file.write(b'{"trial": {"con')
    opened.finish(MEASURED)
    assert (trials(path), read(path).broken) == ([MEASURED], 1)


@pytest.mark.parametrize(
    "garbage",
    [b"\x00\xff\n", b"{}\n", b"[1]\n", b"3\n", b"\n", b"[" * 10**5 + b"\n", b"7" * 2**21 + b"\n"],
    ids=["bytes", "object", "list", "number", "blank", "deep", "long"],
)
def test_broken_line_is_skipped_and_counted(path: Path, garbage: bytes) -> None:
    log(path).finish(MEASURED)
    head, rest = path.read_bytes().split(b"\n", 1)
    path.write_bytes(head + b"\n" + garbage + rest)
    before = path.read_bytes()
    assert log(path).told == (MEASURED,)
    assert (trials(path), read(path).broken) == ([MEASURED], 1)
    assert path.read_bytes() == before


def test_line_with_a_flipped_digit_is_broken(path: Path) -> None:
    log(path).finish(MEASURED)
    path.write_bytes(path.read_bytes().replace(b'"time_us":12.5', b'"time_us":10.5'))
    assert (trials(path), read(path).broken) == ([], 1)


def rewritten(path: Path, old: str, new: str) -> None:
    """Replaces a part of each line, as another version would write it."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    texts = [json.dumps({key: line[key] for key in line if key != "crc"}) for line in lines]
    assert any(old in text for text in texts)
    changed = (json.loads(text.replace(old, new)) for text in texts)
    path.write_bytes(b"".join(map(module._encoded, changed)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"spread_us"', '"spread_ns"'),
        *(('"time_us": 12.5', f'"time_us": {time}') for time in ('"12"', "-12.5", "0", "null")),
        ('"threads": 256', '"threads": "x"'),
    ],
)
def test_trial_of_another_version_is_not_misread(path: Path, old: str, new: str) -> None:
    log(path).finish(MEASURED)
    rewritten(path, old, new)
    assert log(path).told == ()
    assert read(path).broken == 1


def test_broken_name_is_written_again(path: Path) -> None:
    log(path).finish(MEASURED)
    path.write_bytes(b"#" + path.read_bytes())
    assert read(path).study == ""
    log(path)
    assert (read(path).study, read(path).broken) == (STUDY, 1)


def test_log_that_is_deleted_meanwhile_begins_anew(path: Path) -> None:
    opened = log(path)
    opened.finish(MEASURED)
    path.unlink()
    opened.finish(FAILED)
    assert (read(path).study, trials(path)) == (STUDY, [FAILED])
    assert not opened.claim(MEASURED.config)


def test_studies_have_files_of_their_own(tmp_path: Path) -> None:
    stem = "64x64x64-f32-nn.measured"
    old, new = (place(tmp_path, stem, study) for study in ("simt@old", "simt@new"))
    for study, file in (("simt@old", old), ("simt@new", new)):
        TrialLog(file, study)
    TrialLog(place(tmp_path, "64x64x64-f32-nn", "measured"), "measured")
    os.utime(new, (0, 0))
    assert logs_in(tmp_path, stem) == [new, old]
    assert [read(file).study for file in logs_in(tmp_path, stem)] == ["simt@new", "simt@old"]


def test_reading_creates_no_file(path: Path) -> None:
    with pytest.raises(CacheError, match="cannot be read: No such file"):
        read(path)
    assert not path.exists()


def test_endless_file_is_refused(path: Path) -> None:
    log(path)
    os.truncate(path, 2**40)
    with pytest.raises(CacheError, match="cannot be read: File has 1099511627776 bytes"):
        read(path)
    with pytest.raises(CacheError, match="cannot be written: File has 1099511627776 bytes"):
        log(path)


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (os.mkfifo, "a named pipe"),
        (os.mkdir, "a directory"),
        (lambda path: path.symlink_to("/dev/zero"), "a symbolic link"),
    ],
    ids=["named pipe", "directory", "zeros"],
)
def test_special_file_as_log_is_refused(
    path: Path, make: Callable[[Path], object], kind: str
) -> None:
    make(path)
    message = rf"study\.jsonl: cannot be written: Is {kind}, not a regular file; move it away"
    with pytest.raises(CacheError, match=message):
        log(path)


def test_unwritable_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(CacheError, match="file"):
        log(tmp_path / "file" / "study.jsonl")


def test_file_system_without_locks_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    message = r"study\.jsonl: its file system has no file locks \(No locks available\)"
    with pytest.raises(CacheError, match=message):
        log(path)


def test_full_disk_is_one_line_and_leaves_whole_lines(path: Path) -> None:
    opened = log(path)
    opened.finish(MEASURED)
    before = path.read_bytes()
    with small_files(path.stat().st_size + 100):
        opened.finish(FAILED)
        with pytest.raises(CacheError, match=FULL) as end:
            opened.check()
        assert opened.unwritten == [FAILED]
        with pytest.raises(CacheError, match=FULL):
            opened.claim(CONFIGS[5])
    assert "\n" not in str(end.value)
    assert path.read_bytes() == before


def test_unwritten_trials_are_written_once_there_is_room(path: Path) -> None:
    opened = log(path)
    with small_files(path.stat().st_size + 100):
        opened.finish(FAILED)
    opened.finish(MEASURED)
    opened.check()
    assert trials(path) == [FAILED, MEASURED]


def test_closing_on_a_full_disk_hands_the_trials_over(path: Path) -> None:
    opened = log(path)
    with small_files(path.stat().st_size + 100):
        opened.finish(MEASURED)
        opened.finish(FAILED)
        with pytest.raises(UnsavedError, match=r"measured trials in no file: 2$") as end:
            opened.close()
    assert end.value.trials == (MEASURED, FAILED)


def test_new_log_on_a_full_disk_is_refused(path: Path) -> None:
    with small_files(20), pytest.raises(CacheError, match=FULL):
        log(path)


def test_threads_share_a_log(path: Path) -> None:
    opened = log(path)
    with ThreadPoolExecutor(4) as pool:
        claimed = [*pool.map(opened.claim, CONFIGS)]
        [*pool.map(opened.finish, map(measured, CONFIGS))]
    assert all(claimed)
    assert {trial.config for trial in trials(path)} == {*CONFIGS}
    assert read(path).broken == 0


# Claims


def test_claimed_configuration_is_refused_to_others(path: Path) -> None:
    first, second = log(path), log(path)
    assert first.claim(CONFIGS[0])
    assert first.claim(CONFIGS[0])
    assert not second.claim(CONFIGS[0])
    assert second.claim(CONFIGS[1])


def test_finished_configuration_is_refused_to_others(path: Path) -> None:
    first, second = log(path), log(path)
    first.finish(MEASURED)
    assert not second.claim(MEASURED.config)
    assert not log(path).claim(MEASURED.config)


def test_news_are_the_others_results_and_claims(path: Path) -> None:
    first, second = log(path), log(path)
    second.claim(CONFIGS[5])
    second.finish(MEASURED)
    first.claim(CONFIGS[6])
    assert first.news() == News((MEASURED,), frozenset({CONFIGS[5]}))
    second.finish(FAILED)
    second.release([CONFIGS[5]])
    assert first.news() == News((FAILED,), frozenset())


def test_own_trials_and_told_ones_are_no_news(path: Path) -> None:
    log(path).finish(MEASURED)
    opened = log(path)
    opened.claim(CONFIGS[5])
    opened.finish(FAILED)
    assert opened.news() == News((), frozenset())


def test_line_that_is_being_written_is_news_later(path: Path) -> None:
    opened = log(path)
    log(path).finish(MEASURED)
    whole = path.read_bytes()
    path.write_bytes(whole[:-20])
    assert opened.news() == News((), frozenset())
    with path.open("ab") as file:
        file.write(whole[-20:])
    assert opened.news() == News((MEASURED,), frozenset())


def test_trial_finished_after_closing_is_written(path: Path) -> None:
    opened = log(path)
    opened.claim(MEASURED.config)
    opened.close()
    opened.finish(MEASURED)
    assert log(path).told == (MEASURED,)


def test_closing_releases_claims(path: Path) -> None:
    opened = log(path)
    opened.claim(CONFIGS[0])
    opened.close()
    opened.close()
    assert log(path).claim(CONFIGS[0])


def test_claim_that_a_full_disk_kept_ends_with_its_log(path: Path) -> None:
    opened = log(path)
    opened.claim(CONFIGS[0])
    with small_files(path.stat().st_size + 20):
        opened.close()
    assert b"release" not in path.read_bytes()
    assert log(path).claim(CONFIGS[0])


def test_claim_of_a_dead_process_is_free_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = log(path)
    with monkeypatch.context() as patch:
        as_process(patch, started="0")
        assert log(path).claim(CONFIGS[0])
    assert before.news().claimed == frozenset()
    assert before.claim(CONFIGS[0])


ELSEWHERE = [{"host": "elsewhere"}, {"boot": "another"}, {"namespace": "pid:[7]"}]


@pytest.mark.parametrize("elsewhere", ELSEWHERE, ids=["host", "boot", "container"])
@pytest.mark.parametrize("later_s", [EXPIRES_S - 60.0, EXPIRES_S + 60.0])
def test_claim_of_a_process_elsewhere_lasts_until_it_expires(
    path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: dict[str, str], later_s: float
) -> None:
    with monkeypatch.context() as patch:
        as_process(patch, started="0", **elsewhere)
        assert log(path).claim(CONFIGS[0])
    now = time.time() + later_s
    monkeypatch.setattr(module, "time", lambda: now)
    assert log(path).claim(CONFIGS[0]) == (later_s > EXPIRES_S)


@pytest.mark.parametrize("ahead_s", [-1e6, 1e6])
def test_clock_of_another_host_may_be_wrong(
    path: Path, monkeypatch: pytest.MonkeyPatch, ahead_s: float
) -> None:
    opened, now = log(path), time.time()
    with monkeypatch.context() as patch:
        as_process(patch, host="elsewhere")
        patch.setattr(module, "time", lambda: now + ahead_s)
        assert log(path).claim(CONFIGS[0])
    assert opened.news().claimed == {CONFIGS[0]}
    monkeypatch.setattr(module, "time", lambda: now + EXPIRES_S + 60.0)
    assert opened.news().claimed == frozenset()


def test_result_of_an_expired_claim_is_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        as_process(patch, host="elsewhere")
        late = log(path)
        assert late.claim(MEASURED.config)
    now = time.time() + EXPIRES_S + 60.0
    monkeypatch.setattr(module, "time", lambda: now)
    opened = log(path)
    assert opened.claim(MEASURED.config)
    late.finish(MEASURED)
    assert opened.news().finished == (MEASURED,)


def test_claims_of_all_processes_keep_the_limit(path: Path) -> None:
    first, second = log(path), log(path)
    first.finish(MEASURED)
    assert first.claim(CONFIGS[2], limit=3)
    assert second.claim(CONFIGS[3], limit=3)
    assert not first.claim(CONFIGS[4], limit=3)
    assert not second.claim(CONFIGS[5], limit=3)
    assert second.claim(CONFIGS[5], limit=4)


def test_released_claim_makes_room_for_another(path: Path) -> None:
    first, second = log(path), log(path)
    assert first.claim(CONFIGS[0], limit=1)
    assert not second.claim(CONFIGS[1], limit=1)
    first.close()
    assert second.claim(CONFIGS[1], limit=1)


def namespaces() -> bool:
    """Whether this machine lets the tests make a PID namespace."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return which(command[0]) is not None and not run(command, capture_output=True).returncode


@pytest.mark.skipif(not namespaces(), reason="no PID namespace can be made here")
def test_containers_of_one_host_name_try_all_once(path: Path) -> None:
    command = ["unshare", "--pid", "--fork", "--mount-proc"]
    running = [process(path, "together", inside=command) for _ in range(3)]
    begin(running)
    tried = [line for each in running for line in each.communicate(timeout=60)[0].splitlines()]
    assert sorted(tried) == sorted(map(str, CONFIGS))


def test_concurrent_processes_try_all_once(path: Path) -> None:
    running = [process(path) for _ in range(3)]
    tried = [line for each in running for line in each.communicate(timeout=240)[0].splitlines()]
    assert [each.returncode for each in running] == [0, 0, 0]
    assert sorted(tried) == sorted(map(str, CONFIGS))
    assert sorted(str(trial.config) for trial in trials(path)) == sorted(tried)


def test_claim_lasts_as_long_as_its_process(path: Path) -> None:
    claimer = process(path, "dies")
    assert claimer.stdout is not None
    assert claimer.stdout.readline() == f"{CONFIGS[0]}\n"
    before = log(path).claim(CONFIGS[0])
    claimer.kill()
    claimer.communicate()
    assert (before, log(path).claim(CONFIGS[0])) == (False, True)


def test_seconds_count_from_the_first_claim(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr(module, "time", lambda: now[0])
    opened = log(path)
    now[0] += 5
    opened.claim(CONFIGS[0])
    for config in CONFIGS[:2]:
        now[0] += 2
        opened.finish(measured(config))
    assert [row.seconds for row in read(path).trials] == [2.0, 4.0]
