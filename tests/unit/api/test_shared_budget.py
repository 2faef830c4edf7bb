"""One budget for many searches: who gets how long, and what becomes of what is left."""

from __future__ import annotations

import math

import pytest

from autotune.api.shapes import LEAST_S, TIME_CONSTANT_S, Stake, shares, spend


class Searches:
    """Searches that take their budget, or end earlier, on a clock of their own."""

    def __init__(self, ends: dict[str, float] | None = None) -> None:
        self.now, self.calls = 100.0, list[tuple[str, float]]()
        self._ends = ends or {}

    def __call__(self, problem: str, seconds: float) -> bool:
        self.calls.append((problem, round(seconds, 6)))
        left = self._ends.get(problem, math.inf)
        took = min(left, seconds)
        self._ends[problem] = left - took
        self.now += took
        return left <= seconds

    def spend(self, stakes: dict[str, Stake], budget_s: float) -> None:
        spend(stakes, budget_s, self, lambda: self.now)


def test_equal_stakes_share_equally() -> None:
    assert shares({"a": Stake(10, 0.1), "b": Stake(10, 0.1)}, 20) == pytest.approx(
        {"a": 10, "b": 10}
    )


def test_shares_end_at_one_rate_of_saving() -> None:
    stakes = {"a": Stake(90, 0.1), "b": Stake(30, 0.1), "c": Stake(30, 0.2)}
    seconds = shares(stakes, 60)
    assert sum(seconds.values()) == pytest.approx(60)
    rates = [
        stakes[key].saving_us * math.exp(-time_s / TIME_CONSTANT_S)
        for key, time_s in seconds.items()
    ]
    assert rates == pytest.approx([rates[0]] * 3)


def test_shares_are_the_best_of_all_divisions() -> None:
    stakes = {"a": Stake(70, 0.1), "b": Stake(20, 0.15)}

    def left_us(first: float) -> float:
        pairs = zip(stakes.values(), (first, 20 - first), strict=True)
        return sum(stake.saving_us * math.exp(-time_s / TIME_CONSTANT_S) for stake, time_s in pairs)

    best = min(range(1, 200), key=lambda tenths: left_us(tenths / 10)) / 10
    assert shares(stakes, 20)["a"] == pytest.approx(best, abs=0.1)


def test_stakes_too_small_for_a_search_get_none() -> None:
    stakes = {"a": Stake(1000, 0.1), "b": Stake(900, 0.1), "c": Stake(1, 0.1)}
    seconds = shares(stakes, 12)
    assert [*seconds] == ["a", "b"]
    assert min(seconds.values()) >= LEAST_S
    assert sum(seconds.values()) == pytest.approx(12)


def test_budget_below_one_search_buys_none() -> None:
    assert shares({"a": Stake(1, 0.1)}, LEAST_S - 0.1) == {}


def test_largest_stake_is_searched_first() -> None:
    searches = Searches()
    searches.spend({"small": Stake(10, 0.1), "large": Stake(20, 0.1)}, 20)
    assert [problem for problem, _ in searches.calls] == ["large", "small"]
    assert searches.now == pytest.approx(120)


def test_time_that_a_search_leaves_goes_to_the_rest() -> None:
    searches = Searches({"a": 1.0})
    searches.spend({"a": Stake(20, 0.1), "b": Stake(10, 0.1), "c": Stake(10, 0.1)}, 31)
    assert searches.calls[1:] == [("b", 15.0), ("c", 15.0)]


def test_searches_go_on_while_time_is_left() -> None:
    searches = Searches({"a": 100.0, "b": 1.0})
    searches.spend({"a": Stake(20, 0.1), "b": Stake(19, 0.1)}, 14)
    assert [problem for problem, _ in searches.calls] == ["a", "b", "a"]
    assert searches.now == pytest.approx(114)


def test_searches_that_ended_are_not_repeated() -> None:
    searches = Searches({"a": 1.0, "b": 2.0})
    searches.spend({"a": Stake(20, 0.1), "b": Stake(19, 0.1)}, 600)
    assert [problem for problem, _ in searches.calls] == ["a", "b"]


def test_earlier_searches_count() -> None:
    fresh, begun = Stake(10, 0.1), Stake(10, 0.1, searched_s=4.0)
    seconds = shares({"fresh": fresh, "begun": begun}, 20)
    assert seconds["fresh"] - seconds["begun"] == pytest.approx(4)


def test_settled_stakes_are_not_searched() -> None:
    searches = Searches()
    searches.spend({"a": Stake(1e9, 0.1, searched_s=60), "b": Stake(1e9, 0.001)}, 600)
    assert searches.calls == []
