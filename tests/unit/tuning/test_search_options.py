"""`Search`: what its effort sets, what stated fields replace, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from autotune.errors import UsageError
from autotune.measure.objective import OBJECTIVES, Objective
from autotune.tuning.options import LONG_TRIALS, Search, require_time, stated


@pytest.mark.parametrize(
    ("search", "trials", "seconds", "sampling"),
    [
        (Search(), None, 60.0, "gp"),
        (Search(trials=9), 9, None, "gp"),
        (Search(seconds=5), None, 5, "gp"),
        (Search(sampler="exhaustive"), None, None, "exhaustive"),
        (Search(effort="long"), LONG_TRIALS, 300.0, "gp"),
        (Search(effort="long", seconds=30), LONG_TRIALS, 30, "gp"),
        (Search(effort="long", trials=900), 900, None, "gp"),
        (Search(effort="exhaustive"), None, None, "exhaustive"),
        (Search(effort="exhaustive", seconds=30), None, 30, "exhaustive"),
        (Search(effort="exhaustive", sampler="random"), None, None, "random"),
        (Search(effort="quick"), None, None, "exhaustive"),
        (Search(effort="quick", seconds=2), None, 2, "exhaustive"),
    ],
)
def test_effort_sets_what_is_not_stated(
    search: Search, trials: int | None, seconds: float | None, sampling: str
) -> None:
    limited = search.limited()
    assert (limited.trials, limited.seconds, limited.sampling) == (trials, seconds, sampling)
    assert limited.limited() == limited


@pytest.mark.parametrize(
    ("search", "seconds"),
    [
        (Search(), 60.0),
        (Search(effort="quick"), 60.0),
        (Search(effort="long"), 300.0),
        (Search(effort="exhaustive"), 300.0),
        (Search(effort="long", seconds=7), 7),
    ],
)
def test_problems_share_the_seconds_of_the_effort(search: Search, seconds: float) -> None:
    limited = search.each_limited()
    assert limited.seconds == search.seconds
    assert limited.shared_seconds(3) == seconds


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"trials": 5}, "quick takes no trials; leave either out"),
        ({"sampler": "tpe", "seed": 3}, "quick takes no seed, sampler"),
        ({"storage": "a.log"}, "quick takes no storage"),
        ({"energy": True}, "quick takes no energy"),
    ],
)
def test_race_refuses_what_is_of_a_search(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Search(effort="quick", **fields).limited()


def test_race_of_one_family_is_refused() -> None:
    with pytest.raises(UsageError, match="quick takes no family"):
        Search(effort="quick").limited("simt")


def test_race_of_a_call_keeps_its_deadline() -> None:
    search = Search(seconds=5, seed=7, jobs=2, objective="cold").begun(100.0)
    race = search.race()
    assert (race.quick, race.deadline, race.jobs, race.objective) == (True, 105.0, 2, "cold")
    assert race == Search(effort="quick", jobs=2, objective="cold")


def test_stated_values_replace_fields() -> None:
    search = Search(effort="long", seed=3)
    assert stated(search, effort=None, trials=5) == replace(search, trials=5)
    assert stated(None, objective="cold") == Search(objective="cold")


@pytest.mark.parametrize("search", [Search(objective="energy"), Search(energy=True)])
def test_energy_is_of_one_problem(search: Search) -> None:
    with pytest.raises(UsageError, match="tune for energy one shape at a time"):
        require_time(search, "tuning a range")


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf")])
def test_impossible_seconds_are_refused(seconds: float) -> None:
    with pytest.raises(UsageError, match=r"budget is .* s; give more than 0"):
        Search(seconds=seconds)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_objective_is_held_as_the_row_of_its_word(objective: Objective) -> None:
    word: Any = "".join(objective)
    assert Search(objective=word).objective is Search(objective=objective).objective is objective
