"""The tuning loop: limits, continuation, rematch, quarantine, events, interrupts."""

from __future__ import annotations

import math
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from threading import Event
from time import monotonic

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
from support.sample_records import record as sample_record
from support.slow_tuning import tune_slowly
from support.waiting import HANG_S, happens

from autotune.cuda.program import CompileFailure, Program
from autotune.errors import AutotuneError, BudgetError, ConfigError, RunnerError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.families.source_text import joined
from autotune.measure.measurement import Failure, Measurement, Stage
from autotune.measure.objective import COLD, TIMES, BestTimes, Objective
from autotune.measure.recording import Origin
from autotune.problem import Problem
from autotune.records import FamilyRecord, Record, Store, TuningRecord
from autotune.tuning import loop, pipeline
from autotune.tuning.loop import Search, tune
from autotune.tuning.pipeline import Compile
from autotune.tuning.trial_log import TrialLog, led_to, study_of
from autotune.tuning.trials import LEADERS, Observer, Progress, Trial
from autotune.tuning.tunable import GUESSES, GemmTunable

SPACE = 58  # TILE_WIDTH 4 to 32, each specialised and not


def tune_with(
    runner: FakeRunner,
    store: Store,
    options: Search = Search(sampler="random"),  # noqa: B008
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


def failing_after(count: int, error: type[BaseException]) -> FakeRunner:
    """A runner that raises after `count` measurements."""
    left = iter(range(count))

    def outcome(config: Config) -> Measurement:
        if next(left, None) is None:
            raise error
        return by_width(config)

    return FakeRunner(outcome)


def test_fastest_is_found_and_recorded(store: Store) -> None:
    assert tune_with(FakeRunner(), store).best.config == tiled(23, specialized=0)
    saved = store.family(H100, SQUARE, "tiled")
    assert saved is not None
    assert saved.best.config == tiled(23, specialized=0)


def test_without_limits_every_configuration_is_tried_once(store: Store) -> None:
    runner = FakeRunner()
    tune_with(runner, store)
    assert (len(runner.measured), len(set(runner.measured))) == (SPACE, SPACE)


def test_record_has_its_provenance(store: Store) -> None:
    record = tune_with(FakeRunner(), store, Search(trials=20, seed=5))
    run = record.provenance
    assert (run.driver, run.compiler, run.source) == ("13.0", "NVRTC 13.5", "5e1f")
    assert (run.seed, run.trials, record.evidence) == (5, 20, "measured")
    assert record.baseline == Measurement(90.0)


def test_wrong_vendor_library_is_recorded_as_refused(store: Store) -> None:
    runner = FakeRunner()
    runner.baseline_fault = "wrong result for small integers"
    record = tune_with(runner, store, Search(trials=20))
    assert (record.baseline, record.vendor_wins) == (None, False)
    assert record.provenance.baseline_fault == "wrong result for small integers"
    assert store.family(H100, SQUARE, "tiled") == record


def test_trials_are_limited(store: Store) -> None:
    runner = FakeRunner()
    tune_with(runner, store, Search(trials=17))
    assert len(runner.measured) == 17


def test_budget_too_small_for_a_trial_is_an_error(store: Store) -> None:
    runner = FakeRunner()
    with pytest.raises(BudgetError, match=r"before a configuration of .* was timed; give 20 s"):
        tune_with(runner, store, Search(seconds=1e-9))
    assert runner.measured == []


def test_budget_does_not_wait_for_the_compiler(store: Store) -> None:
    done = Event()

    def slow(template: Template, arch: str) -> Program | CompileFailure:
        done.wait(30)
        return compiled(template, arch)

    began = monotonic()
    try:
        with pytest.raises(BudgetError, match="give 20 s or more"):
            tune_with(FakeRunner(), store, Search(seconds=1.0), compile=slow)
        assert monotonic() - began < 10
    finally:
        done.set()


def test_deadline_of_the_call_ends_a_later_run(store: Store) -> None:
    over = Search(seconds=60.0, deadline=monotonic())
    with pytest.raises(BudgetError, match="give 120 s or more"):
        tune_with(FakeRunner(), store, over)


def test_budget_counts_from_the_call(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def outcome(config: Config) -> Measurement:
        now[0] += 1.0
        return by_width(config)

    monkeypatch.setattr(loop, "monotonic", lambda: now[0])
    monkeypatch.setattr(pipeline, "monotonic", lambda: now[0])
    runner = FakeRunner(outcome, again=by_width)
    record = tune_with(runner, store, Search(seconds=10))
    # 5 % are kept for the rematch, so the tenth trial ends the search at 10 s.
    assert (len(runner.measured), record.provenance.seconds) == (10, 10.0)


def test_runner_is_told_the_best_time_so_far(store: Store) -> None:
    runner = FakeRunner()
    tune_with(runner, store, Search(trials=30))
    times = [by_width(config).time_us for config in runner.measured]
    assert runner.bests == [BestTimes(), *(BestTimes(min(times[:count])) for count in range(1, 30))]


def test_only_the_rematch_of_the_leaders_counts(store: Store) -> None:
    noise = random.Random(1)

    def noisy(config: Config) -> Measurement:
        return replace(by_width(config), time_us=by_width(config).time_us * noise.uniform(0.9, 1.1))

    runner = FakeRunner(noisy, again=by_width)
    record = tune_with(runner, store)
    assert len(runner.rematched) == LEADERS
    assert all(entry.measurement == by_width(entry.config) for entry in record.entries)


def test_leader_failing_in_the_rematch_is_not_recorded(store: Store) -> None:
    flaky = tiled(23, specialized=0)

    def again(config: Config) -> Measurement | Failure:
        return crash(config) if config == flaky else by_width(config)

    record = tune_with(FakeRunner(again=again), store)
    assert record.best.config == tiled(23, specialized=1)


def failing_winner(config: Config) -> Measurement | Failure:
    """The examination of a kernel that is right as long as nobody looks twice."""
    return Failure("verify", "a race") if config == tiled(23, specialized=0) else by_width(config)


def test_winner_that_fails_its_examination_is_not_recorded(store: Store) -> None:
    runner = FakeRunner(examination=failing_winner)
    record = tune_with(runner, store)
    assert runner.examined == [tiled(23, specialized=0), tiled(23, specialized=1)]
    assert record.best.config == tiled(23, specialized=1)
    assert tiled(23, specialized=0) not in {entry.config for entry in record.entries}


def test_failed_winner_is_not_measured_again(store: Store) -> None:
    tune_with(FakeRunner(examination=failing_winner), store)
    second = FakeRunner()
    tune_with(second, store, Search(trials=400))
    assert tiled(23, specialized=0) not in {*second.measured, *second.rematched}


def test_failed_winner_leaves_an_earlier_record(store: Store) -> None:
    tune_with(FakeRunner(), store)
    shutil.rmtree(store.root / "studies")
    record = tune_with(FakeRunner(examination=failing_winner), store)
    assert tiled(23, specialized=0) not in {entry.config for entry in record.entries}


def test_error_names_why_every_winner_failed(store: Store) -> None:
    runner = FakeRunner(examination=crash)
    with pytest.raises(AutotuneError, match=r"crash 10; .*illegal access"):
        tune_with(runner, store, Search(trials=12))


def test_interrupt_records_what_was_measured(store: Store) -> None:
    runner = failing_after(9, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        tune_with(runner, store)
    saved = store.family(H100, SQUARE, "tiled")
    assert saved is not None
    assert {entry.config for entry in saved.entries} == set(runner.measured[:9])
    assert saved.provenance.interrupted


def test_search_that_ends_is_not_marked(store: Store) -> None:
    with pytest.raises(KeyboardInterrupt):
        tune_with(failing_after(9, KeyboardInterrupt), store)
    assert not tune_with(FakeRunner(), store).provenance.interrupted


def test_interrupt_leaves_a_finished_search_final(store: Store) -> None:
    tune_with(FakeRunner(), store, Search(trials=12))
    with pytest.raises(KeyboardInterrupt):
        tune_with(failing_after(3, KeyboardInterrupt), store)
    saved = store.family(H100, SQUARE, "tiled")
    assert saved is not None
    assert not saved.provenance.interrupted


def test_interrupt_while_saving_loses_no_record(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    save = Store.save

    def interrupted(*_: object) -> None:
        monkeypatch.setattr(Store, "save", save)
        raise KeyboardInterrupt

    monkeypatch.setattr(Store, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tune_with(FakeRunner(), store, Search(trials=12))
    saved = store.family(H100, SQUARE, "tiled")
    assert saved is not None
    assert not saved.provenance.interrupted


def test_interrupt_after_saving_saves_nothing_again(store: Store) -> None:
    class Interrupted(Observer):
        finishes = 0

        def finished(self, *_: object) -> None:
            self.finishes += 1
            raise KeyboardInterrupt

    observer = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        tune_with(FakeRunner(), store, Search(trials=12), observer=observer)
    assert observer.finishes == 1


def test_family_asked_for_alone_stands_apart(store: Store) -> None:
    overall = store.save(sample_record(problem=SQUARE))
    alone = tune_with(FakeRunner(), store)
    assert isinstance(alone, FamilyRecord)
    assert store.load(H100, SQUARE) == overall
    assert store.family(H100, SQUARE, "tiled") == alone
    assert store.records(H100) == [overall]
    assert store.family_records(H100, "tiled") == [alone]
    assert store.family_records(H100, "naive") == []


def test_second_run_continues_an_interrupted_one(store: Store) -> None:
    first, second = failing_after(30, KeyboardInterrupt), FakeRunner()
    with pytest.raises(KeyboardInterrupt):
        tune_with(first, store)
    record = tune_with(second, store)
    assert not set(first.measured[:30]) & set(second.measured)
    assert (len(second.measured), record.provenance.trials) == (SPACE - 30, SPACE)


def test_trials_of_earlier_runs_count(store: Store) -> None:
    second = FakeRunner()
    tune_with(FakeRunner(), store, Search(trials=20))
    tune_with(second, store, Search(trials=25))
    assert len(second.measured) == 5


@pytest.mark.parametrize(
    "changed", [{"source": "c0de"}, {"compiler": "NVRTC 14.0"}, {"driver": "14.0"}]
)
def test_other_sources_or_tools_start_a_new_study(store: Store, changed: dict[str, str]) -> None:
    second = FakeRunner()
    tune_with(FakeRunner(), store)
    tune_with(second, store, origin=replace(ORIGIN, **changed))
    assert len(second.measured) == SPACE


BY_FAMILY = replace(ORIGIN, source="mma:31da naive:7ae0 tiled:5e1f")


def test_search_of_a_family_continues_with_other_kernels_changed(store: Store) -> None:
    first, second, third = FakeRunner(), FakeRunner(), FakeRunner()
    tune_with(first, store, origin=BY_FAMILY)
    record = tune_with(second, store, origin=replace(BY_FAMILY, source="mma:c0de tiled:5e1f"))
    assert (len(first.measured), len(second.measured)) == (SPACE, 0)
    assert record.provenance.source == "5e1f"
    tune_with(third, store, origin=replace(BY_FAMILY, source="mma:31da tiled:c0de"))
    assert len(third.measured) == SPACE


@pytest.mark.usefixtures("two_families")
def test_record_names_the_sources_of_its_families(store: Store) -> None:
    record = tune_with(FakeRunner(naive_wins), store, family="auto", origin=BY_FAMILY)
    assert {entry.config.family for entry in record.entries} == {"naive", "tiled"}
    assert record.provenance.source == "naive:7ae0 tiled:5e1f"


def test_study_of_every_family_fits_a_database() -> None:
    source = joined({name: f"{number:064x}" for number, name in enumerate(registry.FAMILIES)})
    for kinds in ("+".join(registry.FAMILIES), "quick-0123456789ab"):
        assert len(study_of(kinds, replace(ORIGIN, source=source))) < 256


@pytest.mark.parametrize(
    ("study", "record", "led"),
    [
        ("mma:31da tiled:5e1f", "5e1f", True),
        ("mma:31da tiled:c0de", "5e1f", False),
        ("5e1f", "5e1f", True),
        ("mma:31da naive:7ae0", "5e1f", False),
        ("mma:31da tiled:0123456789ab", "0123456789abcdef", True),
    ],
)
def test_study_leads_to_records_of_its_sources(study: str, record: str, led: bool) -> None:
    made = sample_record(source=record)
    assert led_to(f"tiled+mma@{study}@NVRTC 13.0@13.0", made) == led
    assert not led_to(f"tiled+mma@{study}@NVRTC 13.0@12.8", made)


def test_runner_failure_loses_nothing_measured(store: Store) -> None:
    with pytest.raises(RunnerError):
        tune_with(failing_after(5, RunnerError), store)
    saved = store.family(H100, SQUARE, "tiled")
    assert saved is not None
    assert len(saved.entries) == 5


def test_error_counts_failures_by_stage(store: Store) -> None:
    def outcome(config: Config) -> Failure:
        narrow = config.integer("tile_width") < 10
        return Failure("verify" if narrow else "launch", "error 3.0 is over 1e-3")

    with pytest.raises(AutotuneError, match=r"launch 46, verify 12; such as tiled:.*over 1e-3"):
        tune_with(FakeRunner(outcome), store)


def test_failure_affects_only_its_candidate(store: Store) -> None:
    def outcome(config: Config) -> Measurement | Failure:
        return crash(config) if config.integer("tile_width") > 20 else by_width(config)

    assert tune_with(FakeRunner(outcome), store).best.config == tiled(20, specialized=0)


def test_compile_failure_is_a_failed_trial(store: Store) -> None:
    def spilling(template: Template, arch: str) -> Program:
        return program(template, arch, spills=48 * ("23" in template.label))

    runner = FakeRunner()
    record = tune_with(runner, store, compile=spilling)
    assert tiled(23, specialized=1) not in runner.measured
    assert record.provenance.trials == SPACE


@pytest.mark.parametrize("stage", ["crash", "timeout"])
def test_crash_or_hang_is_quarantined_for_every_problem(store: Store, stage: Stage) -> None:
    def outcome(config: Config) -> Measurement | Failure:
        hangs = config.integer("tile_width") == 23
        return replace(crash(config), stage=stage) if hangs else by_width(config)

    observer = RecordingObserver()
    tune_with(FakeRunner(outcome), store)
    tune_with(second := FakeRunner(), store, problem=Problem(512, 512, 512), observer=observer)
    assert not {tiled(23, 0), tiled(23, 1)} & set(second.measured)
    assert observer.rejected["quarantined"] == 2


def test_quarantine_is_written_before_the_trial_event(store: Store) -> None:
    class Stop(RecordingObserver):
        def trial(self, trial: Trial, progress: Progress) -> None:
            del progress
            assert any(str(trial.config) in key for key in store.quarantined(H100))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tune_with(FakeRunner(crash), store, observer=Stop())


def test_changed_sources_lift_the_quarantine(store: Store) -> None:
    with pytest.raises(AutotuneError):
        tune_with(FakeRunner(crash), store)
    assert tune_with(FakeRunner(), store, origin=replace(ORIGIN, source="c0de")).entries


def test_replayed_crash_is_not_quarantined(store: Store) -> None:
    with pytest.raises(AutotuneError):
        tune_with(FakeRunner(crash, evidence="replayed"), store)
    assert store.quarantined(H100) == {}


def test_no_candidates_is_an_error_with_reasons(store: Store) -> None:
    with pytest.raises(
        AutotuneError, match=r"no tiled configuration can run .*it knows no problem of that kind"
    ):
        tune_with(FakeRunner(recorded=()), store)


def test_unknown_family_is_refused(store: Store) -> None:
    with pytest.raises(ConfigError, match="magic"):
        tune_with(FakeRunner(), store, family="magic")


def test_neighbours_winner_is_among_the_first_guesses(store: Store) -> None:
    def wide(config: Config) -> Measurement:
        return Measurement(
            1000.0 - config.integer("tile_width") * (-1) ** config.integer("specialized")
        )

    winner = tune_with(FakeRunner(wide), store, problem=Problem(4096, 4096, 8192)).best.config
    tune_with(runner := FakeRunner(), store, Search(trials=GUESSES + 1))
    assert winner in runner.measured


def test_recorded_configurations_need_no_compiler(store: Store) -> None:
    configs = [tiled(width) for width in (8, 16, 32)]
    runner = FakeRunner(recorded=configs, evidence="replayed")
    tune_with(runner, store, compile=uncompiled)
    assert sorted(runner.measured) == configs


def test_same_seed_tries_the_same_configurations(tmp_path: Path) -> None:
    first, second = (FakeRunner(evidence="predicted") for _ in range(2))
    tune_with(first, Store(tmp_path / "a"), Search(trials=40, seed=3, jobs=1))
    tune_with(second, Store(tmp_path / "b"), Search(trials=40, seed=3, jobs=4))
    assert first.measured == second.measured


NAIVE = Config.parse("naive:mapping=coalesced,block=32")


@pytest.fixture
def two_families(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `auto` stand for two small families."""
    monkeypatch.setattr(registry, "searched", lambda: ("tiled", "naive"))


def naive_wins(config: Config) -> Measurement:
    return Measurement(50.0) if config == NAIVE else Measurement(200.0)


@pytest.mark.usefixtures("two_families")
def test_auto_finds_the_best_of_all_families(store: Store) -> None:
    runner = FakeRunner(naive_wins)
    assert tune_with(runner, store, family="auto").best.config == NAIVE
    assert {config.family for config in runner.measured} == {"tiled", "naive"}


@pytest.mark.usefixtures("two_families")
def test_every_family_is_among_the_first_guesses(store: Store) -> None:
    runner = FakeRunner(naive_wins)
    tune_with(runner, store, Search(trials=GUESSES), family="auto")
    counts = Counter(config.family for config in runner.measured)
    assert min(counts["tiled"], counts["naive"]) >= 1


@pytest.mark.usefixtures("two_families")
def test_search_of_one_family_is_a_study_of_its_own(store: Store) -> None:
    runner = FakeRunner(naive_wins)
    tune_with(FakeRunner(naive_wins), store)
    tune_with(runner, store, family="auto")
    assert {config.family for config in runner.measured} == {"tiled", "naive"}
    assert len([config for config in runner.measured if config.family == "tiled"]) == SPACE


@pytest.mark.usefixtures("two_families")
def test_search_over_several_families_continues(store: Store) -> None:
    second = FakeRunner(naive_wins)
    tune_with(FakeRunner(naive_wins), store, family="auto")
    tune_with(second, store, family="auto")
    assert second.measured == []


@pytest.mark.parametrize("factor", [1.05, 1.2])
@pytest.mark.usefixtures("two_families")
def test_best_of_a_near_family_is_in_the_rematch(store: Store, factor: float) -> None:
    def outcome(config: Config) -> Measurement:
        return Measurement(100.0 * factor if config.family == "naive" else 100.0)

    runner = FakeRunner(outcome)
    tune_with(runner, store, family="auto")
    assert len(runner.rematched) == LEADERS
    assert (runner.rematched[-1].family == "naive") == (factor < 1.1)


def test_slow_compilation_does_not_stall_the_device(store: Store) -> None:
    released, waits = threading.Event(), list[bool]()

    def stalled(template: Template, arch: str) -> Program:
        if template.numbers["TILE_WIDTH"] and not waits:  # the other serves half of the space
            waits.append(False)
            waits[0] = released.wait(HANG_S)
        return program(template, arch)

    def outcome(config: Config) -> Measurement:
        if len(runner.measured) == 20:
            released.set()
        return by_width(config)

    runner = FakeRunner(outcome)
    assert (
        tune_with(
            runner, store, Search(sampler="random", jobs=2), compile=stalled
        ).provenance.trials
        == SPACE
    )
    assert waits == [True]


def test_progress_has_the_devices_busy_share(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def outcome(config: Config) -> Measurement:
        now[0] += 2.0
        return by_width(config)

    class Slow(RecordingObserver):
        def trial(self, trial: Trial, progress: Progress) -> None:
            super().trial(trial, progress)
            now[0] += 1.0

    monkeypatch.setattr(loop, "monotonic", lambda: now[0])
    monkeypatch.setattr(pipeline, "monotonic", lambda: now[0])
    observer = Slow()
    tune_with(FakeRunner(outcome), store, Search(trials=3), observer=observer)
    assert observer.last is not None
    assert (observer.last.busy, observer.last.seconds) == (0.75, 8.0)


class RecordingObserver(Observer):
    """An observer that lists its events."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.rejected: Mapping[str, int] = {}
        self.last: Progress | None = None

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None:
        del progress
        self.events.append(f"started {feasible}")
        self.rejected = rejected

    def baseline(self, measurement: Measurement | None) -> None:
        self.events.append(f"baseline {measurement and measurement.time_us}")

    def trial(self, trial: Trial, progress: Progress) -> None:
        del trial
        self.events.append("trial")
        self.last = progress

    def enough(self, gain: float) -> None:
        self.events.append(f"enough {gain:.3f}")

    def rematch(self, leaders: Sequence[Trial]) -> None:
        self.events.append(f"rematch {len(leaders)}")

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        del progress
        self.events.append(f"finished {len(record.entries)}")


def test_run_that_cannot_start_closes_log_and_compiler(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[type] = []
    for kind in (TrialLog, pipeline.Compiler):
        monkeypatch.setattr(kind, "close", lambda self: closed.append(type(self)))

    class Failing(RecordingObserver):
        def started(self, *_: object) -> None:
            raise KeyError

    with pytest.raises(KeyError):
        tune_with(FakeRunner(), store, observer=Failing())
    assert closed == [TrialLog, pipeline.Compiler]


def test_observer_gets_all_events_in_order(store: Store) -> None:
    observer = RecordingObserver()
    tune_with(FakeRunner(), store, Search(trials=3), observer=observer)
    assert observer.events == [
        "started 58",
        "baseline 90.0",
        *["trial"] * 3,
        "rematch 3",
        "finished 3",
    ]


def test_progress_counts_failures_and_names_the_best(store: Store) -> None:
    def outcome(config: Config) -> Measurement | Failure:
        return by_width(config) if config.integer("specialized") else Failure("verify", "wrong")

    observer = RecordingObserver()
    tune_with(FakeRunner(outcome), store, observer=observer)
    assert observer.last is not None
    assert observer.last.best is not None
    assert (observer.last.trials, observer.last.failures) == (SPACE, SPACE // 2)
    assert observer.last.best.config == tiled(23)


def test_search_ends_when_little_more_is_expected(store: Store) -> None:
    runner, observer = FakeRunner(), RecordingObserver()
    tune_with(runner, store, Search(), observer=observer)
    assert len(runner.measured) < SPACE
    assert [line.partition(" ")[0] for line in observer.events].count("enough") == 1


def test_trial_limit_overrides_expectations(store: Store) -> None:
    runner = FakeRunner()
    tune_with(runner, store, Search(trials=SPACE))
    assert len(runner.measured) == SPACE


def fastest_cold_at_width_4(config: Config) -> Measurement:
    return replace(by_width(config), cold_us=200.0 + config.integer("tile_width"))


def test_best_cold_configuration_is_recorded_too(store: Store) -> None:
    record = tune_with(FakeRunner(fastest_cold_at_width_4), store)
    assert record.best.config == tiled(23, specialized=0)
    assert record.best_cold is not None
    assert record.best_cold.config.integer("tile_width") == 4


def test_runner_is_told_the_best_cold_time_too(store: Store) -> None:
    runner = FakeRunner(fastest_cold_at_width_4)
    tune_with(runner, store, Search(trials=30))
    times = [fastest_cold_at_width_4(config).cold_us or 0.0 for config in runner.measured]
    told = [best.cold_us for best in runner.bests if best is not None]
    assert told == [math.inf, *(min(times[:count]) for count in range(1, 30))]


@pytest.mark.parametrize("objective", TIMES)
def test_hot_and_cold_winner_are_examined(store: Store, objective: Objective) -> None:
    runner = FakeRunner(fastest_cold_at_width_4)
    record = tune_with(runner, store, Search(objective=objective))
    assert record.best_cold is not None
    assert runner.examined == [record.best.config, record.best_cold.config]


def test_winner_of_both_times_is_examined_once(store: Store) -> None:
    runner = FakeRunner(lambda config: replace(by_width(config), cold_us=by_width(config).time_us))
    record = tune_with(runner, store)
    assert record.best_cold == record.best
    assert runner.examined == [record.best.config]


def test_examined_winner_is_the_leanest_of_the_tied(store: Store) -> None:
    runner = FakeRunner(lambda _: Measurement(100.0, 1.0))
    record = tune_with(runner, store)
    assert runner.examined == [record.best.config]


def test_cold_winner_that_fails_its_examination_is_not_recorded(store: Store) -> None:
    def examination(config: Config) -> Measurement | Failure:
        width = config.integer("tile_width")
        return Failure("verify", "a race") if width == 4 else by_width(config)

    runner = FakeRunner(fastest_cold_at_width_4, examination=examination)
    record = tune_with(runner, store)
    assert record.best_cold is not None
    assert runner.examined[-1] == record.best_cold.config
    assert 4 not in {entry.config.integer("tile_width") for entry in record.entries}


@pytest.mark.parametrize(
    ("options", "leaders"),
    [
        # A model-based search need not try what it predicts to be second.
        (Search(trials=40, objective=COLD), {4}),
        (Search(sampler="exhaustive", objective=COLD), {4, 5, 6, 7}),
    ],
    ids=["gp", "exhaustive"],
)
def test_objective_cold_minimises_cold_time(
    store: Store, options: Search, leaders: set[int]
) -> None:
    runner = FakeRunner(fastest_cold_at_width_4)
    tune_with(runner, store, options)
    assert {config.integer("tile_width") for config in runner.rematched} >= leaders


def test_cold_times_are_not_predicted(store: Store) -> None:
    with pytest.raises(AutotuneError, match="cold times are not predicted; give a GPU"):
        tune_with(FakeRunner(evidence="predicted"), store, Search(objective=COLD))


# The program of a process that is killed: it logs each configuration before measuring it.
# One process imports what the searches need, and forks them.
FORKS = get_context("forkserver")
FORKS.set_forkserver_preload(["support.slow_tuning"])


def logged(tmp_path: Path) -> list[str]:
    log = tmp_path / "log"
    return log.read_text().splitlines() if log.exists() else []


def measured(tmp_path: Path, count: int, alive: Callable[[], bool]) -> None:
    """Waits until `count` measurements are logged, by this or earlier processes."""
    assert happens(lambda: len(logged(tmp_path)) >= count or not alive())
    time.sleep(random.uniform(0, 0.025))


def tuning(tmp_path: Path) -> BaseProcess:
    process = FORKS.Process(target=tune_slowly, args=(tmp_path / "cache", tmp_path / "log"))
    process.start()
    return process


def test_kill_at_any_moment_costs_only_the_running_trial(tmp_path: Path) -> None:
    kills = (3, 17, 30, 44)
    for count in kills:
        process = tuning(tmp_path)
        measured(tmp_path, count, process.is_alive)
        process.kill()
        process.join(HANG_S)
    last = tuning(tmp_path)
    last.join(HANG_S)
    assert last.exitcode == 0
    counts = Counter(logged(tmp_path))
    assert len(counts) == SPACE
    assert counts.total() <= SPACE + len(kills)


def test_ctrl_c_leaves_a_record(tmp_path: Path) -> None:
    paths = {"PYTHONPATH": import_path(), "PATH": "/usr/bin:/bin"}
    code = "import sys, pathlib, support.slow_tuning as slow\n"
    code += "slow.tune_slowly(*map(pathlib.Path, sys.argv[1:]))"
    arguments = [sys.executable, "-c", code, str(tmp_path / "cache"), str(tmp_path / "log")]
    process = subprocess.Popen(arguments, env=paths, stderr=subprocess.PIPE, text=True)
    measured(tmp_path, 12, lambda: process.poll() is None)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=HANG_S)
    assert process.returncode == -signal.SIGINT
    saved = Store(tmp_path / "cache").family(H100, SQUARE, "tiled")
    assert saved is not None
    assert saved.provenance.trials >= 11
