"""Failures during tuning lose no measured trial and leave a correct record."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from support.fake_runner import ORIGIN, FakeRunner, by_width, compiled, program, tiled
from support.full_disk import enlarge, small_disk, small_files
from support.sample_records import SQUARE
from support.sample_study import store as store
from support.sample_study import told

from autotune import settings
from autotune.compiler import Program
from autotune.errors import CacheError, RunnerError, UnsavedError
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.gpu import GpuRunner, process
from autotune.records import Record, Store, codec
from autotune.runners.base import Candidate, Failure, Measurement, Runner
from autotune.tuning import resume
from autotune.tuning.evaluate import Compile, Trial
from autotune.tuning.events import Observer, Progress, Silent
from autotune.tuning.gemm import GemmTunable
from autotune.tuning.loop import Search, tune
from autotune.tuning.search import Journal
from autotune.tuning.search.journal.shared_study import SharedStudy

SPACE = 58  # TILE_WIDTH 4 to 32, each specialised and not
EVERYTHING = Search(sampler="random")
KILLS = 40
# Trials of a worker before it is killed, at most.
MEASURED = 10
GONE_S = 10.0


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

    def _request(self, method: str, arguments: tuple[object, ...], limit: float) -> object:
        answer = super()._request(method, arguments, limit)
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


class Until(Silent):
    """Interrupts the run as soon as a thread has ended."""

    def __init__(self, thread: threading.Thread) -> None:
        self._thread = thread

    def trial(self, trial: Trial, progress: Progress) -> None:
        del trial, progress
        if not self._thread.is_alive():
            raise KeyboardInterrupt


def outage(killer: Killer, directory: Path) -> None:
    """Removes a directory for a while once a quarter of the kills are done."""
    while killer.kills < KILLS / 4:
        time.sleep(0.01)
    away(directory, GONE_S)


def away(directory: Path, seconds: float) -> None:
    """Removes a directory and restores it, like a file server that restarts."""
    directory.rename(directory.with_name("away"))
    time.sleep(seconds)
    directory.with_name("away").rename(directory)


def test_kills_and_an_outage_lose_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    spawned: list[int] = []

    class Spawned(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            spawned.append(self.pid)

    monkeypatch.setattr(subprocess, "Popen", Spawned)
    runner = OutcomeRecorder("brief")
    killer = Killer(runner, spawned)
    server = threading.Thread(target=outage, args=(killer, store.root / "studies"))
    killer.start()
    server.start()
    with pytest.raises(KeyboardInterrupt):
        go(runner, store, family="simt", observer=Until(killer))
    server.join()
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
    finish = SharedStudy.finish

    def slow(study: SharedStudy, trial: Trial, kept: Callable[[], None]) -> None:
        time.sleep(0.03)
        finish(study, trial, kept)

    monkeypatch.setattr(SharedStudy, "finish", slow)


class JournalReader(Silent):
    """Compares what it is told with what the journal holds at that moment.

    Attributes:
        configs: of the trials that it was told.
        missing: those of them that a kill would have lost.
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
    runner, reader = FakeRunner(), JournalReader(store)
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
    monkeypatch.setattr(process, "STARTS", 2)
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


def test_full_disk_is_an_error_and_loses_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "Journal", partial(Journal, patience_s=0.2))
    first, second = FakeRunner(), FakeRunner()
    with small_files(20_000), pytest.raises(CacheError, match="cannot be written: File too large"):
        go(first, store)
    kept = {trial.config for trial in told(store)}
    assert 5 < len(kept) < SPACE
    record = go(second, store)
    assert not kept & set(second.measured)
    assert (record.best.config, record.provenance.trials) == (tiled(23, specialized=0), SPACE)


def test_trials_a_full_disk_refuses_are_rescued(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resume, "Journal", partial(Journal, patience_s=0.2))
    runner = FakeRunner()
    with small_files(20_000), pytest.raises(CacheError, match="measured trials are kept in") as end:
        go(runner, store, Search(trials=25, sampler="random"))
    assert str(tmp_path / "rescued") in str(end.value)
    assert {trial.config for trial in told(store)} >= set(runner.measured)


def test_results_a_full_disk_refuses_are_kept_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk, other = tmp_path / "disk", tmp_path / "other"
    other.mkdir()
    monkeypatch.setattr(resume, "Journal", partial(Journal, patience_s=0.2))
    monkeypatch.setattr(settings, "spare_dirs", lambda: [other])
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(disk))
    with small_disk(disk, 2**16):
        first, second = FakeRunner(), FakeRunner()
        with pytest.raises(UnsavedError) as end:
            go(first, Store(disk))
        message = str(end.value)
        assert (end.value.record, end.value.trials) == (None, ())
        assert message.count("No space left on device") == 2
        assert re.search(rf"\.log: .* measured trials are kept in {other}/.*\.jsonl", message)
        [record] = other.rglob("*.json")
        assert f"the record is kept in {record}" in message
        assert Store(tmp_path / "new").adopt(codec.loads(record.read_bytes()), None) == "new"
        enlarge(disk, 2**22)
        assert go(second, Store(disk)).provenance.trials == SPACE
        assert len(first.measured) > 10
        assert not {*first.measured} & {*second.measured}


def test_results_that_fit_nowhere_are_in_the_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = tmp_path / "disk"
    monkeypatch.setattr(resume, "Journal", partial(Journal, patience_s=0.2))
    monkeypatch.setattr(settings, "spare_dirs", list)
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(disk))
    with small_disk(disk, 2**16):
        runner = FakeRunner()
        with pytest.raises(UnsavedError, match="the record is in no file") as end:
            go(runner, Store(disk))
        enlarge(disk, 2**22)
        written = {trial.config for trial in told(Store(disk))}
    lost = {trial.config for trial in end.value.trials}
    assert f"{len(lost)} measured trials are lost" in str(end.value)
    assert lost | written == {*runner.measured}
    assert lost
    record = end.value.record
    assert record is not None
    assert record.best.config in lost | written


def test_device_does_not_wait_for_a_missing_storage(store: Store) -> None:
    begun: list[float] = []

    def outcome(config: Config) -> Measurement:
        begun.append(time.monotonic())
        if len(begun) == 10:
            threading.Thread(target=away, args=(store.root / "studies", 3.0)).start()
        time.sleep(0.02)
        return by_width(config)

    runner = FakeRunner(outcome, again=by_width)
    go(runner, store)
    assert max(after - before for before, after in pairwise(begun)) < 1.5
    assert {trial.config for trial in told(store)} == set(runner.measured)
