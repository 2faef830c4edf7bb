"""Look-ups that leave a product to the vendor's library, because of its times on other problems."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_runner import tiled
from support.sample_records import H100, entry, record

from autotune.device import Device, find
from autotune.lookup import nearest
from autotune.lookup.answer import Answer, vendor_wins
from autotune.lookup.digest import RecordDigest
from autotune.lookup.lookup import lookup
from autotune.lookup.nearest import vendor_time_us
from autotune.lookup.neighbours import own
from autotune.measure.objective import HOT
from autotune.model import space
from autotune.problem import Problem
from autotune.records import Record, Records, Store, bundle
from autotune.roofline import least_hot_seconds

NEAR = Problem(4096, 4096, 2048)

ASKED = Problem(4096, 4096, 2052)


@pytest.fixture
def store(tmp_path: Path, no_candidates: None) -> Store:
    del no_candidates
    return Store(tmp_path)


def timed(problem: Problem, ours_us: float, vendor_us: float | None) -> Record:
    best = replace(entry(16, ours_us), config=tiled(16))
    return record(best, problem=problem, baseline_us=vendor_us)


def look_up(store: Store, problem: Problem = ASKED, device: Device = H100) -> Answer:
    answer = lookup(problem, device, store)
    assert answer is not None
    return answer


@pytest.mark.parametrize(("vendor_us", "vendor"), [(1400.0, True), (20000.0, False)])
def test_untuned_shape_goes_to_the_library_that_should_be_faster(
    vendor_us: float | None, vendor: bool, store: Store
) -> None:
    store.save(timed(NEAR, 8000.0, vendor_us))
    answer = look_up(store)
    assert (answer.how, answer.vendor) == ("nearest", vendor)
    assert ("cuBLAS is expected to be faster" in answer.note) == vendor


def test_remote_times_of_the_library_count_by_the_roofline(store: Store) -> None:
    small = Problem(16, 16, 16, "f16", "tt")
    store.save(timed(NEAR, 8000.0, None))
    store.save(timed(small, 5.0, 2e6 * least_hot_seconds(small, H100) + 6))
    vendor_us = look_up(store).vendor_us
    assert vendor_us == pytest.approx(2e6 * least_hot_seconds(ASKED, H100), 0.05)


def test_shipped_times_count_where_no_near_record_has_one(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("autotune.lookup.nearest.TEACHERS", 1)
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(tmp_path / "shipped"))
    (tmp_path / "shipped").mkdir()
    far = timed(replace(NEAR, k=1024), 8000.0, 1400.0)
    (tmp_path / "shipped" / "h100.jsonl.xz").write_bytes(bundle.dumps([far]))
    store.save(timed(NEAR, 8000.0, None))
    assert "cuBLAS is expected to be faster" in look_up(store).note


def test_library_that_was_never_timed_is_taken_to_be_faster(store: Store) -> None:
    store.save(timed(NEAR, 8000.0, None))
    answer = look_up(store)
    assert answer.vendor
    assert "cuBLAS is taken to be faster" in answer.note
    assert "never timed on compute capability 9.0" in answer.note


@pytest.mark.parametrize(("slower", "vendor"), [(1.0, True), (1.5, True), (2.5, False)])
def test_untimed_architecture_needs_a_gain_beyond_the_deviation(
    slower: float, vendor: bool, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library is as many times slower than the model's choice as on an H100, of which it is
    known."""
    monkeypatch.setattr(space, "feasible", lambda *_: space.Space((tiled(16),)))
    a100 = find("a100")
    untimed = look_up(store, ASKED, a100)
    assert untimed.time_us
    times = untimed.time_us / (1e6 * least_hot_seconds(ASKED, a100))
    for k in (1024, 2048, 4096):
        problem = replace(NEAR, k=k)
        least_us = 1e6 * least_hot_seconds(problem, H100)
        store.save(timed(problem, 80000.0, slower * times * least_us))
    answer = look_up(store, ASKED, a100)
    assert answer.vendor_us == pytest.approx(slower * untimed.time_us, 0.05)
    assert answer.vendor == vendor


def test_tensor_cores_that_no_kernel_uses_go_to_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nearest, "vendor_time_us", lambda *_: 1e9)
    for compute, vendor in (("bf16", True), ("f32", False)):
        answer = lookup(replace(ASKED, compute=compute), find("b200"), Store(tmp_path))
        assert answer is not None
        assert answer.vendor == vendor


def test_tuned_shape_runs_although_the_library_was_never_timed(store: Store) -> None:
    store.save(timed(ASKED, 8000.0, None))
    assert not look_up(store).vendor


@pytest.mark.parametrize(
    ("name", "compute", "reason"),
    [
        ("b200", "bf16", "no kernel here uses the tensor cores of Blackwell"),
        ("b200", "f32", "compute capability 10.0"),
        ("a100", "bf16", "compute capability 8.0"),
        ("t4", "f32", "compute capability 7.5"),
    ],
)
def test_untimed_architectures_name_the_reason(
    name: str, compute: str, reason: str, tmp_path: Path
) -> None:
    answer = lookup(Problem(64, 64, 64, compute), find(name), Store(tmp_path))
    assert answer is not None
    assert answer.vendor
    assert answer.note.endswith(f"{reason} (tcgen05)" if "Blackwell" in reason else reason)


def test_loss_against_the_library_is_that_of_other_cards(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(space, "feasible", lambda *_: space.Space((tiled(16),)))
    for k in (1024, 2048, 4096):
        problem = replace(NEAR, k=k)
        store.save(timed(problem, 8000.0, 1.2e6 * least_hot_seconds(problem, H100)))
    a100 = find("a100")
    answer = look_up(store, ASKED, a100)
    assert answer.time_us
    assert answer.vendor_us
    assert answer.vendor_us == pytest.approx(1.2e6 * least_hot_seconds(ASKED, a100), 0.02)
    assert answer.vendor_loss == pytest.approx(1 - answer.vendor_us / answer.time_us)


def digests_of(card: Device, store: Store) -> list[RecordDigest]:
    return [row for _, row in own(card, Records(store)).nearest(ASKED, card, 128)]


def test_times_of_another_model_stand_in_for_its_own(store: Store) -> None:
    h200 = find("h200")
    store.save(timed(NEAR, 8000.0, 1400.0))
    store.save(replace(timed(NEAR, 8000.0, 2800.0), device=h200))
    mine, others = (digests_of(card, store) for card in (h200, H100))
    assert vendor_time_us(ASKED, h200, others) is not None
    assert vendor_time_us(ASKED, h200, mine + others) == vendor_time_us(ASKED, h200, mine)


def test_prediction_scales_with_the_work(store: Store) -> None:
    for k in (1024, 2048, 4096):
        problem = replace(NEAR, k=k)
        least_us = 1e6 * least_hot_seconds(problem, H100)
        store.save(timed(problem, 8000.0, 1.2 * least_us))
    predicted = vendor_time_us(replace(NEAR, k=3072), H100, digests_of(H100, store))
    assert predicted == pytest.approx(1.2e6 * least_hot_seconds(replace(NEAR, k=3072), H100), 0.02)


def test_library_runs_no_gates() -> None:
    plain = Problem(4096, 4096, 2048, "bf16", "nt")
    gated, recorded = replace(plain, epilogue="swiglu"), timed(plain, 8000.0, 100.0)
    its_own = replace(recorded, problem=gated)
    assert vendor_wins(recorded, plain, HOT)
    assert not vendor_wins(its_own, gated, HOT)
