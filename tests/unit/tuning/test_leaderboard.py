"""Who leads a tuning run, and what is said of one that has no leader."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest
from support.fake_runner import by_width, crash, tiled

from autotune.families.config import Config
from autotune.runners.base import Failure, Measurement, Objective
from autotune.tuning.evaluate import Trial
from autotune.tuning.leaderboard import LEADERS, OTHERS, Leaderboard


def standings(trials: Iterable[Trial]) -> Leaderboard:
    made = Leaderboard()
    for trial in trials:
        made.note(trial)
    return made


def timed(config: Config, time_us: float) -> Trial:
    return Trial(config, Measurement(time_us))


NAIVE = Config.parse("naive:mapping=coalesced,block=32")
TWENTY = [timed(tiled(width), 100.0 + width) for width in range(5, 25)]


def test_the_leaders_are_the_fastest_in_order() -> None:
    leaders = standings(reversed(TWENTY)).leaders
    assert leaders == TWENTY[:LEADERS]


def test_the_best_of_another_family_leads_too_if_it_is_near() -> None:
    leaders = standings([timed(NAIVE, 115.0), *TWENTY]).leaders
    assert leaders == [*TWENTY[: LEADERS - 1], timed(NAIVE, 115.0)]


def test_only_the_best_of_another_family_is_preferred() -> None:
    slower = timed(Config.parse("naive:mapping=coalesced,block=16"), 115.1)
    assert slower not in standings([timed(NAIVE, 115.0), slower, *TWENTY]).leaders


def test_a_family_far_behind_does_not_lead() -> None:
    assert standings([timed(NAIVE, 116.0), *TWENTY]).leaders == TWENTY[:LEADERS]


def test_no_configuration_leads_twice() -> None:
    leaders = standings([timed(NAIVE, 101.0), *TWENTY]).leaders
    assert leaders == [timed(NAIVE, 101.0), *TWENTY[: LEADERS - 1]]


def test_after_a_rematch_only_that_counts() -> None:
    made = standings(TWENTY)
    made.rematch([timed(tiled(7), 120.0), timed(tiled(6), 110.0), Trial(tiled(5), crash(tiled(5)))])
    assert made.leaders == [timed(tiled(6), 110.0), timed(tiled(7), 120.0)]


def test_a_failure_never_leads() -> None:
    assert standings([Trial(tiled(4), crash(tiled(4)))]).leaders == []


def test_failures_and_the_best_are_kept() -> None:
    ran = [Trial(config, by_width(config)) for config in (tiled(9), tiled(22))]
    made = standings([Trial(tiled(4), crash(tiled(4))), *ran])
    assert made.best is not None
    assert (made.failures, made.best.config, len(made.trials)) == (1, tiled(22), 3)


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
def test_an_epitaph_says_why_nothing_has_a_time(trials: list[Trial], text: str) -> None:
    assert standings(trials).epitaph().startswith(text)


def both_times(width: int, hot_us: float, cold_us: float | None) -> Trial:
    return Trial(tiled(width), Measurement(hot_us, cold_us=cold_us))


# The faster hot, the slower cold.
OPPOSED = [both_times(width, 100.0 + width, 300.0 - width) for width in range(5, 30)]


def searched_for(objective: Objective, trials: Iterable[Trial]) -> Leaderboard:
    made = Leaderboard(objective)
    for trial in trials:
        made.note(trial)
    return made


def test_those_searched_for_cold_are_led_by_their_cold_times() -> None:
    leaders = searched_for("cold", OPPOSED).leaders
    coldest = OPPOSED[::-1]
    assert leaders == [*coldest[: LEADERS - OTHERS], *OPPOSED[OTHERS - 1 :: -1]]


def test_those_searched_for_hot_have_the_best_cold_ones_among_them() -> None:
    leaders = searched_for("hot", OPPOSED).leaders
    assert leaders == [*OPPOSED[: LEADERS - OTHERS], *OPPOSED[-OTHERS:]]


def test_the_best_is_the_best_of_the_kind_that_is_searched_for() -> None:
    hot, cold = searched_for("hot", OPPOSED), searched_for("cold", OPPOSED)
    assert (hot.best, cold.best) == (OPPOSED[0], OPPOSED[-1])


def test_what_was_never_timed_cold_does_not_lead_a_search_for_cold_ones() -> None:
    made = searched_for("cold", [both_times(4, 1.0, None), *OPPOSED[:3]])
    assert tiled(4) not in [trial.config for trial in made.leaders]
    assert made.best == OPPOSED[2]


def test_trials_are_judged_anew() -> None:
    def judged(trial: Trial) -> Trial:
        wrong = trial.config.integer("tile_width") < 7
        return replace(trial, outcome=Failure("accuracy", "no")) if wrong else trial

    made = standings(TWENTY)
    made.judge(judged)
    assert (made.failures, made.best, len(made.trials)) == (2, TWENTY[2], len(TWENTY))
    assert made.leaders[0] == TWENTY[2]
