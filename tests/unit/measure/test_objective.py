"""Objectives as values: their words, figures, ranking, and what they make of missing figures."""

from __future__ import annotations

import copy
import json
import pickle
from typing import get_args

import pytest
from support.sample_records import H100, SQUARE, entry

from autotune.errors import UsageError
from autotune.measure.measurement import Energy, Measurement, TimeEstimate
from autotune.measure.objective import (
    COLD,
    HOT,
    OBJECTIVES,
    TIMES,
    BestTimes,
    Objective,
    ObjectiveText,
    objective_named,
    time_objective,
)
from autotune.records import Entry
from autotune.roofline import least_hot_seconds, least_seconds

WHOLE = Measurement(
    10.0, 0.5, cold_us=12.0, cold_spread_us=0.25, energy=Energy(2.0, 0.1, 600.0, 1e3)
)
HOT_ALONE = Measurement(10.0, 0.5)
EVERY = pytest.mark.parametrize("objective", OBJECTIVES)


def made(width: int, time_us: float, cold_us: float | None, joules: float | None) -> Entry:
    energy = None if joules is None else Energy(joules, 0.0, 600.0, 1e3)
    base = entry(width, time_us)
    measured = Measurement(time_us, cold_us=cold_us, energy=energy)
    return Entry(base.config, measured, base.resources, base.occupancy, base.limiter)


def test_table_has_a_row_for_each_word() -> None:
    assert tuple(map(str, OBJECTIVES)) == get_args(ObjectiveText)


@EVERY
def test_text_of_an_objective_is_its_word(objective: Objective) -> None:
    assert type(str(objective)) is str
    assert objective_named(str(objective)) is objective is objective_named(objective)
    assert json.loads(json.dumps([objective])) == [f"{objective}"]


@EVERY
def test_copies_are_the_row_of_the_table(objective: Objective) -> None:
    assert pickle.loads(pickle.dumps(objective)) is objective
    assert copy.deepcopy({"objective": objective})["objective"] is objective


@EVERY
def test_objective_is_frozen(objective: Objective) -> None:
    with pytest.raises(AttributeError, match="frozen: cannot set label"):
        objective.label = "time"


def test_unknown_word_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown objective 'warm'; give one of hot, cold, energy"):
        objective_named("warm")
    with pytest.raises(UsageError, match=r"unknown objective 'energy'; give one of hot, cold$"):
        objective_named("energy", TIMES)


def test_figures_and_their_units() -> None:
    assert [objective.value(WHOLE) for objective in OBJECTIVES] == [10.0, 12.0, 2.0]
    assert [objective.value(HOT_ALONE) for objective in OBJECTIVES] == [10.0, None, None]
    assert [objective.unit for objective in OBJECTIVES] == ["us", "us", "J"]


def test_trials_are_compared_by_times() -> None:
    hot, cold = TimeEstimate(10.0, 0.5), TimeEstimate(12.0, 0.25)
    assert [objective.estimate(WHOLE) for objective in OBJECTIVES] == [hot, cold, hot]
    assert COLD.estimate(HOT_ALONE) is None
    best = BestTimes(1.0, 2.0)
    assert [best.of(objective) for objective in OBJECTIVES] == [1.0, 2.0, 1.0]


def test_energy_is_searched_by_hot_times_and_metered() -> None:
    assert [objective.time for objective in OBJECTIVES] == [HOT, COLD, HOT]
    assert [objective.is_time for objective in OBJECTIVES] == [True, True, False]
    assert [objective.metered for objective in OBJECTIVES] == [False, False, True]
    assert TIMES == (HOT, COLD)


def test_second_time_is_the_other_one() -> None:
    assert [objective.second for objective in OBJECTIVES] == [COLD, HOT, COLD]


def test_best_entry_has_the_least_figure() -> None:
    entries = [made(8, 10.0, 30.0, 3.0), made(16, 11.0, 20.0, 2.0), made(32, 12.0, 25.0, 1.0)]
    assert [objective.best(entries) for objective in OBJECTIVES] == entries


@EVERY
def test_hot_winner_stands_where_its_figure_is_tied(objective: Objective) -> None:
    entries = [made(8, 10.0, 20.05, 2.005), made(16, 11.0, 20.0, 2.0)]
    assert objective.best(entries) is entries[0]


def test_entries_without_the_figure_have_no_best() -> None:
    entries = [made(8, 10.0, None, None)]
    assert [objective.best(entries) for objective in OBJECTIVES] == [entries[0], None, None]
    assert [objective.best(()) for objective in OBJECTIVES] == [None, None, None]


@EVERY
@pytest.mark.parametrize(("factor", "wins"), [(0.9, True), (0.996, False), (1.0, False)])
def test_less_beats_unless_it_is_tied(objective: Objective, factor: float, wins: bool) -> None:
    rival = made(8, 10.0, 20.0, 2.0).measurement
    own = made(8, factor * 10.0, factor * 20.0, factor * 2.0).measurement
    assert objective.beats(own, rival) is wins
    assert objective.beats(rival, own) is False


def test_missing_figures_are_not_compared() -> None:
    assert [objective.beats(WHOLE, HOT_ALONE) for objective in OBJECTIVES] == [False, None, None]
    assert [objective.beats(HOT_ALONE, WHOLE) for objective in OBJECTIVES] == [False, None, None]


def test_roofline_of_cold_runs_counts_all_bytes() -> None:
    cold, hot = least_seconds(SQUARE, H100), least_hot_seconds(SQUARE, H100)
    bounds = [objective.least_seconds(SQUARE, H100) for objective in OBJECTIVES]
    assert bounds == [hot, cold, hot]


def test_suffix_names_all_but_the_default() -> None:
    assert [objective.suffix(".") for objective in OBJECTIVES] == ["", ".cold", ".energy"]


def test_cold_calls_have_the_cold_objective() -> None:
    assert (time_objective(False), time_objective(True)) == (HOT, COLD)
