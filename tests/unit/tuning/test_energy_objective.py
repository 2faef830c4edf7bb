"""The objective "energy": the least of the fastest is recorded, and only where it was measured."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_runner import ORIGIN, FakeRunner, by_width, compiled, tiled
from support.sample_recording import PROBLEM, recorded
from support.sample_records import H100, SQUARE

from autotune.errors import MissingError, RunnerError
from autotune.families.config import Config
from autotune.measure.measurement import Energy, Failure, Measurement
from autotune.measure.objective import ENERGY, HOT, TIMES, Objective
from autotune.measure.recording import Recording
from autotune.measure.runner import Runner
from autotune.measure.without_gpu import PredictedRunner, ReplayRunner
from autotune.problem import Problem
from autotune.records import Record, Store
from autotune.tuning.loop import tune
from autotune.tuning.options import Search
from autotune.tuning.trials import LEADERS
from autotune.tuning.tunable import GemmTunable

BY_ENERGY = Search(sampler="random", objective=ENERGY)


FEW = replace(BY_ENERGY, sampler="exhaustive", trials=12)


def joules(amount: float) -> Energy:
    return Energy(amount, 0.01, 600.0, 1_755.0)


def by_power(config: Config) -> Energy:
    """Joules of the tiled kernel, least at TILE_WIDTH 21, which is not the fastest."""
    return joules(1.0 + abs(config.integer("tile_width") - 21))


def go(
    runner: Runner,
    store: Store,
    options: Search = BY_ENERGY,
    problem: Problem = SQUARE,
    family: str = "tiled",
) -> Record:
    asked = GemmTunable(problem, family), runner, store, options
    return tune(*asked, compile=compiled, origin=ORIGIN)


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> tuple[FakeRunner, Record, Store]:
    """A search for energy: the runner, the record and its store."""
    runner, store = FakeRunner(energy=by_power), Store(tmp_path_factory.mktemp("cache"))
    return runner, go(runner, store), store


def test_least_energy_of_the_fastest_is_recorded(tuned: tuple[FakeRunner, Record, Store]) -> None:
    _, record, store = tuned
    assert record.best_energy is not None
    assert (record.best.config, record.best_energy.config) == (tiled(23, 0), tiled(21, 0))
    assert record.best_by(ENERGY).measurement.energy == joules(1.0)
    assert store.family(H100, SQUARE, "tiled") == record


def test_energies_are_measured_of_the_leaders_alone(
    tuned: tuple[FakeRunner, Record, Store],
) -> None:
    runner, *_ = tuned
    assert len(runner.measured) == 58
    assert runner.metered == runner.rematched
    assert len(runner.metered) == LEADERS


def test_winner_by_energy_is_examined(tuned: tuple[FakeRunner, Record, Store]) -> None:
    runner, *_ = tuned
    assert runner.examined == [tiled(23, 0), tiled(21, 0)]


@pytest.mark.parametrize("objective", TIMES)
def test_times_need_no_energies(store: Store, objective: Objective) -> None:
    def outcome(config: Config) -> Measurement:
        return replace(by_width(config), cold_us=200.0)

    runner = FakeRunner(outcome, energy=by_power)
    options = replace(FEW, objective=objective)
    record = go(runner, store, options)
    assert (runner.metered, record.best_energy) == ([], None)


def test_missing_energies_are_an_error_before_the_first_trial(store: Store) -> None:
    runner = FakeRunner()
    with pytest.raises(MissingError, match=r"^4096x4096x4096:f32:nn: this fake has no energies"):
        go(runner, store)
    assert runner.measured == []


def test_predictions_have_no_energies(store: Store) -> None:
    with pytest.raises(MissingError, match="energies are not predicted; give a GPU"):
        go(PredictedRunner(SQUARE, H100), store)


def test_kernel_that_fails_under_load_is_not_recorded(store: Store) -> None:
    def energy(config: Config) -> Energy | Failure:
        return Failure("crash", "illegal access") if config in failing else by_power(config)

    failing: set[Config] = set()
    before = go(FakeRunner(energy=energy), store, FEW)
    failing.add(before.best.config)
    after = go(FakeRunner(energy=energy), store, FEW)
    assert before.best.config not in [entry.config for entry in after.entries]
    assert [entry.config for entry in after.entries] == [e.config for e in before.entries[1:]]


def test_times_are_recorded_although_the_counter_fails(store: Store) -> None:
    def energy(_: Config) -> Energy:
        raise RunnerError("the counter stands still")

    with pytest.raises(RunnerError, match="stands still"):
        go(FakeRunner(energy=energy), store, FEW)
    record = store.family(H100, SQUARE, "tiled")
    assert record is not None
    assert (len(record.entries), record.provenance.interrupted) == (LEADERS, True)


def test_search_for_a_time_keeps_earlier_energies(store: Store) -> None:
    earlier = go(FakeRunner(energy=by_power), store, FEW)
    record = go(FakeRunner(), store, replace(FEW, objective=HOT))
    assert earlier.best_energy is not None
    assert record.best_energy == earlier.best_energy


# Replays


def replayed(recording: Recording, store: Store) -> Record:
    return go(ReplayRunner(recording), store, BY_ENERGY, PROBLEM, "auto")


def with_energies(energy: Callable[[Measurement], Energy | None]) -> Recording:
    """The sample recording with energies of its measurements."""
    recording = recorded()
    rows = (
        replace(row, outcome=replace(row.outcome, energy=energy(row.outcome)))
        if isinstance(row.outcome, Measurement)
        else row
        for row in recording.rows
    )
    return replace(recording, rows=tuple(rows))


def test_recording_without_energies_is_an_error(store: Store) -> None:
    with pytest.raises(MissingError, match=r"the recording of \d+ configurations has no energies"):
        replayed(recorded(), store)


def test_recorded_energies_are_replayed(store: Store, tmp_path: Path) -> None:
    path = tmp_path / "energies.json.gz"
    with_energies(lambda outcome: joules(100.0 / outcome.time_us)).save(path)
    record = replayed(Recording.load(path), store)
    assert record.best_energy is not None
    energies = [entry.measurement.energy for entry in record.entries]
    assert record.best_energy.measurement.energy == min(
        (energy for energy in energies if energy), key=lambda energy: energy.joules
    )
    assert record.best_energy.config != record.best.config


def test_configuration_without_a_recorded_energy_does_not_win(store: Store) -> None:
    recording = with_energies(lambda outcome: joules(2.0) if outcome.time_us > 11.5 else None)
    record = replayed(recording, store)
    assert all(entry.measurement.energy == joules(2.0) for entry in record.entries)
