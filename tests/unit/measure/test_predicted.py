"""The runner whose times come from the cost model."""

from __future__ import annotations

from pathlib import Path

from support.fake_runner import ORIGIN, compiled, tiled
from support.sample_records import H100, SQUARE

from autotune.families import registry
from autotune.measure.measurement import Measurement
from autotune.measure.runner import Candidate
from autotune.measure.without_gpu import PredictedRunner
from autotune.model import cost
from autotune.records import Record, Store
from autotune.tuning.loop import Search, tune
from autotune.tuning.pipeline import prepare
from autotune.tuning.tunable import GemmTunable


def predicted(width: int) -> tuple[PredictedRunner, Candidate]:
    runner = PredictedRunner(SQUARE, H100)
    candidate = prepare(registry.plan(tiled(width), SQUARE), runner, compiled)
    assert isinstance(candidate, Candidate)
    return runner, candidate


def tuned(store: Store) -> Record:
    return tune(
        GemmTunable(SQUARE, "tiled"),
        PredictedRunner(SQUARE, H100),
        store,
        Search(sampler="exhaustive"),
        compile=compiled,
        origin=ORIGIN,
    )


def test_time_is_predicted_from_compiled_resources() -> None:
    runner, candidate = predicted(16)
    expected = cost.predict(tiled(16), SQUARE, H100, candidate.resources)
    assert runner.measure(candidate, None) == Measurement(expected, samples=0)


def test_prediction_has_no_samples_and_no_error() -> None:
    runner, candidate = predicted(16)
    outcome = runner.measure(candidate, None)
    assert isinstance(outcome, Measurement)
    assert (outcome.samples, outcome.error, outcome.cold_us) == (0, None, None)


def test_rematch_repeats_the_prediction() -> None:
    runner, candidate = predicted(16)
    assert runner.rematch([candidate] * 2) == [runner.measure(candidate, None)] * 2


def test_prediction_has_no_baseline() -> None:
    assert PredictedRunner(SQUARE, H100).baseline() is None


def test_predicted_record_is_marked_and_kept_apart(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert tuned(store).evidence == "predicted"
    assert store.load(H100, SQUARE, "measured") is None


def test_best_prediction_is_the_models_first(tmp_path: Path) -> None:
    entries = tuned(Store(tmp_path)).entries
    resources = [entry.resources for entry in entries]
    times = [
        cost.predict(entry.config, SQUARE, H100, used)
        for entry, used in zip(entries, resources, strict=True)
    ]
    assert [entry.measurement.time_us for entry in entries] == sorted(times)
