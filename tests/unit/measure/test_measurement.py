"""Measurements: medians, spreads and ties of times, and the fields that files have."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sample_records import H100, SQUARE, entry

from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.files.decoding import convert
from autotune.measure.measurement import (
    Estimate,
    Failure,
    Measurement,
    TimeEstimate,
    tied,
    without_drift,
)
from autotune.measure.objective import winner
from autotune.measure.recording import Origin, Recording, SweepRow

MEASURED = Measurement(12.5, 0.25, 20, 13.0, 1e-4, 1e-3, 7.5e-7)


def recorded(outcome: Measurement | Failure, baseline: Measurement | None = MEASURED) -> Recording:
    row = SweepRow(
        Config.parse("tiled:tile_width=16,specialized=1"), Resources(256, 32, 2048), outcome
    )
    origin = Origin("13.0", "NVRTC 13.5", "5e1f")
    return Recording(SQUARE, H100, origin, "2026-11-21T12:00:00+00:00", baseline, (row,))


def rewritten(path: Path, change: Any) -> None:
    data = json.loads(gzip.decompress(path.read_bytes()))
    change(data)
    path.write_bytes(gzip.compress(json.dumps(data).encode()))


def without_relative_errors(data: dict[str, Any]) -> None:
    del data["baseline"]["relative_error"]
    del data["families"]["tiled"]["relative_error"]


@pytest.mark.parametrize(
    "outcome", [MEASURED, Failure("accuracy", "relative error 1e-06 is 2.0 times the vendor's")]
)
def test_recording_keeps_relative_errors(tmp_path: Path, outcome: Measurement | Failure) -> None:
    recorded(outcome).save(path := tmp_path / "one.json.gz")
    assert Recording.load(path) == recorded(outcome)


def test_recording_without_relative_errors_is_read(tmp_path: Path) -> None:
    recorded(MEASURED).save(path := tmp_path / "old.json.gz")
    rewritten(path, without_relative_errors)
    older = replace(MEASURED, relative_error=None)
    assert Recording.load(path) == recorded(older, older)


def test_record_keeps_the_relative_error() -> None:
    assert convert(asdict(MEASURED), Measurement, "measurement") == MEASURED


def test_record_without_a_relative_error_is_read() -> None:
    old = {name: value for name, value in asdict(MEASURED).items() if name != "relative_error"}
    older = replace(MEASURED, relative_error=None)
    assert convert(old, Measurement, "measurement") == older


@pytest.mark.parametrize("wrong", ["1e-6", float("nan"), float("inf"), True])
def test_invalid_relative_error_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="relative_error"):
        convert(asdict(MEASURED) | {"relative_error": wrong}, Measurement, "measurement")


_samples = st.lists(st.floats(min_value=0.1, max_value=1e6), min_size=1, max_size=50)


def test_estimate_is_median_and_half_interquartile_range() -> None:
    assert Estimate.of([5.0, 1.0, 2.0, 4.0, 3.0]) == Estimate(median=3.0, spread=1.0, samples=5)


@given(_samples)
def test_quartiles_match_numpy(samples: list[float]) -> None:
    low, median, high = np.quantile(samples, [0.25, 0.5, 0.75])
    estimate = Estimate.of(samples)
    assert (estimate.median, estimate.spread) == pytest.approx((median, (high - low) / 2))


def test_one_sample_has_no_spread() -> None:
    assert Estimate.of([7.0]) == Estimate(7.0, 0.0, 1)


@pytest.mark.parametrize("samples", [[], [1.0, math.nan], [math.inf]])
def test_no_samples_or_no_numbers_are_refused(samples: list[float]) -> None:
    with pytest.raises(ValueError, match="samples"):
        Estimate.of(samples)


@pytest.mark.parametrize("spreads", [(0.0, 0.0), (3.0, 0.0), (9.0, 9.0)])
@pytest.mark.parametrize(("faster", "slower", "tie"), [(100, 100.5, True), (100, 100.6, False)])
def test_times_within_half_a_percent_are_tied(
    faster: float, slower: float, tie: bool, spreads: tuple[float, float]
) -> None:
    times = Measurement(faster, spreads[0]), Measurement(slower, spreads[1])
    assert (tied(*times), tied(*times[::-1])) == (tie, tie)


def test_equal_times_without_spread_are_tied() -> None:
    assert tied(Measurement(100.0), Measurement(100.0))


def test_fastest_wins_if_nothing_ties_with_it() -> None:
    assert winner([entry(8, 103.0, 1.0), entry(32, 100.0, 1.0)]) == entry(32, 100.0, 1.0)


def test_leanest_of_the_tied_wins() -> None:
    assert winner([entry(32, 100.0, 1.0), entry(8, 100.4, 1.0)]) == entry(8, 100.4, 1.0)


def test_time_of_scattered_samples_does_not_win_by_luck() -> None:
    assert winner([entry(8, 95.0, 20.0), entry(32, 100.0, 1.0)]) == entry(32, 100.0, 1.0)


def test_ties_with_the_fastest_do_not_chain() -> None:
    chain = [entry(32, 100.0, 1.0), entry(16, 100.4, 1.0), entry(8, 100.8, 1.0)]
    assert winner(chain) == entry(16, 100.4, 1.0)


def test_text_decides_between_equal_resources() -> None:
    first = entry(16, 100.0, 1.0)
    second = replace(first, config=entry(17, 1.0).config)
    assert winner([second, first]) == first


def test_neighbouring_floats_have_no_negative_spread() -> None:
    assert Estimate.of([0.1, 0.10000000000000002]).spread == 0


@given(st.lists(st.tuples(st.integers(4, 32), _samples), min_size=1, unique_by=lambda c: c[0]))
def test_order_of_contenders_does_not_matter(cases: list[tuple[int, list[float]]]) -> None:
    estimates = [(width, Estimate.of(samples)) for width, samples in cases]
    contenders = [entry(width, estimate.median, estimate.spread) for width, estimate in estimates]
    assert winner(contenders) == winner(contenders[::-1])


def test_chosen_time_can_decide() -> None:
    hot, cold = entry(8, 100.0), entry(32, 200.0)
    times = {hot.config: TimeEstimate(9.0, 0.1), cold.config: TimeEstimate(5.0, 0.1)}
    assert winner([hot, cold], timed=lambda contender: times[contender.config]) == cold


def test_ties_use_the_chosen_time() -> None:
    lean, heavy = entry(8, 200.0), entry(32, 100.0)
    times = {lean.config: TimeEstimate(5.02, 0.1), heavy.config: TimeEstimate(5.0, 0.1)}
    assert winner([lean, heavy], timed=lambda contender: times[contender.config]) == lean


def test_no_contenders_are_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        winner([])


# Samples of runs that took turns


def drifting(*times: float, noise: float = 0.0) -> list[list[float]]:
    """25 rounds of runs; the clock falls by 8 % meanwhile, and each sample has its own noise."""
    random = np.random.default_rng(4)
    return [
        [time * (1 + 0.08 * place / 24) * (1 + random.normal(0, noise)) for place in range(25)]
        for time in times
    ]


@pytest.mark.parametrize("count", [2, 3, 10])
def test_drift_of_the_clock_leaves_no_spread(count: int) -> None:
    times = [100.0 + 3 * place for place in range(count)]
    estimates = [*map(Estimate.of, without_drift(drifting(*times)))]
    assert [estimate.spread for estimate in estimates] == pytest.approx([0.0] * count, abs=1e-9)
    ratios = [estimate.median / estimates[0].median for estimate in estimates]
    assert ratios == pytest.approx([time / times[0] for time in times])


def test_level_of_the_times_stays() -> None:
    samples = drifting(100.0, 103.0, 250.0, noise=0.01)
    for drifted, freed in zip(samples, without_drift(samples), strict=True):
        assert np.median(freed) == pytest.approx(np.median(drifted), rel=0.01)


def test_own_noise_of_a_run_stays() -> None:
    noisy = [100.0, 130.0, 70.0, 100.0, 90.0]
    others = [[10.0] * 5, [20.0] * 5, [30.0] * 5]
    assert without_drift([noisy, *others]) == [*map(tuple, [noisy, *others])]


def test_samples_of_a_single_run_stay() -> None:
    assert without_drift([[3.0, 4.0]]) == [(3.0, 4.0)]


def test_nothing_was_timed() -> None:
    assert without_drift([]) == []
