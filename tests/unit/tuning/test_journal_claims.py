"""Claims on configurations, by several processes and by ones that are gone."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from shutil import which
from subprocess import run

import optuna
import pytest
from optuna.trial import FrozenTrial
from support.sample_journals import (
    CONFIGS,
    FAILED,
    MEASURED,
    add,
    begin,
    journal,
    left_behind,
    measured,
    process,
    states,
)
from support.sample_journals import cache as cache

from autotune.tuning.search.journal import News, trials
from autotune.tuning.search.journal.shared_study import SharedStudy
from autotune.tuning.search.journal.trials import SILENT_S

pytestmark = pytest.mark.usefixtures("cache")


def namespaces() -> bool:
    """Whether this machine lets the tests make a PID namespace."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", "true"]
    return which(command[0]) is not None and not run(command, capture_output=True).returncode


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


def test_claim_that_could_not_be_compared_is_compared_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "study.log"
    first, second = journal(path), journal(path)
    assert first.claim(CONFIGS[0])
    with monkeypatch.context() as patch:
        patch.setattr(second._study, "look", broken)
        with pytest.raises(ConnectionError):
            second._study.claim(CONFIGS[0])
    assert not second._study.claim(CONFIGS[0])
    assert states(path) == [("RUNNING", None), ("FAIL", "another process was faster")]


def broken() -> None:
    raise ConnectionError


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
        patch.setattr(trials, "abandoned", lambda *_: True)
        journal(path)
    add(opened, MEASURED)
    assert states(path) == [("FAIL", "orphaned"), ("COMPLETE", None)]
    assert journal(path).told == [MEASURED]


def test_claims_of_all_processes_keep_the_limit(tmp_path: Path) -> None:
    first, second = journal(tmp_path / "study.log"), journal(tmp_path / "study.log")
    add(first, MEASURED)
    assert first.claim(CONFIGS[2], limit=3)
    assert second.claim(CONFIGS[3], limit=3)
    assert not first.claim(CONFIGS[4], limit=3)
    assert not second.claim(CONFIGS[5], limit=3)
    assert second.claim(CONFIGS[5], limit=4)


def test_unused_claim_makes_room_for_another(tmp_path: Path) -> None:
    first, second = journal(tmp_path / "study.log"), journal(tmp_path / "study.log")
    assert first.claim(CONFIGS[0], limit=1)
    assert not second.claim(CONFIGS[1], limit=1)
    first.close()
    assert second.claim(CONFIGS[1], limit=1)


def test_later_of_two_simultaneous_claims_is_over_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = journal(tmp_path / "study.log"), journal(tmp_path / "study.log")
    granted: list[bool] = []
    create = SharedStudy._create

    def late(study: SharedStudy, trial: FrozenTrial) -> int:
        """The first journal claims after the second has looked and before it writes."""
        monkeypatch.setattr(SharedStudy, "_create", create)
        granted.append(first.claim(CONFIGS[0], limit=1))
        return create(study, trial)

    monkeypatch.setattr(SharedStudy, "_create", late)
    granted.append(second.claim(CONFIGS[1], limit=1))
    assert granted == [True, False]


def claimed_in(path: Path, monkeypatch: pytest.MonkeyPatch, **namespace: str) -> None:
    """Claims the first configuration as a process that this one cannot look up."""
    owner = trials.owner() | {"pid": 1} | namespace
    with monkeypatch.context() as patch:
        patch.setattr(trials, "owner", lambda: owner)
        assert journal(path).claim(CONFIGS[0])


@pytest.mark.parametrize("elsewhere", [{"namespace": "pid:[7]"}, {"started": "another boot:7"}])
@pytest.mark.parametrize("later_s", [60.0, SILENT_S + 60.0])
def test_claim_of_a_container_lasts_until_it_is_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: dict[str, str], later_s: float
) -> None:
    path = tmp_path / "study.log"
    claimed_in(path, monkeypatch, **elsewhere)
    now = time.time() + later_s
    monkeypatch.setattr(time, "time", lambda: now)
    assert journal(path).claim(CONFIGS[0]) == (later_s > SILENT_S)


def test_active_process_elsewhere_keeps_its_old_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "study.log"
    owner = trials.owner() | {"namespace": "pid:[7]"}
    with monkeypatch.context() as patch:
        patch.setattr(trials, "owner", lambda: owner)
        container = journal(path)
    assert container.claim(CONFIGS[0])
    now = time.time() + SILENT_S
    monkeypatch.setattr(time, "time", lambda: now)
    assert container.claim(CONFIGS[1])
    now += 60
    assert not journal(path).claim(CONFIGS[0])


@pytest.mark.skipif(not namespaces(), reason="no PID namespace can be made here")
def test_containers_of_one_host_name_try_all_once(tmp_path: Path) -> None:
    command = ["unshare", "--pid", "--fork", "--mount-proc"]
    where = f"journal://{tmp_path}/study.log"
    running = [process(where, "together", inside=command) for _ in range(3)]
    begin(running)
    tried = [line for each in running for line in each.communicate(timeout=60)[0].splitlines()]
    assert sorted(tried) == sorted(map(str, CONFIGS))


@pytest.mark.parametrize("url", ["journal://{}/study.log", "sqlite:///{}/study.db"])
def test_concurrent_processes_try_all_once(tmp_path: Path, url: str) -> None:
    where = url.format(tmp_path)
    running = [process(where) for _ in range(3)]
    tried = [line for each in running for line in each.communicate(timeout=240)[0].splitlines()]
    assert [each.returncode for each in running] == [0, 0, 0]
    assert sorted(tried) == sorted(map(str, CONFIGS))
    assert sorted(str(trial.config) for trial in journal(where).told) == sorted(tried)


def test_claim_lasts_as_long_as_its_process(tmp_path: Path) -> None:
    path = tmp_path / "study.log"
    claimer = process(f"journal://{path}", "dies")
    assert claimer.stdout is not None
    assert claimer.stdout.readline() == f"{CONFIGS[0]}\n"
    before = journal(path).claim(CONFIGS[0])
    claimer.kill()
    claimer.communicate()
    assert (before, journal(path).claim(CONFIGS[0])) == (False, True)
