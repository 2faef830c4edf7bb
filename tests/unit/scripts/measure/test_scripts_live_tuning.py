"""The summaries that `live.py` makes of tuning runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import live
import pytest
from support.sample_recording import FASTEST_US, PROBLEM, recorded

from autotune.problem import Problem


def trial(at_s: float, time_us: float | None, busy: float = 0.75) -> dict[str, Any]:
    """A trial event; the device was busy for that share of the time since 0.5 s after the
    command."""
    return {
        "kind": "trial",
        "at_s": at_s,
        "time_us": time_us,
        "busy": busy,
        "seconds": at_s - 0.5,
    }


TRIALS = [trial(1.0, None, 0.3), trial(1.5, 130.0, 0.375), trial(2.0, 101.0), trial(4.5, 100.0)]
STARTED = {"kind": "started", "at_s": 0.5, "feasible": 9}
FINISHED = {"kind": "finished", "at_s": 5.0, "time_us": 100.5, "config": "simt:bm=8"}


def run(*more: dict[str, Any]) -> live.Run:
    return live.Run([STARTED, *TRIALS, *more, FINISHED])


def test_summary_of_a_run() -> None:
    assert run().summary(best_us=100.0) == {
        "started_s": 0.5,
        "first_s": 1.0,
        "good_s": 2.0,
        "trials_until_good": 3,
        "searched_s": 4.5,
        "ended_s": 5.0,
        "stopped": False,
        "trials": 4,
        "trials_a_second": 1.0,
        "busy": 0.75,
        "busy_after_first_second": 0.875,
        "chosen_us": 100.5,
        "config": "simt:bm=8",
    }


def test_summary_without_a_good_kernel() -> None:
    summary = run().summary(best_us=90.0)
    assert (summary["good_s"], summary["trials_until_good"]) == (None, None)


def test_summary_of_a_run_that_stopped_by_itself() -> None:
    assert run({"kind": "enough", "at_s": 4.6, "outlook": 0.001}).summary(100.0)["stopped"]


def test_end_within_the_first_second_leaves_no_rest() -> None:
    assert live.Run([STARTED, *TRIALS[:2]]).busy_after_first_second is None


def test_fastest_ignores_failed_trials() -> None:
    assert run().fastest_us == 100.0


def test_medians_cover_all_runs() -> None:
    runs = [{**run().summary(100.0), "good_s": good} for good in (1.0, 5.0, 2.0)]
    middle = live.medians(runs)
    assert (middle["good_s"], middle["trials"], middle["late"]) == (2.0, 4, 0)


@pytest.mark.parametrize(
    ("good", "median", "late"),
    [((1.0, None, 2.0), 2.0, 1), ((1.0, None, None), None, 2)],
)
def test_run_without_a_good_kernel_counts_as_infinite(
    good: tuple[float | None, ...], median: float | None, late: int
) -> None:
    middle = live.medians([{**run().summary(100.0), "good_s": seconds} for seconds in good])
    assert (middle.get("good_s"), middle["late"]) == (median, late)


def test_fastest_recorded_time_is_read(tmp_path: Path) -> None:
    recorded().save(tmp_path / f"{PROBLEM.slug}.json.gz")
    assert live.recorded_us(PROBLEM, tmp_path) == FASTEST_US


def test_missing_recording_gives_an_infinite_time(tmp_path: Path) -> None:
    assert live.recorded_us(Problem(8, 8, 8), tmp_path) == float("inf")


def test_row_is_printed_on_one_line() -> None:
    summary = run().summary(100.0)
    row = {"best_known_us": 100.0, "cold": summary, "warm": {**summary, "good_s": None}}
    assert live.shown(row) == (
        "cold good after 2.0 s, 4 trials in 4.5 s, busy 88%, chosen +0.5%; "
        "warm nothing good, 4 trials in 4.5 s, busy 88%, chosen +0.5%"
    )


def test_real_run_reports_events_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = live.PROGRAM.replace("progress=", "device='replay:h100', progress=")
    monkeypatch.setattr(live, "PROGRAM", program)
    result = live.run(Problem(1024, 1024, 1024), 2.0, 0, tmp_path)
    summary = result.summary(result.fastest_us)
    assert summary["trials"] == len(result.of("trial")) > 20
    assert 0 < summary["started_s"] <= summary["first_s"] <= summary["good_s"]
    assert summary["good_s"] <= summary["searched_s"] <= summary["ended_s"]
