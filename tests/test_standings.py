"""Who leads a tuning run, and what is said of one that has no leader."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from fakes import by_width, crash, tiled

from autotune.config import Config
from autotune.evaluate import Trial
from autotune.runner import Failure, Measurement
from autotune.standings import LEADERS, Standings


def standings(trials: Iterable[Trial]) -> Standings:
    made = Standings()
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
