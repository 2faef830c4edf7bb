"""A race has two rounds: the times of the first choose the second."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fake_runner import ORIGIN, FakeRunner, LateRunner, program

from autotune.api.tuning import raced
from autotune.device import find
from autotune.families.config import Config
from autotune.families.summation import measured_limit, possible_limit
from autotune.lookup.promising import FOLLOWING, RACED, Contenders
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import HOT
from autotune.model import cost
from autotune.model.space import AccuracyFilter
from autotune.problem import Problem
from autotune.records import Record, Store
from autotune.tuning.loop import tune
from autotune.tuning.options import Search
from autotune.tuning.tunable import QuickTunable

H100, PROBLEM = find("h100"), Problem.parse("300x202x1002:bf16")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    return Store(tmp_path)


@pytest.fixture
def tunable(store: Store) -> QuickTunable:
    return raced(PROBLEM, FakeRunner(device=H100), store, HOT)


def taking(time_us: float) -> Measurement:
    return Measurement(time_us, relative_error=1e-9)


def race(tunable: QuickTunable, runner: FakeRunner, store: Store) -> Record:
    options = Search(effort="quick", jobs=2)
    return tune(tunable, runner, store, options, compile=program, origin=ORIGIN)


@pytest.mark.parametrize("family", ["wgmma", "mma"])
def test_second_round_is_of_what_was_fast(family: str, tunable: QuickTunable, store: Store) -> None:
    expected = {
        config: time_us for time_us, config in cost.rank(tunable.raced.configs, PROBLEM, H100)
    }
    runner = FakeRunner(
        lambda config: taking(expected[config] * (0.7 if config.family == family else 1.4)),
        device=H100,
    )
    race(tunable, runner, store)
    first, second = runner.measured[:RACED], runner.measured[RACED:]
    assert {*first} == {*tunable.raced.first}
    assert {config.family for config in first} == {"wgmma", "mma"}
    assert len({*second}) == FOLLOWING
    assert {config.family for config in second} == {family}


def test_second_round_can_win(tunable: QuickTunable, store: Store) -> None:
    runner = FakeRunner(
        lambda config: taking(20.0 if config in tunable.raced.first else 10.0), device=H100
    )
    record = race(tunable, runner, store)
    assert record.best.config in runner.measured[RACED:]
    assert (record.provenance.trials, record.provenance.quick) == (RACED + FOLLOWING, True)


def test_second_round_follows_a_first_that_failed(tunable: QuickTunable, store: Store) -> None:
    def outcome(config: Config) -> Measurement | Failure:
        return Failure("launch", "no") if config in tunable.raced.first else taking(10.0)

    assert race(tunable, FakeRunner(outcome, device=H100), store).best.measurement.time_us == 10.0


def test_others_take_the_places_of_quarantined_ones(tunable: QuickTunable, store: Store) -> None:
    first = tunable.raced.first
    for config in first:
        store.quarantine(H100, f"{config}@{ORIGIN.source}", "it hung")
    runner = FakeRunner(lambda _: taking(10.0), device=H100)
    record = race(tunable, runner, store)
    assert len({*runner.measured}) == record.provenance.trials == RACED + FOLLOWING
    assert not {*runner.measured} & {*first}


class SplittingVendor(LateRunner):
    """A runner whose vendor library splits K into more parts than is known, which shows late."""

    vendor_error = 4e-7


def test_others_take_the_places_of_inaccurate_ones(store: Store) -> None:
    problem = Problem.parse("2000x3000x1500:f32")
    tunable = raced(problem, FakeRunner(device=H100), store, HOT)
    errors = AccuracyFilter(problem, possible_limit(problem, H100))
    runner = SplittingVendor(
        lambda config: Measurement(10.0, relative_error=errors.error(config)), device=H100
    )
    record = race(tunable, runner, store)
    allowed = AccuracyFilter(problem, measured_limit(problem, SplittingVendor.vendor_error))
    assert not all(map(allowed.passes, runner.measured[:RACED]))
    assert sum(map(allowed.passes, {*runner.measured})) == RACED + FOLLOWING
    assert allowed.passes(record.best.config)


def test_race_that_is_over_tries_no_more(tunable: QuickTunable, store: Store) -> None:
    runner = FakeRunner(lambda _: taking(10.0), device=H100)
    race(tunable, runner, store)
    again = FakeRunner(lambda _: taking(10.0), device=H100)
    race(tunable, again, store)
    assert again.measured == []


def test_race_between_three_configurations_has_one_round(
    tunable: QuickTunable, store: Store
) -> None:
    configs = tunable.raced.first[:3]
    runner = FakeRunner(lambda _: taking(10.0), device=H100)
    race(QuickTunable(PROBLEM, raced=Contenders.between(PROBLEM, H100, configs)), runner, store)
    assert {*runner.measured} == {*configs}
