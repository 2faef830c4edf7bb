"""The stop rule: further trials are not worth it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from autotune.tuning.search.patience import ENOUGH, EVERY, LOOKS, Patience

LOW = 0.9 * ENOUGH


def patience(*outlooks: float | None) -> Patience:
    """A stop rule that has seen these outlooks, each when a look was due."""
    made = Patience()
    for number, outlook in enumerate(outlooks, 1):
        made.look(number * EVERY, outlook)
    return made


@pytest.mark.parametrize(
    ("outlooks", "over"),
    [
        ([LOW] * LOOKS, True),
        ([LOW] * (LOOKS - 1), False),
        ([*[LOW] * (LOOKS - 1), ENOUGH, *[LOW] * (LOOKS - 1)], False),
        ([*[LOW] * (LOOKS - 1), None, LOW], False),
        ([0.2, *[LOW] * LOOKS], True),
        ([None] * 9, False),
        ([], False),
    ],
    ids=["low", "too few", "once worth it", "once unknown", "at last", "never known", "unlooked"],
)
def test_it_ends_after_low_outlooks_in_a_row(outlooks: Sequence[float | None], over: bool) -> None:
    assert patience(*outlooks).over is over


@pytest.mark.parametrize(("trials", "due"), [(0, False), (EVERY - 1, False), (EVERY, True)])
def test_look_is_due_after_some_trials(trials: int, due: bool) -> None:
    assert Patience().due(trials) is due


def test_next_look_is_due_after_as_many() -> None:
    made = Patience()
    made.look(EVERY + 3, 0.1)  # several trials came back at once
    assert [made.due(trials) for trials in (2 * EVERY, 2 * EVERY + 3)] == [False, True]


def test_nothing_is_due_once_it_is_over() -> None:
    assert not patience(*[LOW] * LOOKS).due(10**6)


def test_it_keeps_the_last_outlook() -> None:
    assert patience(0.3, 0.2).outlook == 0.2
