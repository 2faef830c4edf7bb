"""Failures during tuning lose no measured trial and leave a correct record."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from itertools import count
from pathlib import Path
from typing import Any

import optuna
import pytest
from support.fake_runner import ORIGIN, UNKNOWN, FakeRunner, by_width, compiled, program, tiled
from support.full_disk import enlarge, small_disk, small_files
from support.sample_records import H100, SQUARE
from support.sample_study import store as store
from support.sample_study import told

from autotune.cuda.program import Program
from autotune.errors import CacheError, RunnerError, UnsavedError
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.measure import worker
from autotune.measure.gpu_runner import GpuRunner
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.runner import Candidate, Runner
from autotune.measure.worker import RestartingWorker
from autotune.records import Record, Store, codec
from autotune.tuning.loop import Search, tune
from autotune.tuning.pipeline import Compile
from autotune.tuning.trial_log import TrialLog
from autotune.tuning.trials import Observer, Progress, Trial
from autotune.tuning.tunable import GemmTunable

SPACE = 58  # TILE_WIDTH 4 to 32, each specialised and not


EVERYTHING = Search(sampler="random")


KILLS = 15


# Trials of a worker before it is killed, at most.
MEASURED = 10


def go(
    runner: Runner,
    store: Store,
    options: Search = EVERYTHING,
    *,
    family: str = "tiled",
    compile: Compile = compiled,
    observer: Observer | None = None,
) -> Record:
    subject = GemmTunable(SQUARE, family)
    return tune(subject, runner, store, options, compile=compile, origin=ORIGIN, observer=observer)


class OutcomeRecorder(GpuRunner):
    """A GPU runner that keeps the outcomes it returned; tuning may lose none of them.

    Attributes:
        returned: the outcomes by configuration.
    """

    def __init__(self, bench: str, time_limit: float = 30.0) -> None:
        self.returned: dict[Config, Measurement | Failure] = {}
        bench = f"support.dying_benches:{bench}"
        super().__init__(SQUARE, bench=bench, baseline_bench=None, time_limit=time_limit)

    def _request(
        self,
        method: str,
        arguments: tuple[object, ...],
        limit: float,
        worker: RestartingWorker | None = None,
    ) -> object:
        answer = super()._request(method, arguments, limit, worker)
        match arguments, answer:
            case (Candidate() as candidate, *_), Measurement() | Failure():
                self.returned[candidate.config] = answer
        return answer


class Killer(threading.Thread):
    """Kills workers of a runner: one in five while it starts, the rest while they measure.

    It counts what a worker has measured, since a busy machine measures less in the same time.
    """

    def __init__(self, runner: OutcomeRecorder, spawned: list[int]) -> None:
        super().__init__(daemon=True)
        self._runner, self._spawned = runner, spawned
        self.kills = 0

    def run(self) -> None:
        moments, seen = random.Random(20), 0
        while self.kills < KILLS:
            while len(self._spawned) == seen:
                time.sleep(0.0005)
            seen = len(self._spawned)
            pid = self._spawned[-1]
            if moments.random() < 0.8:
                while not self._measures(pid):
                    time.sleep(0.0005)
                enough = len(self._runner.returned) + moments.randrange(MEASURED)
                while len(self._runner.returned) < enough:
                    time.sleep(0.0005)
                time.sleep(moments.uniform(0, 0.003))
            else:
                time.sleep(moments.uniform(0, 0.3))
            os.kill(pid, signal.SIGKILL)
            self.kills += 1

    def _measures(self, pid: int) -> bool:
        worker = self._runner._measuring._worker
        return worker._process.pid == pid and worker._ready


class Until(Observer):
    """Interrupts the run as soon as a thread has ended."""

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    def trial(self, trial: Trial, progress: Progress) -> None:
        del trial, progress
        if not self._thread.is_alive():
            raise KeyboardInterrupt


def test_kills_of_workers_lose_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    spawned: list[int] = []

    class Spawned(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            spawned.append(self.pid)

    monkeypatch.setattr(subprocess, "Popen", Spawned)
    runner = OutcomeRecorder("brief")
    killer = Killer(runner, spawned)
    killer.start()
    with pytest.raises(KeyboardInterrupt):
        go(runner, store, family="simt", observer=Until(killer))
    runner.close()
    assert {trial.config: trial.outcome for trial in told(store)} == runner.returned
    outcomes = runner.returned.values()
    failed = [outcome for outcome in outcomes if isinstance(outcome, Failure)]
    times = [outcome.time_us for outcome in outcomes if isinstance(outcome, Measurement)]
    assert killer.kills == KILLS
    assert 0 < len(failed) <= KILLS < len(times)
    assert all("SIGKILL" in failure.reason for failure in failed)
    saved = store.family(runner.device, SQUARE, "simt")
    assert saved is not None
    assert saved.best.measurement.time_us == min(times)


@pytest.fixture
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writing a result takes longer than measuring it."""
    write = TrialLog._write

    def slow(log: TrialLog) -> None:
        time.sleep(0.03)
        write(log)

    monkeypatch.setattr(TrialLog, "_write", slow)


class LogReader(Observer):
    """Compares each reported trial with the log at that moment.

    Attributes:
        configs: the configurations of the reported trials.
        missing: the configurations that a kill would have lost.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.configs: list[Config] = []
        self.missing: list[Config] = []

    def trial(self, trial: Trial, progress: Progress) -> None:
        assert progress.trials == len(self.configs) + 1
        self.configs.append(trial.config)
        if trial.config not in {written.config for written in told(self._store)}:
            self.missing.append(trial.config)


@pytest.mark.usefixtures("slow_disk")
def test_trials_are_told_once_they_are_written(store: Store) -> None:
    runner, reader = FakeRunner(), LogReader(store)
    go(runner, store, Search(trials=10), observer=reader)
    assert reader.configs == runner.measured
    assert reader.missing == []


@pytest.mark.usefixtures("slow_disk")
def test_device_begins_once_the_last_trial_is_written(store: Store) -> None:
    missing: list[set[Config]] = []

    def outcome(config: Config) -> Measurement:
        missing.append({*runner.measured[:-1]} - {trial.config for trial in told(store)})
        return by_width(config)

    runner = FakeRunner(outcome, again=by_width)
    go(runner, store, Search(trials=10))
    assert missing == [set()] * 10


def test_worker_killed_at_its_start_is_restarted(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_TEST_MARKER", str(tmp_path / "marker"))
    runner = OutcomeRecorder("mortal")
    assert go(runner, store, Search(trials=3)).provenance.trials == 3
    runner.close()


def test_worker_killed_at_every_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "STARTS", 2)
    runner = OutcomeRecorder("doomed")
    with pytest.raises(RunnerError, match=r"the worker did not start: .*SIGKILL"):
        _ = runner.device
    runner.close()


def test_faulty_candidate_costs_only_itself(store: Store) -> None:
    runner = OutcomeRecorder("faulty", time_limit=0.5)
    record = go(runner, store)
    runner.close()
    failed = {
        trial.config: trial.outcome for trial in told(store) if isinstance(trial.outcome, Failure)
    }
    stages = {(config.integer("tile_width"), failure.stage) for config, failure in failed.items()}
    assert stages == {(5, "crash"), (6, "timeout"), (7, "crash"), (8, "crash")}
    assert {key.partition("@")[0] for key in store.quarantined(runner.device)} == {
        str(config) for config in failed
    }
    assert (record.best.config.integer("tile_width"), record.provenance.trials) == (23, SPACE)


def test_compiler_crash_costs_only_its_candidate(store: Store) -> None:
    def frail(template: Template, arch: str) -> Program:
        if template.label.startswith("tiled<TILE_WIDTH=24,"):
            subprocess.run([sys.executable, "-c", "import os; os.abort()"], check=True)
        return program(template, arch)

    runner = FakeRunner()
    record = go(runner, store, compile=frail)
    failed = [trial for trial in told(store) if isinstance(trial.outcome, Failure)]
    assert {trial.config.integer("tile_width") for trial in failed} == {24}
    assert all(
        "SIGABRT" in trial.outcome.reason for trial in failed if isinstance(trial.outcome, Failure)
    )
    assert record.best.config == tiled(23, specialized=0)


def test_full_disk_is_an_error_and_loses_nothing(store: Store) -> None:
    first, second = FakeRunner(), FakeRunner()
    with small_files(20_000), pytest.raises(CacheError, match="cannot be written: File too") as end:
        go(first, store)
    assert "\n" not in str(end.value)
    lost = end.value.trials if isinstance(end.value, UnsavedError) else ()
    kept = {trial.config for trial in told(store)}
    assert 5 < len(kept) < SPACE
    assert kept | {trial.config for trial in lost} == {*first.measured}
    saved = store.family(H100, SQUARE, "tiled")
    assert saved is not None
    assert saved.best.config in kept | {trial.config for trial in lost}
    record = go(second, store)
    assert not kept & set(second.measured)
    assert (record.best.config, record.provenance.trials) == (tiled(23, specialized=0), SPACE)


def test_full_disk_loses_no_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = tmp_path / "disk"
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(disk))
    with small_disk(disk, 2**15):
        first, second = FakeRunner(), FakeRunner()
        with pytest.raises(UnsavedError, match="the record is in no file") as end:
            go(first, Store(disk))
        assert str(end.value).count("No space left on device") == 2
        record = codec.loads(codec.dumps(end.value.record))
        assert Store(tmp_path / "new").adopt(record, UNKNOWN) == "new"
        lost = {trial.config for trial in end.value.trials}
        written = {trial.config for trial in told(Store(disk))}
        assert lost | written == {*first.measured}
        assert record.best.config in lost | written
        enlarge(disk, 2**22)
        assert go(second, Store(disk)).provenance.trials == SPACE
        assert len(first.measured) > 10
        assert not {*first.measured} & {*second.measured} - lost


def test_storage_that_fails_leaves_log_and_record(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, asked = optuna.Study.ask, count()

    def failing(study: optuna.Study, distributions: Any = None) -> optuna.Trial:
        if study.study_name != "search" and next(asked) == 10:
            raise optuna.exceptions.StorageInternalError("the server is gone\nat once")
        return ask(study, distributions)

    monkeypatch.setattr(optuna.Study, "ask", failing)
    runner = FakeRunner()
    options = Search(sampler="random", storage=f"sqlite:///{tmp_path}/study.db")
    with pytest.raises(CacheError, match="the storage failed: the server is gone; see") as end:
        go(runner, store, options)
    assert "\n" not in str(end.value)
    assert {trial.config for trial in told(store)} == {*runner.measured}
    saved = store.family(H100, SQUARE, "tiled")
    assert saved is not None
    assert saved.best.config in runner.measured
