"""Metrics and objectives of the user."""

from __future__ import annotations

from typing import Any

import pytest
from support.fake_runner import ORIGIN, compiled
from support.sample_records import H100
from support.sample_user_kernels import KernelRunner, kernel, work

import autotune
from autotune.errors import MissingError, UsageError
from autotune.records import KernelRecord, Store
from autotune.tuning import loop
from autotune.tuning.loop import Search, tune
from autotune.tuning.search.proposer import Proposer
from autotune.user_kernels.tunable import KernelResult, KernelTunable, Metric, Score, check_metrics


def go(
    store: Store,
    objective: Metric | None = None,
    *,
    runner: KernelRunner | None = None,
    energy: bool = False,
    **metrics: Metric | str,
) -> KernelRecord:
    call, given = work(), check_metrics(metrics, ["THREADS", "EACH"])
    score = None if objective is None else Score(objective)
    tunable = KernelTunable(kernel(), call.call, call.arguments, metrics=given, score=score)
    options = Search(score=score, energy=energy)
    used = runner or KernelRunner()
    return tune(tunable, used, store, options, compile=compiled, origin=ORIGIN)


def test_metrics_are_recorded_with_each_entry(store: Store) -> None:
    record = go(store, speed=lambda result: 1e3 / result.time_us, threads=lambda r: r["THREADS"])
    for entry in record.entries:
        assert dict(entry.metrics) == {
            "speed": 1e3 / entry.measurement.time_us,
            "threads": entry.config.values["THREADS"],
        }
    assert store.kernel(H100, record.call) == record
    assert "speed" in str(autotune.table(record))
    assert "objective" not in str(autotune.table(record))


def test_result_has_times_resources_and_parameters(store: Store) -> None:
    results: list[KernelResult] = []

    def noted(result: KernelResult) -> float:
        results.append(result)
        return 1.0

    record = go(store, noted=noted)
    result = results[0]
    entry = record.entries[0]
    assert (result.time_us, result.cold_us) == (
        entry.measurement.time_us,
        entry.measurement.cold_us,
    )
    assert (result.threads, result.registers, result.shared) == (
        *(entry.resources.threads, entry.resources.registers, entry.resources.shared),
    )
    assert (result.occupancy, result["EACH"]) == (entry.occupancy, entry.config.values["EACH"])


def test_objective_of_the_user_is_minimised(store: Store) -> None:
    record = go(store, lambda result: result["THREADS"] + result["EACH"])
    assert str(record.best.config) == "saxpy:THREADS=32,EACH=1"
    assert record.best.score == 33
    assert [entry.score for entry in record.entries] == sorted(
        entry.score for entry in record.entries if entry.score is not None
    )
    assert store.kernel(H100, record.call) == record
    assert "objective" in str(autotune.table(record))


def test_objective_may_change_between_runs(store: Store) -> None:
    go(store, lambda result: result["THREADS"])
    assert go(store, lambda result: 1 / result["THREADS"]).best.config.values["THREADS"] == 256


def test_search_learns_the_objective(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    own = Proposer

    def noted(*arguments: Any, **keywords: Any) -> Any:
        told.append(keywords["value"])
        return own(*arguments, **keywords)

    monkeypatch.setattr(loop, "Proposer", noted)
    go(store, lambda result: result["THREADS"])
    assert isinstance(told[0], Score)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda _: 0.0, r"the objective of saxpy.* is 0.0; return a number above 0"),
        (lambda _: float("nan"), r"objective of saxpy.* is nan; return a finite number"),
        (lambda r: r["TILE"], r"objective fails for saxpy.*: KeyError: 'TILE'; it is called with"),
    ],
)
def test_objective_that_is_no_number_is_refused(store: Store, function: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        go(store, function)


@pytest.mark.parametrize("metrics", [{"": lambda _: 1}, {"GB/s": 7}])
def test_metric_that_is_no_function_is_refused(metrics: Any) -> None:
    with pytest.raises(UsageError, match="give a name, and a function of a result or a text"):
        check_metrics(metrics)


def test_metric_may_be_a_text_in_results_and_parameters(store: Store) -> None:
    entry = go(store, each="EACH / time_us").best
    assert dict(entry.metrics) == {"each": 1 / entry.measurement.time_us}


def test_text_of_a_metric_names_parameters_and_results() -> None:
    with pytest.raises(UsageError, match=r"metric 'x' names 'TILE', .* are THREADS, clock_mhz"):
        check_metrics({"x": "TILE / time_us"}, ["THREADS"])


# Energies


def test_metrics_of_energy_need_that_of_the_leaders(store: Store) -> None:
    runner = KernelRunner()
    product = go(store, runner=runner, energy=True, edp=lambda r: r.joules * r.time_us)
    assert 1 <= len(runner.metered) <= 10 < len(runner.measured)
    for entry in product.entries:
        energy = entry.measurement.energy
        assert energy is not None
        assert dict(entry.metrics) == {"edp": energy.joules * entry.measurement.time_us}
    assert " J a run, " in str(autotune.table(product))


def test_objective_of_energy_measures_that_of_every_trial(store: Store) -> None:
    runner = KernelRunner()
    record = go(store, lambda r: r.joules, runner=runner, energy=True)
    assert {*runner.metered} == {*runner.measured}
    least = record.best.measurement.energy
    assert least is not None
    assert record.best.score == least.joules
    assert record.best.config.values["THREADS"] == 32


def test_result_has_power_and_clock(store: Store) -> None:
    record = go(store, energy=True, power=lambda r: r.power_w, clock=lambda r: r.clock_mhz)
    first = record.entries[0]
    assert dict(first.metrics) == {"power": first.config.integer("THREADS") ** 2, "clock": 1_500}


def test_energy_without_being_asked_for_is_refused_in_a_line(store: Store) -> None:
    with pytest.raises(UsageError, match=r"; give search=autotune.Search\(energy=True\)"):
        go(store, lambda result: 2 * result.joules)


def test_missing_counter_is_an_error_before_the_first_trial(store: Store) -> None:
    runner = KernelRunner()
    runner.fault = "the GPU has no counter"
    with pytest.raises(MissingError, match=r"^saxpy\(.*: the GPU has no counter$"):
        go(store, lambda r: r.joules, runner=runner, energy=True)
    assert runner.measured == []


def test_trials_with_energies_are_a_study_of_their_own() -> None:
    call = work()
    digests = {
        KernelTunable(kernel(), call.call, metered=metered).digest("5e1f")
        for metered in (False, True)
    }
    assert len(digests) == 2
