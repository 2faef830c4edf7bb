"""Runners that need no GPU: replays of recordings, and predictions of the cost model."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from support.fake_runner import (
    ORIGIN,
    compiled,
    crash,
    tiled,
    uncompiled,
)
from support.sample_records import H100, SQUARE

from autotune.errors import AutotuneError, NotFoundError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure import recording
from autotune.measure.measurement import Estimate, Failure, Measurement
from autotune.measure.recording import Recording, SweepRow
from autotune.measure.runner import Candidate
from autotune.measure.without_gpu import PredictedRunner, ReplayRunner, noisy
from autotune.model import cost
from autotune.problem import Problem
from autotune.records import Record, Store
from autotune.tuning.loop import Search, tune
from autotune.tuning.pipeline import prepare
from autotune.tuning.trial_log import read
from autotune.tuning.trials import Trial
from autotune.tuning.tunable import GemmTunable

NAIVE = Config.of("naive", {"mapping": "coalesced", "block": 16})


def resources_of(width: int) -> Resources:
    return Resources(width**2, 32, 8 * width**2)


def recorded() -> Recording:
    """A recording of two families, with one crash among the tiled widths."""
    rows = [
        SweepRow(
            tiled(width),
            resources_of(width),
            Measurement(100.125 + width % 7, 0.5, 20, 120.5, 1e-4, 1e-3),
        )
        for width in range(4, 32)
    ]
    rows.append(SweepRow(tiled(32), resources_of(32), crash(tiled(32))))
    rows.append(SweepRow(NAIVE, Resources(256, 30, 0), Measurement(900.0)))
    baseline = Measurement(90.5, 0.1, 30, 95.0)
    return Recording(SQUARE, H100, ORIGIN, "2026-11-21T12:00:00+00:00", baseline, tuple(rows))


def ready(config: Config, runner: ReplayRunner) -> Candidate:
    candidate = prepare(registry.plan(config, SQUARE), runner, uncompiled)
    assert isinstance(candidate, Candidate)
    return candidate


def outcomes(runner: ReplayRunner, configs: Iterable[Config]) -> list[Measurement | Failure]:
    return [runner.measure(ready(config, runner), None) for config in configs]


def time_of(outcome: Measurement | Failure) -> float:
    assert isinstance(outcome, Measurement)
    return outcome.time_us


def test_recording_is_read_back_as_it_was(tmp_path: Path) -> None:
    path = recording.path_of("h100", SQUARE, tmp_path)
    recorded().save(path)
    assert Recording.load(path) == recorded()


def test_same_recording_gives_the_same_bytes(tmp_path: Path) -> None:
    recorded().save(tmp_path / "a.json.gz")
    recorded().save(tmp_path / "b.json.gz")
    assert (tmp_path / "a.json.gz").read_bytes() == (tmp_path / "b.json.gz").read_bytes()


def test_recording_replaces_the_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    recorded().save(path)
    recorded().save(path)
    assert list(tmp_path.iterdir()) == [path]


def test_missing_recording_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"none\.json\.gz"):
        Recording.load(tmp_path / "none.json.gz")


def packed(data: bytes) -> bytes:
    """gzip without a timestamp, which would make the test IDs differ between runs."""
    return gzip.compress(data, mtime=0)


def changed(key: str, value: object) -> bytes:
    data = {
        "schema": 1,
        "problem": str(SQUARE),
        "device": H100.to_json(),
        "origin": {"driver": "", "compiler": "", "source": ""},
        "date": "",
        "baseline": None,
        "families": {},
    }
    return packed(json.dumps({**data, key: value}).encode())


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no gzip",
        packed(b"{}")[:-9],
        packed(b"{"),
        packed(b"[]"),
        packed(b"\xff"),
        changed("schema", 2),
        changed("problem", "4096"),
        changed("device", {}),
        changed("device", 7),
        changed("baseline", {"hours": 1}),
        changed("origin", None),
        changed("families", {"tiled": {"params": {"tile_width": [8]}}}),
        changed("families", []),
    ],
)
def test_broken_file_is_named(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "broken.json.gz"
    path.write_bytes(data)
    with pytest.raises(AutotuneError, match=r"broken\.json\.gz: not a recording that can be used"):
        Recording.load(path)


def test_columns_of_different_lengths_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "short.json.gz"
    recorded().save(path)
    data = json.loads(gzip.decompress(path.read_bytes()))
    data["families"]["tiled"]["time_us"].pop()
    path.write_bytes(gzip.compress(json.dumps(data).encode()))
    with pytest.raises(AutotuneError, match=r"columns of tiled have \[28, 29\] rows"):
        Recording.load(path)


def test_recordings_are_listed_with_their_problems(tmp_path: Path) -> None:
    small = Problem(128, 64, 32)
    for problem in (SQUARE, small):
        replace(recorded(), problem=problem).save(recording.path_of("h100", problem, tmp_path))
    assert recording.names(tmp_path) == {"h100": (small, SQUARE)}


def test_missing_problem_lists_the_recorded_ones(tmp_path: Path) -> None:
    recorded().save(recording.path_of("h100", SQUARE, tmp_path))
    with pytest.raises(NotFoundError, match="it holds 4096x4096x4096:f32:nn"):
        recording.find("h100", Problem(1, 2, 3), tmp_path)


def test_missing_name_lists_the_recordings(tmp_path: Path) -> None:
    recorded().save(recording.path_of("h100", SQUARE, tmp_path))
    with pytest.raises(NotFoundError, match="'b200'; there is h100"):
        recording.find("b200", SQUARE, tmp_path)


def test_empty_folder_has_no_recordings(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="there is none"):
        recording.find("h100", SQUARE, tmp_path / "nowhere")


def test_saved_recording_is_found(tmp_path: Path) -> None:
    recorded().save(recording.path_of("h100", SQUARE, tmp_path))
    assert recording.find("h100", SQUARE, tmp_path) == recorded()


def test_times_scatter_as_recorded() -> None:
    runner = ReplayRunner(recorded())
    times = [time_of(outcome) for outcome in outcomes(runner, [tiled(10)] * 4000)]
    drawn = Estimate.of(times)
    assert drawn.median == pytest.approx(103.125, abs=0.05)
    assert drawn.spread == pytest.approx(0.5, rel=0.06)


def test_only_the_time_of_a_measurement_varies() -> None:
    outcome = outcomes(ReplayRunner(recorded()), [tiled(10)])[0]
    assert isinstance(outcome, Measurement)
    assert replace(outcome, time_us=0.0) == Measurement(0.0, 0.5, 20, 120.5, 1e-4, 1e-3)


def test_noise_follows_from_the_seed() -> None:
    configs = [tiled(width) for width in range(4, 33)]
    first, same, different = (
        outcomes(ReplayRunner(recorded(), seed), configs) for seed in (1, 1, 2)
    )
    assert first == same
    assert first != different


def test_recorded_failure_fails_again() -> None:
    assert outcomes(ReplayRunner(recorded()), [tiled(32)]) == [crash(tiled(32))]


def test_unrecorded_configuration_fails() -> None:
    runner = ReplayRunner(recorded())
    unrecorded = replace(ready(tiled(8), runner), config=tiled(8, specialized=0))
    assert isinstance(runner.measure(unrecorded, None), Failure)


def test_replay_is_marked_as_replayed(tmp_path: Path) -> None:
    store = Store(tmp_path)
    saved = tune(
        GemmTunable(SQUARE, "tiled"),
        ReplayRunner(recorded()),
        store,
        Search(),
        compile=uncompiled,
        origin=recorded().origin,
    )
    assert (saved.evidence, saved.baseline) == ("replayed", recorded().baseline)
    assert store.load(H100, SQUARE, "measured") is None


def test_same_seed_gives_the_same_trials_and_record(tmp_path: Path) -> None:
    def once(name: str) -> tuple[object, list[Trial]]:
        store = Store(tmp_path / name)
        options = Search(trials=24, seed=11)
        runner = ReplayRunner(recorded(), seed=11)
        tiles = GemmTunable(SQUARE, "tiled")
        saved = tune(tiles, runner, store, options, compile=uncompiled, origin=ORIGIN)
        [path] = (tmp_path / name / "studies").rglob("*.jsonl")
        return saved.entries, [row.trial for row in read(path).trials]

    assert once("a") == once("b")


def test_spread_far_above_the_time_gives_a_finite_time() -> None:
    wild = Measurement(1e-3, 1e11)
    noise = Random(0)
    times = [noisy(wild, noise).time_us for _ in range(100)]
    assert all(0 < time < float("inf") for time in times)


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
