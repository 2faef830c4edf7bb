from __future__ import annotations

import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_runner import (
    ORIGIN,
    FakeRunner,
    by_width,
    compiled,
    crash,
    program,
    tiled,
    uncompiled,
)
from support.paths import import_path
from support.sample_records import H100, SQUARE

from autotune.compiler import Program
from autotune.errors import AutotuneError, ConfigError, RunnerError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.problem import Problem
from autotune.records import Record, Store, TuningRecord
from autotune.runners.base import Failure, Measurement, Stage
from autotune.runners.recording import Origin
from autotune.tuning import device_pool
from autotune.tuning import loop as loop
from autotune.tuning.evaluate import Compile, Trial
from autotune.tuning.events import Observer, Progress
from autotune.tuning.gemm import GemmTunable
from autotune.tuning.guesses import GUESSES
from autotune.tuning.leaderboard import LEADERS
from autotune.tuning.loop import Options, tune

SPACE = 58  # TILE_WIDTH 4 to 32, each specialised and not


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def go(
    runner: FakeRunner,
    store: Store,
    options: Options = Options(sampler="random"),  # noqa: B008
    *,
    problem: Problem = SQUARE,
    compile: Compile = compiled,
    origin: Origin = ORIGIN,
    observer: Observer | None = None,
    family: str = "tiled",
) -> Record:
    return tune(
        GemmTunable(problem, family),
        runner,
        store,
        options,
        compile=compile,
        origin=origin,
        observer=observer,
    )


def after(count: int, error: type[BaseException]) -> FakeRunner:
    """A runner that raises instead of the measurement after `count`."""
    left = iter(range(count))

    def outcome(config: Config) -> Measurement:
        if next(left, None) is None:
            raise error
        return by_width(config)

    return FakeRunner(outcome)


def test_the_fastest_is_found_and_recorded(store: Store) -> None:
    assert go(FakeRunner(), store).best.config == tiled(23, specialized=0)
    saved = store.load(H100, SQUARE)
    assert saved is not None
    assert saved.best.config == tiled(23, specialized=0)


def test_without_limits_everything_is_tried_once(store: Store) -> None:
    runner = FakeRunner()
    go(runner, store)
    assert (len(runner.measured), len(set(runner.measured))) == (SPACE, SPACE)


def test_the_record_says_where_it_is_from(store: Store) -> None:
    record = go(FakeRunner(), store, Options(trials=20, seed=5))
    came = record.provenance
    assert (came.driver, came.compiler, came.source) == ("13.0", "NVRTC 13.5", "5e1f")
    assert (came.seed, came.trials, record.evidence) == (5, 20, "measured")
    assert record.baseline == Measurement(90.0)


def test_trials_are_limited(store: Store) -> None:
    runner = FakeRunner()
    go(runner, store, Options(trials=17))
    assert len(runner.measured) == 17


def test_a_budget_that_is_over_at_once_still_tries_the_first_guess(store: Store) -> None:
    assert go(FakeRunner(), store, Options(budget_s=1e-9)).provenance.trials == 1


def test_a_budget_that_is_over_at_once_gives_up_after_the_first_guesses(store: Store) -> None:
    runner = FakeRunner(lambda _: Failure("launch", "no"))
    with pytest.raises(AutotuneError, match=f"launch {GUESSES}"):
        go(runner, store, Options(budget_s=1e-9))


def test_the_budget_counts_from_the_call(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def outcome(config: Config) -> Measurement:
        now[0] += 1.0
        return by_width(config)

    monkeypatch.setattr(loop, "monotonic", lambda: now[0])
    monkeypatch.setattr(device_pool, "monotonic", lambda: now[0])
    runner = FakeRunner(outcome, again=by_width)
    record = go(runner, store, Options(budget_s=10))
    # 5 % are kept for timing the leaders, so the tenth ends the search at 10 s.
    assert (len(runner.measured), record.provenance.seconds) == (10, 10.0)


def test_a_slow_candidate_can_be_stopped_early(store: Store) -> None:
    runner = FakeRunner()
    go(runner, store, Options(trials=30))
    times = [by_width(config).time_us for config in runner.measured]
    assert runner.bests == [None, *(min(times[:count]) for count in range(1, 30))]


def test_the_leaders_are_timed_again_and_only_that_counts(store: Store) -> None:
    noise = random.Random(1)

    def noisy(config: Config) -> Measurement:
        return replace(by_width(config), time_us=by_width(config).time_us * noise.uniform(0.9, 1.1))

    runner = FakeRunner(noisy, again=by_width)
    record = go(runner, store)
    assert len(runner.rematched) == LEADERS
    assert all(entry.measurement == by_width(entry.config) for entry in record.entries)


def test_a_leader_that_fails_when_timed_again_is_not_recorded(store: Store) -> None:
    flaky = tiled(23, specialized=0)

    def again(config: Config) -> Measurement | Failure:
        return crash(config) if config == flaky else by_width(config)

    record = go(FakeRunner(again=again), store)
    assert record.best.config == tiled(23, specialized=1)


def test_an_interrupt_records_what_was_measured(store: Store) -> None:
    runner = after(9, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        go(runner, store)
    saved = store.load(H100, SQUARE)
    assert saved is not None
    assert {entry.config for entry in saved.entries} == set(runner.measured[:9])


def test_running_again_goes_on_where_it_was_interrupted(store: Store) -> None:
    first, second = after(30, KeyboardInterrupt), FakeRunner()
    with pytest.raises(KeyboardInterrupt):
        go(first, store)
    record = go(second, store)
    assert not set(first.measured[:30]) & set(second.measured)
    assert (len(second.measured), record.provenance.trials) == (SPACE - 30, SPACE)


def test_the_trials_of_earlier_runs_count(store: Store) -> None:
    second = FakeRunner()
    go(FakeRunner(), store, Options(trials=20))
    go(second, store, Options(trials=25))
    assert len(second.measured) == 5


@pytest.mark.parametrize(
    "changed", [{"source": "c0de"}, {"compiler": "NVRTC 14.0"}, {"driver": "14.0"}]
)
def test_other_sources_or_tools_start_anew(store: Store, changed: dict[str, str]) -> None:
    second = FakeRunner()
    go(FakeRunner(), store)
    go(second, store, origin=replace(ORIGIN, **changed))
    assert len(second.measured) == SPACE


def test_a_dead_runner_loses_nothing_measured(store: Store) -> None:
    with pytest.raises(RunnerError):
        go(after(5, RunnerError), store)
    saved = store.load(H100, SQUARE)
    assert saved is not None
    assert len(saved.entries) == 5


def test_if_all_fail_the_reasons_are_counted(store: Store) -> None:
    def outcome(config: Config) -> Failure:
        narrow = config.integer("tile_width") < 10
        return Failure("verify" if narrow else "launch", "error 3.0 is over 1e-3")

    with pytest.raises(AutotuneError, match=r"launch 46, verify 12; such as tiled:.*over 1e-3"):
        go(FakeRunner(outcome), store)


def test_no_time_to_try_anything_is_said(store: Store) -> None:
    with pytest.raises(AutotuneError, match="none was tried; allow more trials or time"):
        go(FakeRunner(), store, Options(trials=0))


def test_a_failure_costs_its_candidate_alone(store: Store) -> None:
    def outcome(config: Config) -> Measurement | Failure:
        return crash(config) if config.integer("tile_width") > 20 else by_width(config)

    assert go(FakeRunner(outcome), store).best.config == tiled(20, specialized=0)


def test_what_does_not_compile_is_a_failed_trial(store: Store) -> None:
    def spilling(template: Template, arch: str) -> Program:
        return program(template, arch, spills=48 * ("23" in template.expression))

    runner = FakeRunner()
    record = go(runner, store, compile=spilling)
    assert tiled(23, specialized=1) not in runner.measured
    assert record.provenance.trials == SPACE


@pytest.mark.parametrize("stage", ["crash", "timeout"])
def test_what_crashes_or_hangs_is_never_tried_again_on_any_problem(
    store: Store, stage: Stage
) -> None:
    def outcome(config: Config) -> Measurement | Failure:
        hangs = config.integer("tile_width") == 23
        return replace(crash(config), stage=stage) if hangs else by_width(config)

    seen = Seen()
    go(FakeRunner(outcome), store)
    go(other := FakeRunner(), store, problem=Problem(512, 512, 512), observer=seen)
    assert not {tiled(23, 0), tiled(23, 1)} & set(other.measured)
    assert seen.rejected["quarantined"] == 2


def test_quarantine_happens_before_anything_else_can(store: Store) -> None:
    class Stop(Seen):
        def trial(self, trial: Trial, progress: Progress) -> None:
            del progress
            assert any(str(trial.config) in key for key in store.quarantined(H100))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        go(FakeRunner(crash), store, observer=Stop())


def test_changed_sources_lift_the_quarantine(store: Store) -> None:
    with pytest.raises(AutotuneError):
        go(FakeRunner(crash), store)
    assert go(FakeRunner(), store, origin=replace(ORIGIN, source="c0de")).entries


def test_a_replayed_crash_says_nothing_of_the_device(store: Store) -> None:
    with pytest.raises(AutotuneError):
        go(FakeRunner(crash, evidence="replayed"), store)
    assert store.quarantined(H100) == {}


def test_nothing_to_try_is_said_with_the_reasons(store: Store) -> None:
    with pytest.raises(
        AutotuneError, match=r"no tiled configuration can run .*it knows none of that kind"
    ):
        go(FakeRunner(known=()), store)


def test_an_unknown_family_is_refused(store: Store) -> None:
    with pytest.raises(ConfigError, match="magic"):
        go(FakeRunner(), store, family="magic")


def test_what_won_on_a_similar_problem_is_among_the_first(store: Store) -> None:
    def wide(config: Config) -> Measurement:
        return Measurement(
            1000.0 - config.integer("tile_width") * (-1) ** config.integer("specialized")
        )

    winner = go(FakeRunner(wide), store, problem=Problem(4096, 4096, 8192)).best.config
    go(runner := FakeRunner(), store, Options(trials=GUESSES + 1))
    assert winner in runner.measured


def test_a_runner_that_knows_its_configurations_needs_no_compiler(store: Store) -> None:
    known = [tiled(width) for width in (8, 16, 32)]
    runner = FakeRunner(known=known, evidence="replayed")
    go(runner, store, compile=uncompiled)
    assert sorted(runner.measured) == known


def test_the_same_seed_tries_the_same(tmp_path: Path) -> None:
    first, second = (FakeRunner(evidence="predicted") for _ in range(2))
    go(first, Store(tmp_path / "a"), Options(trials=40, seed=3, jobs=1))
    go(second, Store(tmp_path / "b"), Options(trials=40, seed=3, jobs=4))
    assert first.measured == second.measured


NAIVE = Config.parse("naive:mapping=coalesced,block=32")


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `auto` stand for two families that are small."""
    monkeypatch.setattr(registry, "searched", lambda: ("tiled", "naive"))


def naive_wins(config: Config) -> Measurement:
    return Measurement(50.0) if config == NAIVE else Measurement(200.0)


@pytest.mark.usefixtures("two")
def test_auto_finds_the_best_of_all_families(store: Store) -> None:
    runner = FakeRunner(naive_wins)
    assert go(runner, store, family="auto").best.config == NAIVE
    assert {config.family for config in runner.measured} == {"tiled", "naive"}


@pytest.mark.usefixtures("two")
def test_every_family_is_among_the_first_guesses(store: Store) -> None:
    runner = FakeRunner(naive_wins)
    go(runner, store, Options(trials=GUESSES), family="auto")
    often = Counter(config.family for config in runner.measured)
    assert min(often["tiled"], often["naive"]) >= 1


@pytest.mark.usefixtures("two")
def test_what_was_tried_of_one_family_is_no_part_of_a_search_over_several(store: Store) -> None:
    runner = FakeRunner(naive_wins)
    go(FakeRunner(naive_wins), store)
    go(runner, store, family="auto")
    assert {config.family for config in runner.measured} == {"tiled", "naive"}
    assert len([config for config in runner.measured if config.family == "tiled"]) == SPACE


@pytest.mark.usefixtures("two")
def test_a_search_over_several_goes_on_where_it_stopped(store: Store) -> None:
    second = FakeRunner(naive_wins)
    go(FakeRunner(naive_wins), store, family="auto")
    go(second, store, family="auto")
    assert second.measured == []


@pytest.mark.parametrize("factor", [1.05, 1.2])
@pytest.mark.usefixtures("two")
def test_the_best_of_another_family_is_timed_again_if_it_is_near(
    store: Store, factor: float
) -> None:
    def outcome(config: Config) -> Measurement:
        return Measurement(100.0 * factor if config.family == "naive" else 100.0)

    runner = FakeRunner(outcome)
    go(runner, store, family="auto")
    assert len(runner.rematched) == LEADERS
    assert (runner.rematched[-1].family == "naive") == (factor < 1.1)


def test_a_slow_compilation_does_not_keep_the_device_waiting(store: Store) -> None:
    released, others = threading.Event(), iter(range(SPACE))

    def stalled(template: Template, arch: str) -> Program:
        if next(others) == 0:
            assert released.wait(10)
        return program(template, arch)

    def outcome(config: Config) -> Measurement:
        if len(runner.measured) == 20:
            released.set()
        return by_width(config)

    runner = FakeRunner(outcome)
    assert (
        go(runner, store, Options(sampler="random", jobs=2), compile=stalled).provenance.trials
        == SPACE
    )


def test_progress_says_how_long_the_device_was_busy(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]

    def outcome(config: Config) -> Measurement:
        now[0] += 2.0
        return by_width(config)

    class Slow(Seen):
        def trial(self, trial: Trial, progress: Progress) -> None:
            super().trial(trial, progress)
            now[0] += 1.0

    monkeypatch.setattr(loop, "monotonic", lambda: now[0])
    monkeypatch.setattr(device_pool, "monotonic", lambda: now[0])
    seen = Slow()
    go(FakeRunner(outcome), store, Options(trials=3), observer=seen)
    assert seen.last is not None
    assert (seen.last.busy, seen.last.seconds) == (0.75, 8.0)


class Seen:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.rejected: Mapping[str, int] = {}
        self.last: Progress | None = None

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None:
        del progress
        self.told.append(f"started {feasible}")
        self.rejected = rejected

    def baseline(self, measurement: Measurement | None) -> None:
        self.told.append(f"baseline {measurement and measurement.time_us}")

    def trial(self, trial: Trial, progress: Progress) -> None:
        del trial
        self.told.append("trial")
        self.last = progress

    def enough(self, outlook: float) -> None:
        self.told.append(f"enough {outlook:.3f}")

    def rematch(self, leaders: Sequence[Trial]) -> None:
        self.told.append(f"rematch {len(leaders)}")

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        del progress
        self.told.append(f"finished {len(record.entries)}")


def test_an_observer_is_told_all_in_order(store: Store) -> None:
    seen = Seen()
    go(FakeRunner(), store, Options(trials=3), observer=seen)
    assert seen.told == ["started 58", "baseline 90.0", *["trial"] * 3, "rematch 3", "finished 3"]


def test_progress_counts_failures_and_names_the_best(store: Store) -> None:
    def outcome(config: Config) -> Measurement | Failure:
        return by_width(config) if config.integer("specialized") else Failure("verify", "wrong")

    seen = Seen()
    go(FakeRunner(outcome), store, observer=seen)
    assert seen.last is not None
    assert seen.last.best is not None
    assert (seen.last.trials, seen.last.failures) == (SPACE, SPACE // 2)
    assert seen.last.best.config == tiled(23)


def test_a_search_that_expects_little_of_the_rest_ends_and_says_so(store: Store) -> None:
    runner, seen = FakeRunner(), Seen()
    go(runner, store, Options(), observer=seen)
    assert len(runner.measured) < SPACE
    assert [line.partition(" ")[0] for line in seen.told].count("enough") == 1


def test_a_number_of_trials_is_tried_whatever_is_expected_of_them(store: Store) -> None:
    runner = FakeRunner()
    go(runner, store, Options(trials=SPACE))
    assert len(runner.measured) == SPACE


def cold_is_otherwise(config: Config) -> Measurement:
    return replace(by_width(config), cold_us=200.0 + config.integer("tile_width"))


def test_the_best_with_a_flushed_l2_is_recorded_too(store: Store) -> None:
    record = go(FakeRunner(cold_is_otherwise), store)
    assert record.best.config == tiled(23, specialized=0)
    assert record.coldest is not None
    assert record.coldest.config.integer("tile_width") == 4


def test_what_is_to_become_small_may_be_the_cold_time(store: Store) -> None:
    runner = FakeRunner(cold_is_otherwise)
    go(runner, store, Options(trials=40, objective="cold"))
    assert {config.integer("tile_width") for config in runner.rematched} >= {4, 5, 6}


def test_cold_times_are_not_predicted(store: Store) -> None:
    with pytest.raises(AutotuneError, match="cold times are not predicted; give a GPU"):
        go(FakeRunner(evidence="predicted"), store, Options(objective="cold"))


# What a process does that is killed: each configuration is noted before it is measured.
PROCESS = """
import sys, time
from pathlib import Path
from support.fake_runner import ORIGIN, FakeRunner, by_width, compiled
from support.sample_records import SQUARE
from autotune.records import Store
from autotune.tuning.gemm import GemmTunable
from autotune.tuning.loop import Options, tune

def outcome(config):
    with open(sys.argv[2], "a") as file:
        file.write(f"{config}\\n")
    time.sleep(0.02)
    return by_width(config)

runner, store = FakeRunner(outcome, again=by_width), Store(Path(sys.argv[1]))
tiles = GemmTunable(SQUARE, "tiled")
tune(tiles, runner, store, Options(sampler="random"), compile=compiled, origin=ORIGIN)
"""


def started(tmp_path: Path) -> subprocess.Popen[str]:
    arguments = [sys.executable, "-c", PROCESS, str(tmp_path / "cache"), str(tmp_path / "log")]
    paths = {"PYTHONPATH": import_path(Path(__file__).parent), "PATH": "/usr/bin:/bin"}
    return subprocess.Popen(arguments, env=paths, stderr=subprocess.PIPE, text=True)


def measured(tmp_path: Path) -> list[str]:
    log = tmp_path / "log"
    return log.read_text().splitlines() if log.exists() else []


def stop(tmp_path: Path, count: int, how: signal.Signals) -> subprocess.Popen[str]:
    """Runs until `count` measurements have begun, by this or earlier processes, then signals."""
    process = started(tmp_path)
    deadline = time.monotonic() + 60
    while len(measured(tmp_path)) < count and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(random.uniform(0, 0.025))
    process.send_signal(how)
    process.communicate(timeout=60)
    return process


def test_a_kill_at_any_moment_costs_the_trial_at_hand_alone(tmp_path: Path) -> None:
    kills = [stop(tmp_path, count, signal.SIGKILL) for count in (3, 17, 30, 44)]
    assert started(tmp_path).wait(timeout=60) == 0
    often = Counter(measured(tmp_path))
    assert len(often) == SPACE
    assert often.total() <= SPACE + len(kills)


def test_ctrl_c_leaves_a_record(tmp_path: Path) -> None:
    process = stop(tmp_path, 12, signal.SIGINT)
    assert process.returncode == -signal.SIGINT
    saved = Store(tmp_path / "cache").load(H100, SQUARE)
    assert saved is not None
    assert saved.provenance.trials >= 11
