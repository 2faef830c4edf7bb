"""A study in an Optuna storage: SQLite, PostgreSQL, or behind Optuna's gRPC proxy."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, unquote_plus

import optuna
import pytest
from optuna.trial import TrialState
from support.grpc_server import GrpcServer
from support.grpc_server import grpc_server as grpc_server
from support.postgres_server import PostgresServer
from support.postgres_server import postgres as postgres
from support.sample_logs import (
    CONFIGS,
    FAILED,
    MEASURED,
    OTHERS,
    STUDY,
    as_process,
    measured,
    process,
    shared,
)
from support.sample_study import cache as cache
from support.served_studies import ends_the_search_in_one_line, hosts_try_all_once

from autotune.errors import AutotuneError, CacheError, MissingError, UsageError
from autotune.families.config import Config
from autotune.measure.measurement import Measurement
from autotune.tuning.search import storage
from autotune.tuning.search.storage import SharedLog
from autotune.tuning.trial_log import EXPIRES_S, read
from autotune.tuning.trials import Trial

pytestmark = pytest.mark.usefixtures("cache")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/study.db"


@pytest.fixture
def hosts(url: str, tmp_path: Path) -> tuple[SharedLog, SharedLog]:
    """Two processes with logs of their own, as on two hosts."""
    return shared(url, tmp_path / "a.jsonl"), shared(url, tmp_path / "b.jsonl")


def study(url: str) -> optuna.Study:
    return optuna.load_study(study_name=STUDY, storage=url)


def states(url: str) -> list[TrialState]:
    return [trial.state for trial in study(url).trials]


def test_trials_are_in_the_storage_and_in_the_log(url: str, tmp_path: Path) -> None:
    opened = shared(url, tmp_path / "a.jsonl")
    opened.claim(MEASURED.config)
    opened.finish(MEASURED)
    opened.finish(FAILED)
    opened.close()
    assert shared(url, tmp_path / "b.jsonl").told == (MEASURED, FAILED)
    assert [row.trial for row in read(tmp_path / "a.jsonl").trials] == [MEASURED, FAILED]
    assert states(url) == [TrialState.COMPLETE, TrialState.PRUNED]
    best = study(url).best_trial
    assert (best.value, best.params) == (12.5, {"bm": 32, "bk": 8})


def test_trial_of_both_is_told_once(url: str, tmp_path: Path) -> None:
    for trial in (MEASURED, FAILED):
        opened = shared(url, tmp_path / "a.jsonl")
        opened.finish(trial)
        opened.close()
    assert shared(url, tmp_path / "a.jsonl").told == (MEASURED, FAILED)


def test_claim_is_a_running_trial_with_owner_and_start(url: str, tmp_path: Path) -> None:
    began = time.time()
    shared(url, tmp_path / "a.jsonl").claim(CONFIGS[4])
    [trial] = study(url).trials
    assert trial.state == TrialState.RUNNING
    assert trial.user_attrs["config"] == str(CONFIGS[4])
    assert {"host", "boot", "pid", "started"} < trial.user_attrs["owner"].keys()
    assert began <= trial.user_attrs["since"] <= time.time()


def test_claim_is_refused_to_other_hosts(hosts: tuple[SharedLog, SharedLog]) -> None:
    first, second = hosts
    assert first.claim(CONFIGS[0])
    assert first.claim(CONFIGS[0])
    assert not second.claim(CONFIGS[0])
    first.release([CONFIGS[0]])
    assert second.claim(CONFIGS[0])
    second.finish(measured(CONFIGS[0]))
    assert not first.claim(CONFIGS[0])
    assert first.news().finished == (measured(CONFIGS[0]),)


def test_claims_of_all_hosts_keep_the_limit(hosts: tuple[SharedLog, SharedLog]) -> None:
    first, second = hosts
    first.finish(MEASURED)
    assert first.claim(CONFIGS[2], limit=3)
    assert second.claim(CONFIGS[3], limit=3)
    assert not first.claim(CONFIGS[4], limit=3)
    assert not second.claim(CONFIGS[5], limit=3)
    assert second.claim(CONFIGS[5], limit=4)


def test_closing_releases_claims(url: str, hosts: tuple[SharedLog, SharedLog]) -> None:
    first, second = hosts
    assert first.claim(CONFIGS[0])
    first.close()
    assert states(url) == [TrialState.FAIL]
    assert second.claim(CONFIGS[0])


@pytest.mark.parametrize("later_s", [EXPIRES_S - 60.0, EXPIRES_S + 60.0])
def test_old_claim_of_another_host_is_free(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_s: float
) -> None:
    with monkeypatch.context() as patch:
        as_process(patch, host="elsewhere")
        patch.setattr(time, "time", lambda: 1e9)
        assert shared(url, tmp_path / "a.jsonl").claim(CONFIGS[0])
    monkeypatch.setattr("autotune.tuning.trial_log.time", lambda: 1e9 + later_s)
    opened = shared(url, tmp_path / "b.jsonl")
    assert opened.claim(CONFIGS[0]) == (later_s > EXPIRES_S)


def test_process_that_names_no_configuration_is_waited_for(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = shared(url, tmp_path / "a.jsonl")
    silent = study(url).ask()
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            owner = {"host": "h", "boot": "b", "namespace": "n", "pid": 1, "started": "1"}
            silent.set_user_attr("config", str(CONFIGS[0]))
            silent.set_user_attr("since", time.time())
            silent.set_user_attr("owner", owner | {"run": "r"})

    monkeypatch.setattr(time, "sleep", pause)
    assert not opened.claim(CONFIGS[0])
    assert len(pauses) == 3


def test_trials_of_another_program_are_skipped(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared(url, tmp_path / "a.jsonl")
    study(url).optimize(lambda _: 1.0, n_trials=1)
    study(url).ask()
    monkeypatch.setattr(storage, "PAUSE_S", 0.0)
    opened = shared(url, tmp_path / "a.jsonl")
    assert opened.told == ()
    assert opened.claim(CONFIGS[0])


@pytest.mark.parametrize(
    "config",
    [
        *OTHERS[:1],
        Config.of("square", {"bm": 512, "bk": 8, "order": "diagonal"}),
        Config.of("square", {"bm": "wide", "bk": 8, "order": "rows"}),
    ],
    ids=str,
)
def test_storage_takes_any_configuration(url: str, tmp_path: Path, config: Config) -> None:
    trials = tuple(Trial(tried, Measurement(5.0)) for tried in (CONFIGS[0], config))
    opened = shared(url, tmp_path / "a.jsonl")
    for trial in trials:
        assert opened.claim(trial.config)
        opened.finish(trial)
    opened.close()
    assert shared(url, tmp_path / "b.jsonl").told == trials


def test_threads_finish_while_another_claims(url: str, tmp_path: Path) -> None:
    opened = shared(url, tmp_path / "a.jsonl")
    with ThreadPoolExecutor(2) as pool:
        for config in CONFIGS[:12]:
            assert opened.claim(config)
            pool.submit(opened.finish, measured(config))
    opened.close()
    assert len(shared(url, tmp_path / "b.jsonl").told) == 12


def test_hosts_that_begin_at_once_try_all_once(url: str, tmp_path: Path) -> None:
    running = [process(tmp_path / f"{name}.jsonl", "ends", url) for name in "abc"]
    tried = [line for each in running for line in each.communicate(timeout=240)[0].splitlines()]
    assert [each.returncode for each in running] == [0, 0, 0]
    assert sorted(tried) == sorted(map(str, CONFIGS))


def test_file_that_fails_ends_the_search(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = shared(url, tmp_path / "a.jsonl")

    def ask(*_: object) -> None:
        raise optuna.exceptions.StorageInternalError("disk I/O error\nat page 7")

    monkeypatch.setattr(opened._shared, "ask", ask)
    message = "study.db: the storage failed: disk I/O error; see whether it runs and has room"
    with pytest.raises(CacheError, match=f"{message}$"):
        opened.claim(CONFIGS[0])
    opened.finish(MEASURED)
    assert [row.trial for row in read(tmp_path / "a.jsonl").trials] == [MEASURED]


def test_postgres_is_shared_by_hosts(postgres: PostgresServer, tmp_path: Path) -> None:
    hosts_try_all_once(postgres, tmp_path)


def test_postgres_that_dies_ends_the_search(postgres: PostgresServer, tmp_path: Path) -> None:
    ends_the_search_in_one_line(postgres, tmp_path)


def test_proxy_is_shared_by_hosts(grpc_server: GrpcServer, tmp_path: Path) -> None:
    hosts_try_all_once(grpc_server, tmp_path)


def test_proxy_that_dies_ends_the_search(grpc_server: GrpcServer, tmp_path: Path) -> None:
    ends_the_search_in_one_line(grpc_server, tmp_path)


def test_proxy_that_does_not_answer_is_an_error(
    grpc_server: GrpcServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grpc_server.crash()
    monkeypatch.setattr(storage, "PROXY_S", 0.1)
    with pytest.raises(CacheError, match="the storage failed: GRPC connection timeout"):
        shared(grpc_server.url, tmp_path / "a.jsonl")


def test_unreachable_database_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CacheError, match=r"study\.db: the storage failed: .*unable to open"):
        shared(f"sqlite:///{tmp_path}/nowhere/study.db", tmp_path / "a.jsonl")


@pytest.mark.parametrize(
    "where",
    [
        *("study.log", "journal:///study.log", "magic://somewhere", "grpc://", "grpc://h:x"),
        *("grpc://h:65536", "grpc://me@h", "grpc://h/a", "postgresql://me:secret@host:first/db"),
    ],
)
def test_what_is_no_storage_is_a_usage_error(where: str, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match="is not the URL of an Optuna storage; write sqlite:"
    ) as end:
        shared(where, tmp_path / "a.jsonl")
    assert "secret" not in messages(end.value)
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(
    ("driver", "package"),
    [
        ("postgresql+pg8000", "pg8000"),
        ("postgresql+psycopg2", "psycopg2"),
        ("mysql", "mysqlclient"),
        ("mssql+pyodbc", "pyodbc"),
    ],
)
def test_missing_database_driver_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str, package: str
) -> None:
    for module in ("pg8000", "psycopg2", "MySQLdb", "pyodbc"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingError, match=f"install its package: pip install {package}$") as end:
        shared(f"{driver}://someone:secret@nowhere/studies", tmp_path / "a.jsonl")
    assert "secret" not in messages(end.value)


def test_missing_package_of_the_proxy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(MissingError, match=r"pip install grpcio 'protobuf>=5\.28\.1'$"):
        shared("grpc://nowhere:13000", tmp_path / "a.jsonl")


def messages(error: BaseException | None) -> str:
    """The messages in the traceback of an error, with the errors that led to it."""
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
    name = storage.redacted(url.format("swordfish", "swordfish"))
    assert "swordfish" not in name
    assert "***" in name


def test_name_of_a_database_keeps_the_rest() -> None:
    url = "mysql+pymysql://me:a%40b@host:3306/db?charset=utf8mb4&ssl_key=/k.pem"
    name = "mysql+pymysql://me:***@host:3306/db?charset=utf8mb4&ssl_key=***"
    assert storage.redacted(url) == name
    assert storage.redacted("sqlite:////a/b.db?mode=ro") == "sqlite:////a/b.db?mode=ro"


@pytest.mark.parametrize(
    "raised", [ValueError, OSError, ImportError, optuna.exceptions.StorageInternalError]
)
@pytest.mark.parametrize("url", SECRETS)
def test_password_is_not_in_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, url: str, raised: type[Exception]
) -> None:
    url = url.format("zebra+fi%2Fsh", "zebra+fi%2Fsh")

    def fails(_: str) -> None:
        try:
            raise ConnectionError(f"no answer from {unquote(url)} or {unquote_plus(url)}")
        except ConnectionError as error:
            raise raised(f"bad url {url}") from error

    monkeypatch.setattr(optuna.storages, "RDBStorage", fails)
    with pytest.raises(AutotuneError) as caught:
        shared(url, tmp_path / "a.jsonl")
    assert "zebra" not in messages(caught.value)


def test_optuna_logging_is_left_alone(
    url: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    before = optuna.logging.get_verbosity()
    opened = shared(url, tmp_path / "a.jsonl")
    opened.claim(CONFIGS[0])
    opened.finish(MEASURED)
    opened.close()
    assert capfd.readouterr() == ("", "")
    assert optuna.logging.get_verbosity() == before
