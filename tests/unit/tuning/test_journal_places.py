"""Where a study is kept: journal files and databases."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, unquote_plus
from uuid import uuid4

import optuna
import pytest
from optuna.storages import BaseStorage
from support.sample_journals import (
    CONFIGS,
    FAILED,
    MEASURED,
    add,
    journal,
    measured,
)
from support.sample_journals import cache as cache

from autotune.errors import AutotuneError, CacheError, MissingError, UsageError
from autotune.tuning.search import Journal, axes_of
from autotune.tuning.search.journal import databases, places

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


@pytest.mark.parametrize(
    ("driver", "package"),
    [
        ("postgresql+pg8000", "pg8000"),
        ("postgresql+psycopg2", "psycopg2-binary"),
        ("postgresql+psycopg", r"'psycopg\[binary\]'"),
        ("mysql", "mysqlclient"),
        ("mysql+pymysql", "pymysql"),
        ("oracle+oracledb", "oracledb"),
        ("mssql+pyodbc", "pyodbc"),
    ],
)
def test_missing_database_driver_is_named(
    monkeypatch: pytest.MonkeyPatch, driver: str, package: str
) -> None:
    for module in ("pg8000", "psycopg2", "psycopg", "MySQLdb", "pymysql", "oracledb", "pyodbc"):
        monkeypatch.setitem(sys.modules, module, None)
    message = f"install the driver of that database: pip install {package}$"
    with pytest.raises(MissingError, match=message) as caught:
        journal(f"{driver}://someone:secret@nowhere/studies")
    assert "secret" not in messages(caught.value)


def messages(error: BaseException | None) -> str:
    """The messages in a traceback, of the error and of those that led to it."""
    texts = []
    while error is not None:
        texts.append(str(error))
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return "\n".join(texts)


SECRETS = [
    "postgresql://me:{}@host/db",
    "postgresql://me:p%40{}@host/db",
    "postgresql://us@er:{}@host/db?application_name=x",
    "postgresql://me:a?b/{}@host:port/db",
    "postgresql://:{}@host/db",
    "postgresql://host/db?user=me&password={}&sslpassword=other{}",
    "postgresql://host/db?p%61ssword={}",
    "mssql+pyodbc:///?odbc_connect=DRIVER%3D%7Bx%7D%3BPWD%3D{}",
    "magic://me:{}@host",
]


@pytest.mark.parametrize("url", SECRETS)
def test_password_is_not_in_the_name(url: str) -> None:
    name = databases.redacted(url.format("swordfish", "swordfish"))
    assert "swordfish" not in name
    assert "***" in name


def test_name_of_a_database_keeps_the_rest() -> None:
    url = "mysql+pymysql://me:a%40b@host:3306/db?charset=utf8mb4&ssl_key=/k.pem"
    name = "mysql+pymysql://me:***@host:3306/db?charset=utf8mb4&ssl_key=***"
    assert databases.redacted(url) == name
    assert databases.redacted("sqlite:////a/b.db?mode=ro") == "sqlite:////a/b.db?mode=ro"


@pytest.mark.parametrize(
    "raised", [ValueError, OSError, ImportError, optuna.exceptions.StorageInternalError]
)
@pytest.mark.parametrize("url", SECRETS)
def test_password_is_not_in_a_traceback(
    monkeypatch: pytest.MonkeyPatch, url: str, raised: type[Exception]
) -> None:
    url = url.format("zebra+fi%2Fsh", "zebra+fi%2Fsh")

    def fails(_: str) -> None:
        try:
            raise ConnectionError(f"no answer from {unquote(url)} or {unquote_plus(url)}")
        except ConnectionError as error:
            raise raised(f"bad url {url}") from error

    monkeypatch.setattr(places, "PAUSES_S", ())
    monkeypatch.setattr(optuna.storages, "get_storage", fails)
    with pytest.raises(AutotuneError) as caught:
        journal(url)
    assert "zebra" not in messages(caught.value)


def test_unparsable_url_says_what_to_do() -> None:
    advice = "percent-encode :, /, ? and @ in the user's name and password"
    with pytest.raises(UsageError) as caught:
        journal("postgresql://me:secret@host:first/db")
    message = f"postgresql://me:***@host:first/db: no URL of a storage; {advice}"
    assert messages(caught.value) == message


def test_sqlite_tables_are_created_by_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    active, most, create = 0, 0, optuna.storages.get_storage

    def creating(url: str) -> BaseStorage:
        nonlocal active, most
        active += 1
        most = max(most, active)
        storage = create(url)
        active -= 1
        return storage

    monkeypatch.setattr(optuna.storages, "get_storage", creating)
    url = f"sqlite:///{tmp_path}/study.db"
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(databases.connected, [url] * 12))
    assert most == 1
    assert [path.name for path in tmp_path.iterdir()] == ["study.db"]


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


LINE = b'{"op_code":0,"worker_id":"w","study_name":"s","directions":[1]}\n'
SQLITE = b"SQLite format 3\0" + bytes(8176)


@pytest.mark.parametrize(
    ("content", "advice"),
    [
        (b"one line", "no journal of Optuna's; give another file"),
        (b"two\nlines", "no journal of Optuna's"),
        (b"{}\n" * 100, "no journal of Optuna's"),
        (b'{"worker_id": "w", "op_code": "x"}\n', "no journal of Optuna's"),
        (b"{", "no journal of Optuna's"),
        (bytes(2**21), "no journal of Optuna's"),
        (SQLITE, "an SQLite database; write sqlite:///.*study.log$"),
    ],
    ids=["line", "lines", "objects", "code", "brace", "zeros", "sqlite"],
)
def test_file_of_another_kind_is_left_alone(tmp_path: Path, content: bytes, advice: str) -> None:
    path = tmp_path / "study.log"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=rf"study\.log: is {advice}"):
        journal(path)
    assert [(file.name, file.read_bytes()) for file in tmp_path.iterdir()] == [
        ("study.log", content)
    ]


def test_file_of_another_kind_in_the_cache_is_set_aside(cache: Path) -> None:
    path = cache / "studies" / "study.log"
    path.parent.mkdir(parents=True)
    path.write_bytes(SQLITE)
    with pytest.warns(UserWarning, match=r"no journal, kept as study\.log\.broken-1"):
        add(journal(path), MEASURED)
    assert (path.parent / "study.log.broken-1").read_bytes() == SQLITE
    assert journal(path).told == [MEASURED]


@pytest.mark.parametrize("size", [0, 11, 20, len(LINE) - 1, len(LINE)])
def test_start_of_a_journal_is_a_journal(tmp_path: Path, size: int) -> None:
    path = tmp_path / "study.log"
    path.write_bytes(LINE[:size])
    add(journal(path), MEASURED)
    assert journal(path).told == [MEASURED]


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (os.mkfifo, "a named pipe"),
        (os.mkdir, "a directory"),
        (lambda path: path.symlink_to("/dev/zero"), "a character device"),
    ],
    ids=["named pipe", "directory", "zeros"],
)
def test_special_file_as_journal_is_refused(
    tmp_path: Path, make: Callable[[Path], object], kind: str
) -> None:
    make(tmp_path / "study.log")
    message = rf"study\.log: cannot be written: Is {kind}, not a regular file; give another file"
    with pytest.raises(CacheError, match=message):
        journal(tmp_path / "study.log")


def test_journal_leaves_no_file_beside_it(tmp_path: Path) -> None:
    add(journal(tmp_path / "study.log"), MEASURED)
    assert [path.name for path in tmp_path.iterdir()] == ["study.log"]


def test_file_system_without_locks_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    message = r"study\.log: its file system has no file locks \(No locks available\).*--storage"
    with pytest.raises(CacheError, match=message):
        journal(tmp_path / "study.log")


def aged(path: Path) -> None:
    old = time.time() - 60
    os.utime(path, (old, old), follow_symlinks=False)


def test_stale_locks_are_removed(tmp_path: Path) -> None:
    stale, fresh = tmp_path / "study.log.lock", tmp_path / "study.log.lock4f1c.rename"
    stale.symlink_to("study.log")
    fresh.touch()
    aged(stale)
    journal(tmp_path / "study.log")
    assert [os.path.lexists(lock) for lock in (stale, fresh)] == [False, True]


@pytest.mark.parametrize("name", ["study", "*", "s[t]udy"])
def test_only_locks_of_the_journal_are_removed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    add(journal(path), MEASURED)
    released = f"{name}.lock{uuid4()}.rename"
    strangers = [f"{name}.lock2", f"{name}.lockfile", "study.locks", "other.lock", f"{name}.lock.x"]
    for stranger in (*strangers, f"{name}.lock", released):
        (tmp_path / stranger).touch()
        aged(tmp_path / stranger)
    journal(path)
    assert {file.name for file in tmp_path.iterdir()} == {name, *strangers}


@pytest.mark.parametrize("begin", [b"", LINE])
def test_lock_file_with_content_is_kept(tmp_path: Path, begin: bytes) -> None:
    (tmp_path / "poetry").write_bytes(begin)
    (tmp_path / "poetry.lock").write_text("[[package]]\n")
    aged(tmp_path / "poetry.lock")
    journal(tmp_path / "poetry")
    assert (tmp_path / "poetry.lock").read_text() == "[[package]]\n"


def test_empty_lock_file_beside_a_new_journal_is_kept(tmp_path: Path) -> None:
    (tmp_path / "poetry.lock").touch()
    aged(tmp_path / "poetry.lock")
    journal(tmp_path / "poetry")
    assert (tmp_path / "poetry.lock").exists()
