"""Merging two records, and stale records."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fake_runner import UNKNOWN
from support.sample_records import H100, SQUARE, entry, record

from autotune.families.config import Config
from autotune.families.source_text import joined
from autotune.measure.measurement import Evidence, Measurement
from autotune.measure.recording import Origin
from autotune.records import Entry, Record, Store
from autotune.records.codec import loads
from autotune.records.merging import changes, made_from, merge, reconcile, sources_of, stale

# The origin of `record`.
TODAY = Origin("13.0", "NVRTC 13.0", "5e1f")


def _timed(width: int, time_us: float, spread_us: float = 1.0, samples: int = 20) -> Entry:
    return replace(entry(width, time_us), measurement=Measurement(time_us, spread_us, samples))


def _made(*entries: Entry, date: str = "2026-11-21T12:00:00Z", **changed: Any) -> Record:
    """A record with the origin `TODAY`, changed by `changed`."""
    made = record(*entries)
    return replace(made, provenance=replace(made.provenance, date=date, **changed))


# What a machine has whose kernels of three families are compiled from sources of their own.
FAMILIES = {"mma": "3a", "naive": "1a", "tiled": "2a"}
BY_FAMILY = replace(TODAY, source=joined(FAMILIES))


def _of(family: str, time_us: float, width: int = 8) -> Entry:
    """An entry of a family."""
    return replace(_timed(width, time_us), config=Config.of(family, {"width": width}))


def _from(*entries: Entry, **sources: str) -> Record:
    """A record of several families, with the sources of each; by default today's."""
    families = {entry.config.family for entry in entries}
    text = joined({name: sources.get(name, FAMILIES[name]) for name in families})
    return _made(*entries, source=text)


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


def test_baseline_of_the_winners_round_stands() -> None:
    winner, other = _made(_timed(16, 90.0)), _made(_timed(8, 95.0))
    beside, steady = Measurement(99.0, samples=3), Measurement(120.0, samples=25)
    a, b = replace(winner, baseline=beside), replace(other, baseline=steady)
    assert reconcile(a, b, TODAY).baseline == beside
    assert reconcile(winner, b, TODAY).baseline == steady


def test_later_provenance_stands() -> None:
    old, new = _made(date="2026-11-21T12:00:00Z"), _made(date="2026-11-22T12:00:00+00:00")
    assert reconcile(new, old, TODAY).provenance == new.provenance


TOOLS = [{"compiler": "NVRTC 12.8"}, {"driver": "12"}]


def test_older_record_of_todays_sources_stands() -> None:
    ours = _made(_timed(8, 100.0), date="2026-01-01T12:00:00Z")
    theirs = _made(_timed(16, 50.0), date="2026-02-01T12:00:00Z", source="0ld")
    assert reconcile(ours, theirs, TODAY) == reconcile(theirs, ours, TODAY) == ours


@pytest.mark.parametrize("older", TOOLS)
def test_entries_of_other_tools_join_todays_record(older: dict[str, str]) -> None:
    ours = _made(_timed(8, 100.0), date="2026-01-01T12:00:00Z")
    theirs = _made(_timed(16, 50.0), date="2026-02-01T12:00:00Z", **older)
    merged = reconcile(ours, theirs, TODAY)
    assert merged == reconcile(theirs, ours, TODAY)
    assert (_times(merged), merged.provenance) == ([50.0, 100.0], ours.provenance)


def test_baseline_of_another_driver_does_not_join() -> None:
    ours, theirs = _made(), replace(_made(driver="12.8"), baseline=Measurement(80.0))
    assert reconcile(ours, theirs, TODAY).baseline is None
    same = replace(theirs, provenance=replace(theirs.provenance, driver="13.0"))
    assert reconcile(ours, same, TODAY).baseline == Measurement(80.0)


def test_sources_outweigh_driver_and_compiler() -> None:
    ours = _made(driver="12.8", compiler="NVRTC 12.8")
    assert reconcile(ours, _made(source="0ld"), TODAY) == ours


@pytest.mark.parametrize("today", [UNKNOWN, Origin("12.4", "NVRTC 12.4", "another")])
def test_without_a_matching_origin_the_later_stands(today: Origin) -> None:
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
_dates = st.sampled_from(["2026-01-01T12:00:00Z", "2026-02-01T12:00:00Z"])
_drivers = st.sampled_from(["13.0", "12.8"])
_single = st.builds(
    lambda entries, date, driver: _made(*entries, date=date, driver=driver),
    st.lists(_entries, min_size=1, max_size=3, unique_by=lambda entry: entry.config),
    _dates,
    _drivers,
)


def _mixed(
    entries: list[Entry], sources: dict[str, str] | str, date: str, driver: str, quick: bool
) -> Record:
    families = {entry.config.family for entry in entries}
    named = sources if isinstance(sources, str) else joined({it: sources[it] for it in families})
    return _made(*entries, source=named, date=date, driver=driver, quick=quick)


_mixed_records = st.builds(
    _mixed,
    st.lists(
        st.builds(
            _of,
            st.sampled_from([*FAMILIES]),
            st.sampled_from([90.0, 100.0, 110.0]),
            st.integers(4, 5),
        ),
        min_size=1,
        max_size=4,
        unique_by=lambda entry: entry.config,
    ).map(lambda entries: sorted(entries, key=lambda entry: entry.rank)),
    st.sampled_from(["0ld", "0lder"])
    | st.fixed_dictionaries(
        {name: st.sampled_from([now, f"{now}0ld"]) for name, now in FAMILIES.items()}
    ),
    _dates,
    _drivers,
    st.booleans(),
)
_records = _single | _mixed_records
_todays = st.sampled_from([TODAY, BY_FAMILY, UNKNOWN])


@given(_records, _records, _todays)
def test_order_of_two_stores_does_not_matter(a: Record, b: Record, today: Origin) -> None:
    assert reconcile(a, b, today) == reconcile(b, a, today)


@given(_records, _records, _todays)
def test_merging_again_changes_nothing(a: Record, b: Record, today: Origin) -> None:
    merged = reconcile(a, b, today)
    assert reconcile(merged, a, today) == reconcile(merged, b, today) == merged


@given(_records, _records, _todays)
def test_merged_entries_keep_their_sources(a: Record, b: Record, today: Origin) -> None:
    merged = reconcile(a, b, today)
    known = {
        (entry.config.family, sources_of(record)[entry.config.family])
        for record in (a, b)
        for entry in record.entries
    }
    assert {*sources_of(merged).items()} <= known


@given(_records, _records)
def test_tuning_keeps_entries_of_its_own_sources_alone(old: Record, new: Record) -> None:
    run = replace(new, provenance=replace(new.provenance, source=BY_FAMILY.source))
    merged = merge(old, run)
    assert made_from(merged, BY_FAMILY.source)
    own = {
        entry.config: entry.measurement.time_us
        for entry in old.entries
        if sources_of(old)[entry.config.family] == FAMILIES[entry.config.family]
    }
    timed = {entry.config for entry in new.entries}
    slower = {config for config in own if own[config] > new.best.measurement.time_us}
    assert timed | slower <= {entry.config for entry in merged.entries} <= timed | own.keys()


def test_run_that_timed_the_winner_again_decides_what_is_faster() -> None:
    old = _made(*(_timed(width, us) for width, us in ((8, 80.0), (9, 85.0), (10, 110.0))))
    untimed, slower = _made(_timed(16, 90.0)), _made(_timed(16, 90.0), _timed(8, 100.0))
    assert _times(merge(old, untimed)) == [80.0, 85.0, 90.0, 110.0]
    assert _times(merge(old, slower)) == [90.0, 100.0, 110.0]


def test_cold_winner_timed_again_decides_what_is_faster_cold() -> None:
    old = _made(_with_cold(_timed(8, 80.0), 120.0), _with_cold(_timed(9, 85.0), 115.0))
    run = _made(_with_cold(_timed(9, 75.0), 125.0))
    assert merge(old, run).entries == (*run.entries, _timed(8, 80.0))


def test_run_keeps_the_baseline_of_the_winners_round() -> None:
    old = replace(_made(_timed(8, 80.0)), baseline=Measurement(84.0))
    slower = replace(_made(_timed(16, 90.0)), baseline=Measurement(95.0))
    faster = replace(_made(_timed(16, 70.0)), baseline=Measurement(75.0))
    assert merge(old, slower).baseline == old.baseline
    assert merge(old, faster).baseline == faster.baseline


# Of several families


def test_record_of_one_family_has_its_hash_alone() -> None:
    run = _made(_of("mma", 90.0), source=BY_FAMILY.source)
    assert merge(None, run).provenance.source == "3a"


def test_record_of_several_families_names_each_hash() -> None:
    run = _made(_of("mma", 90.0), _of("tiled", 95.0), source=BY_FAMILY.source)
    assert merge(None, run).provenance.source == "mma:3a tiled:2a"


def test_tuning_keeps_entries_of_unchanged_families() -> None:
    old = _from(_of("mma", 80.0), _of("tiled", 85.0), mma="0ld")
    run = _made(_of("naive", 90.0), source=BY_FAMILY.source)
    merged = merge(old, run)
    assert [entry.config.family for entry in merged.entries] == ["tiled", "naive"]
    assert merged.provenance.source == "naive:1a tiled:2a"


def test_stores_share_entries_of_families_alike() -> None:
    ours = _from(_of("mma", 80.0), _of("tiled", 85.0))
    theirs = _from(_of("mma", 70.0, 9), _of("tiled", 84.0, 9), mma="0ld")
    merged = reconcile(ours, theirs, BY_FAMILY)
    assert _times(merged) == [80.0, 84.0, 85.0]
    assert merged.provenance.source == "mma:3a tiled:2a"


def test_todays_entries_of_a_family_replace_older_ones() -> None:
    ours = _from(_of("tiled", 80.0), _of("mma", 85.0), mma="0ld")
    theirs = _from(_of("mma", 90.0, 9))
    for a, b in ((ours, theirs), (theirs, ours)):
        merged = reconcile(a, b, BY_FAMILY)
        assert (_times(merged), merged.provenance.source) == ([80.0, 90.0], "mma:3a tiled:2a")


def test_earlier_records_of_one_hash_merge_as_before() -> None:
    ours, theirs = _made(_of("mma", 80.0), source="0ld"), _made(_of("tiled", 85.0), source="0ld")
    merged = reconcile(ours, theirs, BY_FAMILY)
    assert (_times(merged), merged.provenance.source) == ([80.0, 85.0], "0ld")
    run = _made(_of("naive", 90.0), source=BY_FAMILY.source)
    assert _times(merge(merged, run)) == [90.0]


def test_family_that_another_store_searched_joins() -> None:
    merged = reconcile(_from(_of("mma", 80.0)), _from(_of("tiled", 85.0)), BY_FAMILY)
    assert merged.provenance.source == "mma:3a tiled:2a"
    assert _times(reconcile(_from(_of("mma", 80.0)), merged, BY_FAMILY)) == [80.0, 85.0]


def test_search_that_ended_stays_final_with_other_tools() -> None:
    ended, cut = _made(_timed(8, 90.0), driver="12.8"), _made(_timed(9, 95.0), interrupted=True)
    assert merge(ended, cut).provenance.final
    assert not merge(_made(_timed(8, 90.0), source="0ld"), cut).provenance.final


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
    assert store.adopt(_made(_timed(8, 1.0), source="0ld"), TODAY) == "skipped"
    assert store.load(H100, SQUARE) == saved


def test_replaced_record_is_kept_beside(store: Store) -> None:
    old = store.save(_made(source="0ld"))
    assert store.adopt(_made(), TODAY) == "better"
    beside = store.path(H100, SQUARE).with_name("4096x4096x4096-f32-nn.json.superseded-1")
    assert loads(beside.read_bytes()) == old


@pytest.mark.parametrize("older", TOOLS)
def test_entries_survive_another_driver_or_compiler(store: Store, older: dict[str, str]) -> None:
    old = store.save(_made(_timed(8, 80.0), _timed(9, 85.0), **older))
    run = _made(_timed(16, 90.0))
    saved = store.save(run, timed=[_timed(9, 0.0).config])
    # What the run timed has a time of today's tools, which was not among its best.
    assert (_times(saved), saved.provenance) == ([80.0, 90.0], run.provenance)
    beside = store.path(H100, SQUARE).with_name("4096x4096x4096-f32-nn.json.superseded-1")
    assert loads(beside.read_bytes()) == old


def test_entries_timed_again_by_the_same_tools_stay(store: Store) -> None:
    store.save(_made(_timed(8, 80.0)))
    assert _times(store.save(_made(_timed(16, 90.0)), timed=[_timed(8, 0.0).config])) == [
        80.0,
        90.0,
    ]


def test_record_with_an_entry_of_older_kernels_is_kept_beside(store: Store) -> None:
    store.save(_from(_of("mma", 80.0), _of("tiled", 85.0), mma="0ld"))
    run = _made(_of("tiled", 90.0, 9), source=BY_FAMILY.source)
    assert _times(store.save(run)) == [85.0, 90.0]
    assert store.path(H100, SQUARE).with_name("4096x4096x4096-f32-nn.json.superseded-1").exists()


def test_new_family_keeps_no_record_beside(store: Store) -> None:
    store.save(_from(_of("mma", 80.0)))
    assert store.adopt(_from(_of("tiled", 85.0)), BY_FAMILY) == "better"
    assert [path.suffix for path in store.path(H100, SQUARE).parent.glob("4*")] == [".json"]
    assert store.adopt(_from(_of("mma", 80.0)), BY_FAMILY) == "equal"
    assert store.adopt(_from(_of("mma", 1.0), mma="0ld"), BY_FAMILY) == "skipped"


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
        ({"source": "0123456789abcdef"}, "kernel sources 0123456789ab, now 5e1f"),
        (
            {"driver": "12.8", "source": "0ld"},
            "driver 12.8, now 13.0; kernel sources 0ld, now 5e1f",
        ),
    ],
)
def test_other_sources_make_a_record_stale(older: dict[str, str], message: str) -> None:
    assert stale(_made(**older), TODAY) == changes(_made(**older), TODAY) == message


@pytest.mark.parametrize(
    ("older", "message"),
    [
        ({"driver": "12.8"}, "driver 12.8, now 13.0"),
        ({"compiler": "NVRTC 12.8"}, "compiler NVRTC 12.8, now NVRTC 13.0"),
    ],
)
def test_other_tools_are_a_change_and_not_stale(older: dict[str, str], message: str) -> None:
    assert changes(_made(**older), TODAY) == message
    assert stale(_made(**older), TODAY) is None


def test_unknown_fields_are_not_compared() -> None:
    assert changes(_made(driver="12.8"), replace(TODAY, driver="")) is None
    assert changes(_made(source="0ld"), replace(TODAY, source="")) is None


def test_best_entry_of_changed_sources_makes_a_record_stale() -> None:
    mixed = _from(_of("mma", 80.0), _of("tiled", 95.0), mma="0ld")
    assert stale(mixed, BY_FAMILY) == "kernel sources 0ld, now 3a"


def test_runner_up_of_changed_sources_makes_nothing_stale() -> None:
    mixed = _from(_of("mma", 80.0), _of("tiled", 95.0), tiled="0ld")
    assert changes(mixed, BY_FAMILY) is None


def test_cold_winner_of_changed_sources_makes_a_record_stale() -> None:
    hot, cold = _with_cold(_of("mma", 80.0), 120.0), _with_cold(_of("tiled", 95.0), 100.0)
    mixed = _from(hot, cold, tiled="0ld")
    assert stale(mixed, BY_FAMILY) == "tiled kernel sources 0ld, now 2a"


def test_earlier_hash_of_all_sources_is_stale_for_every_family() -> None:
    hot, cold = _with_cold(_of("mma", 80.0), 120.0), _with_cold(_of("tiled", 95.0), 100.0)
    earlier = _made(hot, cold, source="0ld")
    assert stale(earlier, BY_FAMILY) == "kernel sources 0ld, now 3a"


@pytest.mark.parametrize("evidence", ["replayed", "predicted"])
def test_only_measured_records_become_stale(evidence: Evidence) -> None:
    assert stale(replace(_made(source="0ld"), evidence=evidence), TODAY) is None
    assert changes(replace(_made(driver="12.8"), evidence=evidence), TODAY) is None


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
