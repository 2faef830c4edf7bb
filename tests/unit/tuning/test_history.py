"""The trials of a search as indices, and the families worth more trials."""

from __future__ import annotations

import math

import numpy as np
import pytest

from autotune.families.config import Config
from autotune.tuning.search.axes import SearchSpace, axes_of
from autotune.tuning.search.sampler import FAR, LEAST, History

# Twenty configurations of one family, and twenty of another.
FIRST, SECOND = range(20), range(20, 40)
CONFIGS = [Config.of(family, {"bm": bm}) for family in ("simt", "thin") for bm in FIRST]


def history() -> History:
    return History(SearchSpace(axes_of(CONFIGS), len(CONFIGS)))


def behind(by: float, trials: int = LEAST, value: float | None = None) -> History:
    """A history in which the second family has `trials` trials and is `by` times as slow."""
    made = history()
    made.finish(0, math.log(100.0))
    for index in SECOND[:trials]:
        made.finish(index, math.log(100.0 * by) if value is None else value)
    return made


def free(made: History) -> list[int]:
    return [int(index) for index in np.flatnonzero(made.left)]


def test_started_configuration_is_not_left() -> None:
    made = history()
    made.start(3)
    assert free(made) == [index for index in range(40) if index != 3]


def test_released_configuration_is_left_again() -> None:
    made = history()
    made.start(3)
    made.release(3)
    assert (free(made), list(made.pending)) == ([*range(40)], [])


def test_finished_configuration_is_not_released() -> None:
    made = history()
    made.start(3)
    made.finish(3, 1.0)
    made.release(3)
    assert 3 not in free(made)


def test_finished_but_never_started_is_not_left() -> None:
    made = history()
    made.finish(4, 1.0)
    assert 4 not in free(made)


def test_pending_keeps_its_order() -> None:
    made = history()
    for index in (7, 2, 9):
        made.start(index)
    made.finish(2, 1.0)
    assert list(made.pending) == [7, 9]


def test_best_is_the_least_of_all_families() -> None:
    made = history()
    for index, value in ((5, 3.0), (25, 2.0), (6, 4.0)):
        made.finish(index, value)
    assert made.best == 25


def test_failure_is_never_the_best() -> None:
    made = history()
    made.finish(5, math.inf)
    assert (made.best, made.told, made.logs[5]) == (None, [5], math.inf)


@pytest.mark.parametrize(
    ("made", "left"),
    [
        (behind(1.01 * FAR), {0}),
        (behind(0.99 * FAR), {0, 1}),
        (behind(9.0, LEAST - 1), {0, 1}),
        (behind(9.0, value=math.inf), {0}),
    ],
    ids=["far behind", "near", "hardly tried", "all fail"],
)
def test_family_far_behind_is_not_left(made: History, left: set[int]) -> None:
    assert {index // 20 for index in free(made)} == left


def test_family_far_behind_is_left_if_no_other_is() -> None:
    made = behind(9.0)
    for index in FIRST:
        made.start(index)
    assert free(made) == [*SECOND[LEAST:]]


def test_without_times_no_family_is_behind() -> None:
    made = history()
    for index in SECOND[:LEAST]:
        made.finish(index, math.inf)
    assert len(free(made)) == 40 - LEAST


def test_overtaken_family_falls_behind() -> None:
    made = behind(0.99 * FAR)
    made.finish(1, math.log(50.0))
    assert {index // 20 for index in free(made)} == {0}


def test_rivals_are_the_best_of_close_families() -> None:
    assert sorted(behind(0.99 * FAR).rivals()) == [0, 20]


def test_family_far_behind_has_no_rival() -> None:
    assert behind(1.01 * FAR).rivals() == [0]


def test_no_rivals_without_times() -> None:
    assert history().rivals() == []
