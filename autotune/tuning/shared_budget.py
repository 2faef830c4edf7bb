"""One budget for the searches of many problems: seconds go where they are expected to save most.

A search of t seconds leaves a share exp(-t / T) of what tuning can save. With one T for all the
savings of all problems together are largest if every search ends at the same rate of saving.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from typing import TypeVar

T = TypeVar("T")

TIME_CONSTANT_S = 3.0
"""T. Half of 24 problems were within 2 % of their best known time after 4.3 s of search on an H100
(`docs/search.md`), where a kernel chosen without a search loses some 10 %."""

LEAST_S = 3.0
"""Shortest search: its workers need 2 s to start, and the leaders are timed at the end."""

LEAST_GAIN = 0.005
"""Share of a kernel's time below which what is left to save is not worth a search."""


@dataclass(frozen=True)
class Stake:
    """The time that tuning a problem can save.

    Attributes:
        time_us: the time of its runs together, as they are now, in microseconds.
        loss: how much longer they take than after a full search; 0.1 is 10 %.
        searched_s: seconds of search so far.
    """

    time_us: float
    loss: float
    searched_s: float = 0.0

    @property
    def left(self) -> float:
        """The loss that is left."""
        return self.loss * math.exp(-self.searched_s / TIME_CONSTANT_S)

    @property
    def saving_us(self) -> float:
        """Microseconds that a full search still saves."""
        return self.time_us * self.left

    @property
    def settled(self) -> bool:
        """Whether too little is left for a search."""
        return self.left < LEAST_GAIN


def spend(
    stakes: Mapping[T, Stake],
    budget_s: float,
    search: Callable[[T, float], bool],
    clock: Callable[[], float] = monotonic,
) -> None:
    """Spends a budget on searches, one after another; what one leaves is shared by the rest.

    Args:
        stakes: what tuning each problem can save.
        budget_s: seconds for all.
        search: searches a problem for some seconds; returns whether it ended by itself, so that it
            need not go on. The others do if time is left.
        clock: the time in seconds.
    """
    began, pending = clock(), {key: stake for key, stake in stakes.items() if not stake.settled}
    while seconds := shares(pending, budget_s - (clock() - began)):
        problem = max(seconds, key=lambda key: pending[key].saving_us)
        stake, started = pending.pop(problem), clock()
        if search(problem, seconds[problem]):
            continue
        spent = replace(stake, searched_s=stake.searched_s + clock() - started)
        if not spent.settled:
            pending[problem] = spent


def shares(stakes: Mapping[T, Stake], budget_s: float) -> dict[T, float]:
    """Seconds for each search, the most promising first; those that would get less than `LEAST_S`
    get none."""
    chosen = sorted(stakes, key=lambda key: stakes[key].saving_us, reverse=True)
    while chosen and budget_s >= LEAST_S:
        rates = [math.log(max(stakes[key].saving_us, 1e-300)) for key in chosen]
        rate = (sum(rates) - budget_s / TIME_CONSTANT_S) / len(chosen)
        seconds = {
            key: TIME_CONSTANT_S * (own - rate) for key, own in zip(chosen, rates, strict=True)
        }
        if len(chosen) == 1 or seconds[chosen[-1]] >= LEAST_S:
            return seconds
        chosen.pop()
    return {}
