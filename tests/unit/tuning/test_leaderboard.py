"""The leaderboard: which trials lead, and the summary of a run without a leader."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from support.fake_runner import by_width, crash, tiled

from autotune.families.config import Config
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import COLD, HOT, Objective
from autotune.tuning.evaluate import Trial
from autotune.tuning.leaderboard import BY_OTHER_OBJECTIVE, LEADERS, Leaderboard


def leaderboard(trials: Iterable[Trial]) -> Leaderboard:
    board = Leaderboard()
    for trial in trials:
        board.add(trial)
    return board


def timed(config: Config, time_us: float) -> Trial:
    return Trial(config, Measurement(time_us))


NAIVE = Config.parse("naive:mapping=coalesced,block=32")
TWENTY = [timed(tiled(width), 100.0 + width) for width in range(5, 25)]


def test_leaders_are_the_fastest_in_order() -> None:
    leaders = leaderboard(reversed(TWENTY)).leaders
    assert leaders == TWENTY[:LEADERS]


def test_run_without_a_trial_has_a_summary() -> None:
    assert leaderboard([]).failure_summary() == "none was tried; allow more trials or time"


def test_leaders_within_reach() -> None:
    board = Leaderboard(reach=1.03)
    for trial in [timed(NAIVE, 114.0), *TWENTY]:
        board.add(trial)
    assert board.leaders == [*TWENTY[:4], timed(NAIVE, 114.0)]


def test_best_of_a_near_family_is_a_leader() -> None:
    leaders = leaderboard([timed(NAIVE, 115.0), *TWENTY]).leaders
    assert leaders == [*TWENTY[: LEADERS - 1], timed(NAIVE, 115.0)]


def test_only_the_best_of_a_near_family_is_preferred() -> None:
    slower = timed(Config.parse("naive:mapping=coalesced,block=16"), 115.1)
    assert slower not in leaderboard([timed(NAIVE, 115.0), slower, *TWENTY]).leaders


def test_family_far_behind_has_no_leader() -> None:
    assert leaderboard([timed(NAIVE, 116.0), *TWENTY]).leaders == TWENTY[:LEADERS]


def test_no_configuration_leads_twice() -> None:
    leaders = leaderboard([timed(NAIVE, 101.0), *TWENTY]).leaders
    assert leaders == [timed(NAIVE, 101.0), *TWENTY[: LEADERS - 1]]


def test_after_a_rematch_only_its_trials_count() -> None:
    board = leaderboard(TWENTY)
    board.rematch(
        [timed(tiled(7), 120.0), timed(tiled(6), 110.0), Trial(tiled(5), crash(tiled(5)))]
    )
    assert board.leaders == [timed(tiled(6), 110.0), timed(tiled(7), 120.0)]


def test_failure_never_leads() -> None:
    assert leaderboard([Trial(tiled(4), crash(tiled(4)))]).leaders == []


def test_failures_are_counted_and_the_best_kept() -> None:
    ran = [Trial(config, by_width(config)) for config in (tiled(9), tiled(22))]
    board = leaderboard([Trial(tiled(4), crash(tiled(4))), *ran])
    assert board.best is not None
    assert (board.failures, board.best.config, len(board.trials)) == (1, tiled(22), 3)


@pytest.mark.parametrize(
    ("trials", "text"),
    [
        ([], "none was tried; allow more trials or time"),
        (
            [Trial(tiled(4), Failure("accuracy", "2.1 times cuBLAS's"))] * 2
            + [Trial(tiled(5), Failure("verify", "wrong"))],
            "accuracy 2, verify 1; such as tiled:tile_width=4,specialized=1: accuracy: 2.1 times",
        ),
    ],
)
def test_failure_summary_says_why_no_trial_has_a_time(trials: list[Trial], text: str) -> None:
    assert leaderboard(trials).failure_summary().startswith(text)


def both_times(width: int, hot_us: float, cold_us: float | None) -> Trial:
    return Trial(tiled(width), Measurement(hot_us, cold_us=cold_us))


# The faster a trial is hot, the slower it is cold.
OPPOSED = [both_times(width, 100.0 + width, 300.0 - width) for width in range(5, 30)]


def leaderboard_by(objective: Objective, trials: Iterable[Trial]) -> Leaderboard:
    board = Leaderboard(objective)
    for trial in trials:
        board.add(trial)
    return board


def test_objective_cold_ranks_by_cold_time() -> None:
    leaders = leaderboard_by(COLD, OPPOSED).leaders
    cold_first = OPPOSED[::-1]
    assert leaders == [
        *cold_first[: LEADERS - BY_OTHER_OBJECTIVE],
        *OPPOSED[BY_OTHER_OBJECTIVE - 1 :: -1],
    ]


def test_objective_hot_keeps_the_best_cold_trials() -> None:
    leaders = leaderboard_by(HOT, OPPOSED).leaders
    assert leaders == [*OPPOSED[: LEADERS - BY_OTHER_OBJECTIVE], *OPPOSED[-BY_OTHER_OBJECTIVE:]]


def test_best_is_the_best_by_the_objective() -> None:
    hot, cold = leaderboard_by(HOT, OPPOSED), leaderboard_by(COLD, OPPOSED)
    assert (hot.best, cold.best) == (OPPOSED[0], OPPOSED[-1])


def test_trial_without_a_cold_time_cannot_lead_cold() -> None:
    board = leaderboard_by(COLD, [both_times(4, 1.0, None), *OPPOSED[:3]])
    assert tiled(4) not in [trial.config for trial in board.leaders]
    assert board.best == OPPOSED[2]


def judge(measurement: Measurement, baseline: Measurement) -> Measurement | Failure:
    """Refuses the two fastest of `TWENTY`."""
    del baseline
    return Failure("accuracy", "no") if measurement.time_us < 107 else measurement


def test_late_baseline_judges_every_trial() -> None:
    board = Leaderboard(judge=judge)
    for trial in TWENTY[:10]:
        assert board.add(trial) == trial
    board.compare(Measurement(90.0))
    assert (board.failures, board.best, len(board.trials)) == (2, TWENTY[2], 10)
    assert board.leaders[0] == TWENTY[2]


def test_known_baseline_judges_a_trial_at_once() -> None:
    board = Leaderboard(judge=judge)
    board.compare(Measurement(90.0))
    assert board.add(TWENTY[0]) == replace(TWENTY[0], outcome=Failure("accuracy", "no"))
    assert board.add(TWENTY[2]) == TWENTY[2]
    assert (board.failures, board.leaders) == (1, [TWENTY[2]])
