"""Merging two records, and stale records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.sample_records import H100, SQUARE, entry, record

from autotune.records import Entry, Record, Store
from autotune.records.codec import loads
from autotune.records.merging import comparable, reconcile, stale
from autotune.runners.base import Evidence, Measurement
from autotune.runners.recording import Origin

# The origin of `record`.
TODAY = Origin("13.0", "NVRTC 13.0", "5e1f")


def _timed(width: int, time_us: float, spread_us: float = 1.0, samples: int = 20) -> Entry:
    return replace(entry(width, time_us), measurement=Measurement(time_us, spread_us, samples))


def _made(*entries: Entry, date: str = "2026-11-21T12:00:00Z", **changed: Any) -> Record:
    """A record with the origin `TODAY`, changed by `changed`."""
    made = record(*entries)
    return replace(made, provenance=replace(made.provenance, date=date, **changed))


def _times(merged: Record) -> list[float]:
    return [entry.measurement.time_us for entry in merged.entries]


# Of two stores


def test_entries_of_the_same_origin_are_merged() -> None:
    merged = reconcile(_made(_timed(8, 100.0)), _made(_timed(16, 90.0)), TODAY)
    assert _times(merged) == [90.0, 100.0]


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (_timed(8, 100.0, 2.0, samples=25), _timed(8, 90.0, 1.0, samples=20)),
        (_timed(8, 100.0, 1.0), _timed(8, 90.0, 2.0)),
        # 1 % of the time against 1.1 %
        (_timed(8, 110.0, 1.1), _timed(8, 100.0, 1.1)),
    ],
    ids=["more samples", "a smaller spread", "a smaller share"],
)
def test_better_measurement_of_a_configuration_stands(better: Entry, worse: Entry) -> None:
    for a, b in ((better, worse), (worse, better)):
        assert reconcile(_made(a), _made(b), TODAY).entries == (better,)


def _with_cold(entry: Entry, cold_us: float) -> Entry:
    measurement = replace(entry.measurement, cold_us=cold_us, cold_spread_us=0.5)
    return replace(entry, measurement=measurement)


def test_cold_time_of_the_worse_measurement_is_kept() -> None:
    better, worse = _timed(8, 100.0, samples=25), _with_cold(_timed(8, 90.0), 140.0)
    for a, b in ((better, worse), (worse, better)):
        assert reconcile(_made(a), _made(b), TODAY).entries == (_with_cold(better, 140.0),)


def test_cold_time_of_the_better_measurement_stands() -> None:
    better = _with_cold(_timed(8, 100.0, samples=25), 150.0)
    merged = reconcile(_made(better), _made(_with_cold(_timed(8, 90.0), 140.0)), TODAY)
    assert merged.entries == (better,)


def test_run_without_a_cold_time_keeps_the_old_one(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.save(_made(_with_cold(_timed(8, 90.0), 140.0)))
    assert store.save(_made(_timed(8, 95.0))).entries == (_with_cold(_timed(8, 95.0), 140.0),)


def test_better_baseline_stands() -> None:
    a, b = _made(), _made()
    few, many = Measurement(80.0, samples=3), Measurement(82.0, samples=25)
    merged = reconcile(replace(a, baseline=few), replace(b, baseline=many), TODAY)
    assert merged.baseline == many


def test_later_provenance_stands() -> None:
    old, new = _made(date="2026-11-21T12:00:00Z"), _made(date="2026-11-22T12:00:00+00:00")
    assert reconcile(new, old, TODAY).provenance == new.provenance


@pytest.mark.parametrize("older", [{"source": "0ld"}, {"compiler": "NVRTC 12.8"}, {"driver": "12"}])
def test_older_record_of_todays_origin_stands(
    older: dict[str, str],
) -> None:
    ours = _made(_timed(8, 100.0), date="2026-01-01T12:00:00Z")
    theirs = _made(_timed(16, 50.0), date="2026-02-01T12:00:00Z", **older)
    assert reconcile(ours, theirs, TODAY) == reconcile(theirs, ours, TODAY) == ours


def test_sources_outweigh_driver_and_compiler() -> None:
    ours = _made(driver="12.8", compiler="NVRTC 12.8")
    assert reconcile(ours, _made(source="0ld"), TODAY) == ours


@pytest.mark.parametrize("today", [None, Origin("12.4", "NVRTC 12.4", "another")])
def test_without_a_matching_origin_the_later_stands(today: Origin | None) -> None:
    old, new = _made(date="2026-01-01T12:00:00Z"), _made(driver="12.8", date="2026-02-01T12:00:00Z")
    assert reconcile(new, old, today) == new


def test_unknown_driver_decides_nothing() -> None:
    today = replace(TODAY, driver="")
    old, new = _made(date="2026-01-01T12:00:00Z"), _made(driver="12.8", date="2026-02-01T12:00:00Z")
    assert reconcile(new, old, today) == new


_entries = st.builds(
    _timed,
    st.integers(4, 6),
    st.sampled_from([90.0, 100.0, 110.0]),
    st.sampled_from([1.0, 2.0]),
    st.sampled_from([3, 25]),
)
_records = st.builds(
    lambda entries, date, driver: _made(*entries, date=date, driver=driver),
    st.lists(_entries, min_size=1, max_size=3, unique_by=lambda entry: entry.config),
    st.sampled_from(["2026-01-01T12:00:00Z", "2026-02-01T12:00:00Z"]),
    st.sampled_from(["13.0", "12.8"]),
)


@given(_records, _records)
def test_order_of_two_stores_does_not_matter(a: Record, b: Record) -> None:
    assert reconcile(a, b, TODAY) == reconcile(b, a, TODAY)


@given(_records, _records)
def test_merging_again_changes_nothing(a: Record, b: Record) -> None:
    merged = reconcile(a, b, TODAY)
    assert reconcile(merged, b, TODAY) == merged


# In the store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


def test_adopting_an_unknown_record_is_new(store: Store) -> None:
    assert store.adopt(_made(), TODAY) == "new"
    assert store.load(H100, SQUARE) == _made()


def test_adopting_more_entries_is_better(store: Store) -> None:
    store.save(_made(_timed(8, 100.0)))
    assert store.adopt(_made(_timed(16, 90.0)), TODAY) == "better"
    merged = store.load(H100, SQUARE)
    assert merged is not None
    assert _times(merged) == [90.0, 100.0]


def test_adopting_the_same_record_is_equal(store: Store) -> None:
    saved = store.save(_made())
    before = store.path(H100, SQUARE).stat().st_mtime_ns
    assert store.adopt(saved, TODAY) == "equal"
    assert store.path(H100, SQUARE).stat().st_mtime_ns == before


def test_record_of_older_kernels_is_passed_over(store: Store) -> None:
    saved = store.save(_made())
    assert store.adopt(_made(_timed(8, 1.0), source="0ld"), TODAY) == "passed over"
    assert store.load(H100, SQUARE) == saved


def test_replaced_record_is_kept_beside(store: Store) -> None:
    old = store.save(_made(source="0ld"))
    assert store.adopt(_made(), TODAY) == "better"
    beside = store.path(H100, SQUARE).with_name("4096x4096x4096-f32-nn.json.superseded-1")
    assert loads(beside.read_bytes()) == old


@pytest.mark.parametrize("older", [{"source": "0ld"}, {"compiler": "NVRTC 12.8"}, {"driver": "12"}])
def test_tuning_merges_no_times_of_another_origin(store: Store, older: dict[str, str]) -> None:
    store.save(_made(_timed(8, 1.0), **older))
    assert _times(store.save(_made(_timed(16, 90.0)))) == [90.0]


def test_baseline_of_another_driver_is_not_kept(store: Store) -> None:
    store.save(replace(_made(driver="12.8"), baseline=Measurement(80.0)))
    assert store.save(_made()).baseline is None


def test_withdrawn_record_is_kept_beside(store: Store) -> None:
    saved = store.save(_made())
    aside = store.withdraw(saved)
    assert loads(aside.read_bytes()) == saved
    assert store.load(H100, SQUARE) is None


# Out of date


def test_record_of_todays_origin_is_not_stale() -> None:
    assert stale(_made(), TODAY) is None


@pytest.mark.parametrize(
    ("older", "message"),
    [
        ({"driver": "12.8"}, "driver 12.8, now 13.0"),
        ({"compiler": "NVRTC 12.8"}, "compiler NVRTC 12.8, now NVRTC 13.0"),
        ({"source": "0123456789abcdef"}, "kernel sources 0123456789ab, now 5e1f"),
        ({"driver": "12.8", "source": "0ld"}, "driver 12.8, now 13.0; kernel sources 0ld, now"),
    ],
)
def test_change_makes_a_record_stale(older: dict[str, str], message: str) -> None:
    assert str(stale(_made(**older), TODAY)).startswith(message)


def test_unknown_fields_make_nothing_stale() -> None:
    assert stale(_made(driver="12.8"), replace(TODAY, driver="")) is None


@pytest.mark.parametrize("evidence", ["replayed", "predicted"])
def test_only_measured_records_become_stale(evidence: Evidence) -> None:
    assert stale(replace(_made(source="0ld"), evidence=evidence), TODAY) is None


def test_provenance_and_origin_compare_the_same() -> None:
    assert comparable(_made().provenance, TODAY)


def refused(made: Record) -> Record:
    """The record of a run in which the vendor library's result was wrong."""
    return replace(made, baseline=None, provenance=replace(made.provenance, baseline_fault="wrong"))


def test_refused_baseline_replaces_an_earlier_time(store: Store) -> None:
    timed = replace(_made(), baseline=Measurement(800.0))
    store.save(timed)
    saved = store.save(refused(_made()))
    assert (saved.baseline, saved.provenance.baseline_fault) == (None, "wrong")
    assert store.load(H100, SQUARE) == saved
    again = store.save(timed)
    assert (again.baseline, again.provenance.baseline_fault) == (Measurement(800.0), "")


def test_run_without_a_library_keeps_the_refusal(store: Store) -> None:
    store.save(refused(_made()))
    assert store.save(_made()).provenance.baseline_fault == "wrong"


def test_baseline_that_one_store_saw_refused_does_not_stand() -> None:
    timed = replace(_made(), baseline=Measurement(800.0))
    for pair in ((timed, refused(_made())), (refused(_made()), timed)):
        merged = reconcile(*pair, TODAY)
        assert (merged.baseline, merged.provenance.baseline_fault) == (None, "wrong")
