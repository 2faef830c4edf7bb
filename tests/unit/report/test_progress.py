"""The progress of a tuning run, as plain lines and as a bar."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from support.fake_runner import crash, tiled
from support.sample_records import entry, record

from autotune.measure.measurement import Measurement
from autotune.measure.objective import COLD
from autotune.problem import Problem
from autotune.report.progress import Limits, observing
from autotune.tuning.trials import Observer, Progress, Trial

PROBLEM = Problem(1000, 1000, 1000)

NO_LIMITS = Limits(None, None)


def timed(time_us: float) -> Trial:
    return Trial(tiled(16), Measurement(time_us))


def failed() -> Trial:
    return Trial(tiled(8), crash(tiled(8)))


def shown(
    limits: Limits, *events: tuple[Trial, Progress], terminal: bool, plain: bool
) -> list[str]:
    console = Console(
        file=io.StringIO(), force_terminal=terminal, width=100, color_system=None, _environ={}
    )
    with observing(console, plain=plain) as observed:
        observer = observed(PROBLEM, limits)
        send_events(observer, *events)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def send_events(observer: Observer, *events: tuple[Trial, Progress]) -> None:
    observer.started(50, {"threads": 7}, Progress(0, 0, None, 0.0))
    observer.baseline(Measurement(40.0))
    for trial, after in events:
        observer.trial(trial, after)
    observer.rematch([timed(50.0)])
    recorded = record(entry(16, 50.0), problem=PROBLEM)
    observer.finished(recorded, Progress(3, 1, timed(50.0), 2.5, busy=0.8))


def lines(*events: tuple[Trial, Progress], limits: Limits = NO_LIMITS) -> list[str]:
    return shown(limits, *events, terminal=False, plain=False)


def test_objective_cold_shows_cold_times() -> None:
    trials = [
        Trial(tiled(width), Measurement(hot_us, cold_us=cold_us))
        for width, hot_us, cold_us in ((8, 50.0, 100.0), (16, 60.0, 80.0), (32, 40.0, 90.0))
    ]
    console = Console(file=io.StringIO(), width=100, color_system=None, _environ={})
    with observing(console, plain=True, objective=COLD) as observed:
        observer = observed(PROBLEM, NO_LIMITS)
        observer.baseline(Measurement(40.0, cold_us=100.0))
        for number, leader in enumerate((0, 1, 1)):
            observer.trial(trials[number], Progress(number + 1, 0, trials[leader], 0.5))
        entries = (trial.entry for trial in map(compiled, trials))
        recorded = record(*(made for made in entries if made), problem=PROBLEM)
        observer.finished(recorded, Progress(3, 0, trials[1], 1.0))
    assert isinstance(console.file, io.StringIO)
    vendor, first, second, last = console.file.getvalue().splitlines()
    assert vendor == "cuBLAS: 20.00 TFLOP/s cold"
    assert first.startswith("1 trials, best 20.00 TFLOP/s cold, 100.0% of cuBLAS")
    assert second.startswith("2 trials, best 25.00 TFLOP/s cold, 125.0% of cuBLAS")
    assert last.startswith("recorded 25.00 TFLOP/s cold, 125.0% of cuBLAS after 3 trials")


def test_last_line_names_ties() -> None:
    console = Console(file=io.StringIO(), width=100, color_system=None, _environ={})
    recorded = record(*(entry(w, 50 + w / 100) for w in (16, 32, 64)), problem=PROBLEM)
    with observing(console, plain=True) as observed:
        observer = observed(PROBLEM, NO_LIMITS)
        observer.finished(recorded, Progress(3, 0, None, 1.0))
    assert isinstance(console.file, io.StringIO)
    assert ", tied with 1 more after 3 trials" in console.file.getvalue()


def compiled(trial: Trial) -> Trial:
    """The trial with resources, as the record needs them."""
    return replace(trial, resources=entry(16, 1.0).resources, occupancy=0.5, limiter="threads")


def test_first_line_counts_configurations() -> None:
    assert lines()[0] == "50 configurations, 7 rejected"


def test_second_line_is_the_vendor_baseline() -> None:
    # 2 * 1000^3 operations in 40 us are 50 TFLOP/s.
    assert lines()[1] == "cuBLAS: 50.00 TFLOP/s"


def test_vendor_baseline_of_tf32x3_is_fp32() -> None:
    console = Console(file=io.StringIO(), width=100)
    with observing(console, plain=True) as observed:
        observer = observed(replace(PROBLEM, compute="tf32x3"), NO_LIMITS)
        send_events(observer)
    assert isinstance(console.file, io.StringIO)
    printed = console.file.getvalue().splitlines()
    assert printed[1] == "cuBLAS in fp32: 50.00 TFLOP/s"
    assert "40.00 TFLOP/s, 80.0% of cuBLAS in fp32 after" in printed[-1]


def test_better_kernel_prints_a_line_with_time_left() -> None:
    best = timed(50.0)
    printed = lines((best, Progress(10, 1, best, 5.0)), limits=Limits(30, None))
    assert printed[2] == "10 trials, best 40.00 TFLOP/s, 80.0% of cuBLAS, 1 failed, 10 s left"


def test_worse_kernel_prints_no_line() -> None:
    best = timed(50.0)
    printed = lines((best, Progress(1, 0, best, 1.0)), (timed(60.0), Progress(2, 0, best, 2.0)))
    assert len([line for line in printed if "trials, best" in line]) == 1


def test_long_search_without_success_prints_lines() -> None:
    printed = lines((failed(), Progress(7, 7, None, 20.0)))
    assert printed[2].startswith("7 trials, best none yet, 7 failed")


def test_last_line_compares_with_the_baseline_of_the_last_round() -> None:
    console = Console(file=io.StringIO(), width=200)
    recorded = record(entry(16, 50.0), problem=PROBLEM, baseline_us=100.0)
    with observing(console, plain=True) as observed:
        observer = observed(PROBLEM, NO_LIMITS)
        observer.baseline(Measurement(40.0))
        observer.finished(recorded, Progress(3, 1, timed(50.0), 2.5))
    assert isinstance(console.file, io.StringIO)
    assert "recorded 40.00 TFLOP/s, 200.0% of cuBLAS after 3" in console.file.getvalue()


def test_last_line_is_the_recorded_speed() -> None:
    speed = "recorded 40.00 TFLOP/s, 80.0% of cuBLAS after 3 trials in 2.5 s"
    assert lines()[-1] == f"{speed}, the device busy for 80%"


def test_replayed_run_names_no_busy_share() -> None:
    console = Console(file=io.StringIO(), width=100)
    recorded = record(entry(16, 50.0), problem=PROBLEM, evidence="replayed")
    with observing(console, plain=True) as observed:
        observer = observed(PROBLEM, NO_LIMITS)
        observer.finished(recorded, Progress(3, 1, timed(50.0), 2.5))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "recorded 40.00 TFLOP/s after 3 trials in 2.5 s\n"


def test_plain_prints_lines_on_a_terminal() -> None:
    assert shown(NO_LIMITS, terminal=True, plain=True) == lines()


def test_terminal_shows_a_bar_with_the_best_so_far() -> None:
    best = timed(50.0)
    console = Console(file=io.StringIO(), force_terminal=True, width=100, _environ={})
    with observing(console, plain=False) as observed:
        observer = observed(PROBLEM, NO_LIMITS)
        observer.started(50, {}, Progress(0, 0, None, 0.0))
        observer.baseline(Measurement(40.0))
        observer.trial(best, Progress(25, 2, best, 1.0))
    assert isinstance(console.file, io.StringIO)
    assert "25 trials, best 40.00 TFLOP/s, 80.0% of cuBLAS, 2 failed" in console.file.getvalue()


def test_time_left_is_until_the_first_limit() -> None:
    assert Limits(100, 60.0).left(done=50, earlier=0, seconds=10.0) == 10.0


def test_time_left_ignores_trials_of_earlier_runs() -> None:
    assert Limits(100, None).left(done=60, earlier=50, seconds=5.0) == 20.0


def test_time_left_is_unknown_before_the_first_trial() -> None:
    assert Limits(100, None).left(done=50, earlier=50, seconds=1.0) is None


def test_time_left_is_never_negative() -> None:
    assert Limits(None, 60.0).left(done=5, earlier=0, seconds=61.0) == 0.0


def test_limit_is_at_most_the_number_of_configurations() -> None:
    assert Limits(100, 60.0).within(30) == Limits(30, 60.0)


@pytest.mark.parametrize(
    ("limits", "share"), [(Limits(100, None), 0.5), (Limits(100, 20.0), 0.75), (NO_LIMITS, 0.0)]
)
def test_bar_follows_the_nearest_limit(limits: Limits, share: float) -> None:
    assert limits.share(done=50, seconds=15.0) == share


@pytest.mark.parametrize("plain", [False, True])
def test_failures_are_counted_by_stage(plain: bool) -> None:
    events = (failed(), Progress(1, 1, None, 1.0)), (timed(50.0), Progress(2, 1, None, 1.0))
    console = Console(file=io.StringIO(), force_terminal=True)
    with observing(console, plain=plain) as observed:
        shown = observed(PROBLEM, NO_LIMITS)
        send_events(shown, *events)
    assert (shown.feasible, shown.rejected, shown.failed) == (50, {"threads": 7}, {"crash": 1})


def test_user_kernel_is_shown_in_microseconds() -> None:
    console = Console(file=io.StringIO(), width=100, color_system=None, _environ={})
    with observing(console, plain=True) as observed:
        observer = observed(None, NO_LIMITS)
        observer.started(50, {}, Progress(0, 0, None, 0.0))
        observer.trial(timed(12.5), Progress(1, 0, timed(12.5), 1.0))
    assert isinstance(console.file, io.StringIO)
    assert "1 trials, best 12.50 us, 0 failed" in console.file.getvalue()


FIRST, SECOND = Problem(64, 64, 64), Problem(128, 128, 128)


def test_bar_names_the_search_at_hand() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, _environ={})
    with observing(console, plain=False, count=3) as observed:
        for problem in (FIRST, SECOND, FIRST):
            observed(problem, Limits(None, 20.0)).started(10, {}, Progress(4, 1, None, 0.0))
    assert isinstance(console.file, io.StringIO)
    assert f"2/3 {FIRST}: 4 trials, best none yet, 1 failed" in console.file.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_bar_on_a_terminal_and_lines_elsewhere(terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=terminal, width=80)
    with observing(console, plain=False, count=2) as observed:
        for problem in (FIRST, SECOND):
            observed(problem, Limits(None, 30.0)).started(1234, {}, Progress(0, 0, None, 0.0))
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    lines = [line for line in text.splitlines() if line.startswith("tuning ")]
    expected = [] if terminal else [f"tuning {FIRST} for 30.0 s", f"tuning {SECOND} for 30.0 s"]
    assert lines == expected
    assert (f"2/2 {SECOND}: 0 trials" in text) == terminal
