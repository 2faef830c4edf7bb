"""Look-ups for operands that are not in L2."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.fake_runner import tiled
from support.sample_records import H100, SQUARE, entry, record

from autotune.lookup.answer import Answer
from autotune.lookup.lookup import lookup
from autotune.measure.measurement import Measurement
from autotune.measure.objective import COLD, HOT, Objective
from autotune.model import cost, space
from autotune.problem import Problem
from autotune.records import Entry, Store, ranges
from autotune.records.ranges import Range, Segment

NEAR = Problem(4096, 4096, 2048)

pytestmark = pytest.mark.usefixtures("no_candidates")


@pytest.fixture(autouse=True)
def _no_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves the model no configurations to choose from, unless a test offers some."""
    monkeypatch.setattr("autotune.lookup.nearest.members_of", lambda *_: [])
    monkeypatch.setattr("autotune.lookup.nearest.variants", lambda *_: [])
    monkeypatch.setattr(space, "feasible", lambda *_: space.Space(()))


def timed(width: int, hot_us: float, cold_us: float | None = None) -> Entry:
    """An entry of a configuration that is legal today."""
    made = entry(width, hot_us)
    measurement = replace(made.measurement, cold_us=cold_us)
    return replace(made, config=tiled(width), measurement=measurement)


def look_up(store: Store, problem: Problem = SQUARE, objective: Objective = COLD) -> Answer:
    answer = lookup(problem, H100, store, objective)
    assert answer is not None
    return answer


# At width 16 it is faster hot, at width 32 cold.
HOT_BEST, COLD_BEST = timed(16, 800.0, 1000.0), timed(32, 900.0, 950.0)


def test_record_answers_with_its_cold_winner(store: Store) -> None:
    store.save(record(HOT_BEST, COLD_BEST))
    answer = look_up(store)
    assert (answer.how, answer.config, answer.time_us, answer.objective) == (
        "exact",
        tiled(32),
        950.0,
        "cold",
    )
    assert look_up(store, objective=HOT).config == tiled(16)


def test_record_without_cold_times_answers_with_its_winner(store: Store) -> None:
    store.save(record(timed(16, 800.0), timed(32, 900.0)))
    answer = look_up(store)
    assert (answer.config, answer.time_us, answer.objective) == (tiled(16), 800.0, "hot")


def test_illegal_cold_winner_makes_room_for_the_next(store: Store) -> None:
    store.save(record(HOT_BEST, timed(64, 900.0, 940.0), COLD_BEST))
    assert look_up(store).config == tiled(32)


@pytest.mark.parametrize(("cold_us", "vendor"), [(940.0, True), (960.0, False)])
def test_vendor_is_compared_by_cold_times(store: Store, cold_us: float, vendor: bool) -> None:
    tuned = replace(record(HOT_BEST, COLD_BEST), baseline=Measurement(700.0, cold_us=cold_us))
    store.save(tuned)
    assert look_up(store).vendor is vendor
    assert look_up(store, objective=HOT).vendor is True


def test_vendor_without_a_cold_time_is_compared_hot(store: Store) -> None:
    store.save(record(HOT_BEST, COLD_BEST, baseline_us=700.0))
    assert look_up(store).vendor is True


def save_range(store: Store, point: int, objective: Objective) -> None:
    segments = (Segment(1024, 4096, point),)
    ranges.save(store.root, Range(H100, SQUARE, "k", segments, objective=objective))


def test_size_in_a_range_runs_the_cold_winner_of_its_point(store: Store) -> None:
    store.save(record(HOT_BEST, COLD_BEST, problem=NEAR))
    save_range(store, 2048, HOT)
    answer = look_up(store, replace(SQUARE, k=3000))
    assert (answer.how, answer.config, answer.objective) == ("range", tiled(32), "cold")


def test_range_tuned_cold_serves_cold_before_others(store: Store) -> None:
    store.save(record(HOT_BEST, COLD_BEST, problem=NEAR))
    store.save(record(HOT_BEST, COLD_BEST, problem=replace(SQUARE, k=1024)))
    save_range(store, 2048, HOT)
    save_range(store, 1024, COLD)
    records = [look_up(store, replace(SQUARE, k=3000), each).record for each in (HOT, COLD)]
    assert [record.problem.k for record in records if record] == [2048, 1024]


def test_neighbours_cold_times_decide(store: Store) -> None:
    fair = {w: cost.predict(tiled(w), NEAR, H100) for w in (16, 32)}
    better = min(fair, key=lambda width: fair[width])
    slower = 48 - better
    entries = timed(better, fair[better], 3 * fair[better]), timed(slower, *[fair[slower]] * 2)
    store.save(record(*entries, problem=NEAR))
    assert look_up(store, objective=HOT).config == tiled(better)
    answer = look_up(store)
    assert (answer.how, answer.config, answer.objective) == ("nearest", tiled(slower), "cold")


def test_neighbours_without_cold_times_decide_by_hot_ones(store: Store) -> None:
    store.save(record(timed(16, 800.0), problem=NEAR))
    cold, hot = look_up(store), look_up(store, objective=HOT)
    assert cold == hot


def test_model_chooses_by_the_hot_times_it_knows(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "feasible", lambda *_: space.Space((tiled(8), tiled(16))))
    answer = look_up(store)
    assert (answer.how, answer.objective) == ("predicted", "hot")
