"""What a tuning run shows while it goes on."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console
from support.fake_runner import crash, tiled
from support.sample_records import entry, record

from autotune.problem import Problem
from autotune.report.progress import Limits, Tally, observing
from autotune.runners.base import Measurement
from autotune.tuning.evaluate import Trial
from autotune.tuning.events import Observer, Progress, Silent

PROBLEM = Problem(1000, 1000, 1000)
NO_LIMITS = Limits(None, None)


def timed(time_us: float) -> Trial:
    return Trial(tiled(16), Measurement(time_us))


def failed() -> Trial:
    return Trial(tiled(8), crash(tiled(8)))


def shown(limits: Limits, *told: tuple[Trial, Progress], terminal: bool, plain: bool) -> list[str]:
    console = Console(
        file=io.StringIO(), force_terminal=terminal, width=100, color_system=None, _environ={}
    )
    with observing(PROBLEM, limits, console, plain=plain) as observer:
        tell(observer, *told)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


def tell(observer: Observer, *told: tuple[Trial, Progress]) -> None:
    observer.started(50, {"threads": 7}, Progress(0, 0, None, 0.0))
    observer.baseline(Measurement(40.0))
    for trial, progress in told:
        observer.trial(trial, progress)
    observer.rematch([timed(50.0)])
    found = record(entry(16, 50.0), problem=PROBLEM)
    observer.finished(found, Progress(3, 1, timed(50.0), 2.5, busy=0.8))


def lines(*told: tuple[Trial, Progress], limits: Limits = NO_LIMITS) -> list[str]:
    return shown(limits, *told, terminal=False, plain=False)


def test_plain_lines_tell_the_space_first() -> None:
    assert lines()[0] == "50 configurations, 7 rejected"


def test_plain_lines_tell_the_vendors_speed() -> None:
    # 2 * 1000^3 operations in 40 us are 50 TFLOP/s.
    assert lines()[1] == "cuBLAS: 50.00 TFLOP/s"


def test_the_vendors_speed_of_tf32x3_is_that_of_fp32() -> None:
    console = Console(file=io.StringIO(), width=100)
    with observing(replace(PROBLEM, compute="tf32x3"), NO_LIMITS, console, plain=True) as observer:
        tell(observer)
    assert isinstance(console.file, io.StringIO)
    told = console.file.getvalue().splitlines()
    assert told[1] == "cuBLAS in fp32: 50.00 TFLOP/s"
    assert "40.00 TFLOP/s, 80.0% of cuBLAS in fp32 after" in told[-1]


def test_a_better_kernel_is_a_line_with_trials_speed_failures_and_time_left() -> None:
    best = timed(50.0)
    told = lines((best, Progress(10, 1, best, 5.0)), limits=Limits(30, None))
    assert told[2] == "10 trials, best 40.00 TFLOP/s, 80.0% of cuBLAS, 1 failed, 10 s left"


def test_a_worse_kernel_is_no_line() -> None:
    best = timed(50.0)
    told = lines((best, Progress(1, 0, best, 1.0)), (timed(60.0), Progress(2, 0, best, 2.0)))
    assert len([line for line in told if "trials, best" in line]) == 1


def test_a_long_search_without_success_is_not_silent() -> None:
    told = lines((failed(), Progress(7, 7, None, 20.0)))
    assert told[2].startswith("7 trials, best none yet, 7 failed")


def test_the_last_line_is_what_was_recorded() -> None:
    said = "recorded 40.00 TFLOP/s, 80.0% of cuBLAS after 3 trials in 2.5 s"
    assert lines()[-1] == f"{said}, the device busy for 80%"


def test_a_recording_keeps_no_device_busy() -> None:
    console = Console(file=io.StringIO(), width=100)
    found = record(entry(16, 50.0), problem=PROBLEM, evidence="replayed")
    with observing(PROBLEM, NO_LIMITS, console, plain=True) as observer:
        observer.finished(found, Progress(3, 1, timed(50.0), 2.5))
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == "recorded 40.00 TFLOP/s after 3 trials in 2.5 s\n"


def test_quiet_gives_lines_on_a_terminal() -> None:
    assert shown(NO_LIMITS, terminal=True, plain=True) == lines()


def test_a_terminal_gets_a_bar_with_the_best_so_far() -> None:
    best = timed(50.0)
    console = Console(file=io.StringIO(), force_terminal=True, width=100, _environ={})
    with observing(PROBLEM, NO_LIMITS, console, plain=False) as observer:
        observer.started(50, {}, Progress(0, 0, None, 0.0))
        observer.baseline(Measurement(40.0))
        observer.trial(best, Progress(25, 2, best, 1.0))
    assert isinstance(console.file, io.StringIO)
    assert "25 trials, best 40.00 TFLOP/s, 80.0% of cuBLAS, 2 failed" in console.file.getvalue()


def test_the_time_left_is_that_of_the_limit_reached_first() -> None:
    assert Limits(100, 60.0).left(done=50, earlier=0, seconds=10.0) == 10.0


def test_trials_of_earlier_runs_say_nothing_of_the_speed() -> None:
    assert Limits(100, None).left(done=60, earlier=50, seconds=5.0) == 20.0


def test_the_time_left_is_unknown_before_the_first_trial() -> None:
    assert Limits(100, None).left(done=50, earlier=50, seconds=1.0) is None


def test_the_time_left_is_never_negative() -> None:
    assert Limits(None, 60.0).left(done=5, earlier=0, seconds=61.0) == 0.0


def test_no_run_tries_more_than_there_is() -> None:
    assert Limits(100, 60.0).within(30) == Limits(30, 60.0)


@pytest.mark.parametrize(
    ("limits", "share"), [(Limits(100, None), 0.5), (Limits(100, 20.0), 0.75), (NO_LIMITS, 0.0)]
)
def test_the_bar_follows_the_limit_that_is_nearest(limits: Limits, share: float) -> None:
    assert limits.share(done=50, seconds=15.0) == share


def test_the_tally_counts_failures_by_stage() -> None:
    tally = Tally(Silent())
    tell(tally, (failed(), Progress(1, 1, None, 1.0)), (timed(50.0), Progress(2, 1, None, 1.0)))
    assert (tally.feasible, tally.rejected, tally.failed) == (50, {"threads": 7}, {"crash": 1})
