"""Look-ups that leave a product to the vendor's library, judged by its times on other problems."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_runner import tiled
from support.sample_records import H100, entry, record

from autotune.candidates import space
from autotune.device import find
from autotune.lookup.answer import Answer, vendor_wins
from autotune.lookup.lookup import lookup
from autotune.lookup.vendor_time import vendor_is_expected, vendor_time_us
from autotune.occupancy.roofline import least_hot_seconds
from autotune.problem import Problem
from autotune.records import Record, Records, Store

NEAR = Problem(4096, 4096, 2048)
ASKED = Problem(4096, 4096, 2052)


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr("autotune.lookup.portfolio.members_of", lambda *_: [])
    monkeypatch.setattr("autotune.lookup.portfolio.variants", lambda *_: [])
    monkeypatch.setattr(space, "feasible", lambda *_: space.Space(()))
    return Store(tmp_path)


def timed(problem: Problem, ours_us: float, vendor_us: float | None) -> Record:
    best = replace(entry(16, ours_us), config=tiled(16))
    return record(best, problem=problem, baseline_us=vendor_us)


def look_up(store: Store, problem: Problem = ASKED) -> Answer:
    answer = lookup(problem, H100, store)
    assert answer is not None
    return answer


@pytest.mark.parametrize(("vendor_us", "vendor"), [(1400.0, True), (20000.0, False), (None, False)])
def test_untuned_shape_goes_to_the_library_that_should_be_faster(
    vendor_us: float | None, vendor: bool, store: Store
) -> None:
    store.save(timed(NEAR, 8000.0, vendor_us))
    answer = look_up(store)
    assert (answer.how, answer.vendor) == ("nearest", vendor)
    assert ("cuBLAS is expected to be faster" in answer.note) == vendor


def test_remote_times_of_the_library_say_nothing(store: Store) -> None:
    store.save(timed(NEAR, 8000.0, None))
    store.save(timed(Problem(16, 16, 16, "f16", "tt"), 5.0, 0.1))
    assert look_up(store).vendor is False


def test_times_of_another_model_say_nothing(store: Store) -> None:
    store.save(timed(NEAR, 8000.0, 1400.0))
    records = Records(store).records(H100)
    assert vendor_time_us(ASKED, H100, records) is not None
    assert vendor_time_us(ASKED, find("h200"), records) is None


def test_prediction_scales_with_the_work(store: Store) -> None:
    for k in (1024, 2048, 4096):
        problem = replace(NEAR, k=k)
        least_us = 1e6 * least_hot_seconds(problem, H100)
        store.save(timed(problem, 8000.0, 1.2 * least_us))
    predicted = vendor_time_us(replace(NEAR, k=3072), H100, Records(store).records(H100))
    assert predicted == pytest.approx(1.2e6 * least_hot_seconds(replace(NEAR, k=3072), H100), 0.02)


def test_library_runs_no_gates() -> None:
    plain = Problem(4096, 4096, 2048, "bf16", "nt")
    gated, recorded = replace(plain, epilogue="swiglu"), timed(plain, 8000.0, 100.0)
    expected = H100, [recorded], 8000.0, 0.1
    assert vendor_is_expected(plain, *expected)
    assert not vendor_is_expected(gated, *expected)
    own = replace(recorded, problem=gated)
    assert vendor_wins(recorded, plain, "hot")
    assert not vendor_wins(own, gated, "hot")
