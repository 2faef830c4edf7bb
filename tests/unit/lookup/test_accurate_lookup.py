"""Look-ups of configurations whose predicted error keeps the promised bound."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.sample_records import H100, entry, record

from autotune.families import registry
from autotune.families.config import Config
from autotune.lookup.lookup import lookup
from autotune.model import space
from autotune.problem import Problem
from autotune.records import Entry, Store, ranges
from autotune.records.ranges import Range, Segment

TUNED = Problem(1024, 1024, 1024, "f32")
LONGER = Problem(1024, 1024, 1032, "f32")
SIMT = (
    "simt:bm=128,bn=64,wm=64,wn=32,tm=8,tn=8,slices=1,bk=16,copy=async,stages=3,fragments=2,"
    "min_blocks=1,split_k={},reduction={},workers=0,chunks=1,pack=none,group=1,fence=0,order=snake"
)
WHOLE = Config.parse(SIMT.format(1, "none"))
SPLIT = Config.parse(SIMT.format(2, "fused"))

pytestmark = pytest.mark.usefixtures("no_candidates")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """An empty store; the model has the configuration in one sum to choose."""
    monkeypatch.setattr(space, "feasible", lambda *_: space.Space((WHOLE,)))
    return Store(tmp_path)


def timed(config: Config, time_us: float) -> Entry:
    resources = registry.find(config.family).estimate(config, TUNED)
    return replace(entry(16, time_us), config=config, resources=resources)


def chosen(store: Store, problem: Problem) -> Config:
    answer = lookup(problem, H100, store)
    assert answer is not None
    return answer.config


def test_neighbours_fastest_kernel_is_passed_over_if_inaccurate(store: Store) -> None:
    store.save(record(timed(WHOLE, 100.0), timed(SPLIT, 300.0), problem=TUNED))
    assert (chosen(store, TUNED), chosen(store, LONGER)) == (WHOLE, SPLIT)


def test_ranges_kernel_is_passed_over_if_inaccurate(store: Store) -> None:
    store.save(record(timed(WHOLE, 100.0), timed(SPLIT, 300.0), problem=TUNED))
    ranges.save(store.root, Range(H100, LONGER, "k", (Segment(1024, 1032, 1024),)))
    assert chosen(store, LONGER) == SPLIT


@pytest.mark.parametrize(("vendor_error", "config"), [(5.5e-7, WHOLE), (3e-7, SPLIT)])
def test_recorded_error_of_the_vendor_decides(
    vendor_error: float, config: Config, store: Store
) -> None:
    tuned = record(timed(WHOLE, 100.0), timed(SPLIT, 300.0), problem=TUNED, baseline_us=200.0)
    assert tuned.baseline is not None
    baseline = replace(tuned.baseline, relative_error=vendor_error)
    store.save(replace(tuned, baseline=baseline))
    assert chosen(store, replace(TUNED, epilogue="relu")) == config


def test_model_chooses_among_accurate_kernels(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        space,
        "feasible",
        lambda _problem, _, family, *__: space.Space((WHOLE, SPLIT) if family == "simt" else ()),
    )
    assert chosen(store, LONGER) == SPLIT


@pytest.mark.parametrize(("error", "config"), [(1.4e-6, WHOLE), (1.7e-6, SPLIT)])
def test_record_of_a_looser_bound_answers_with_what_keeps_todays(
    error: float, config: Config, store: Store
) -> None:
    entries = [
        replace(made, measurement=replace(made.measurement, relative_error=measured))
        for made, measured in ((timed(WHOLE, 100.0), error), (timed(SPLIT, 300.0), 8e-7))
    ]
    tuned = record(*entries, problem=TUNED, baseline_us=200.0)
    assert tuned.baseline is not None
    store.save(replace(tuned, baseline=replace(tuned.baseline, relative_error=1e-6)))
    assert chosen(store, TUNED) == config
