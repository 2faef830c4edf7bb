from __future__ import annotations

import json
import multiprocessing
import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from support.full_disk import small_files
from support.logged import logs, warnings_logged
from support.privileges import without_privileges
from support.sample_records import H100, SQUARE, entry, record, records

from autotune.errors import CacheError
from autotune.files import checksum, writing
from autotune.measure.measurement import Evidence, Measurement
from autotune.measure.objective import COLD
from autotune.problem import Problem
from autotune.records import Entry, FamilyRecord, Record, Records, Store, codec, ranges
from autotune.records.codec import dumps, loads
from autotune.records.merging import KEPT
from autotune.records.ranges import Range, Segment

BATCHED = Problem(64, 64, 64, batch=8, epilogue="bias")

WIDENED = Problem(64, 64, 64, "bf16", output="f32")

FORK = multiprocessing.get_context("fork")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "cache")


# The file


@given(records())
def test_record_survives_its_file(any_record: Record) -> None:
    assert loads(dumps(any_record)) == any_record


def test_saved_record_is_loaded(store: Store) -> None:
    saved = store.save(record(entry(16, 900.0), baseline_us=800.0))
    assert store.load(H100, SQUARE) == saved


def test_empty_store_loads_nothing(store: Store) -> None:
    assert store.load(H100, SQUARE) is None


def test_record_serves_every_card_of_its_model(store: Store) -> None:
    store.save(record())
    assert store.load(replace(H100, memory_bytes=1, name="NVIDIA H100 80GB-HBM3"), SQUARE)


def test_file_states_configurations_as_text_and_parameters(store: Store) -> None:
    store.save(record(entry(16, 900.0)))
    (kept,) = json.loads(store.path(H100, SQUARE).read_text())["entries"]
    assert (kept["config"], kept["params"]) == ("tiled:tile_width=16", {"tile_width": 16})


def test_file_omits_usual_fields_of_the_problem(store: Store) -> None:
    saved = [store.save(record(problem=problem)) for problem in (SQUARE, BATCHED, WIDENED)]
    paths = [store.path(H100, kept.problem) for kept in saved]
    assert [json.loads(path.read_text())["problem"] for path in paths] == [
        {"m": 4096, "n": 4096, "k": 4096, "compute": "f32", "layout": "nn"},
        {"m": 64, "n": 64, "k": 64, "compute": "f32", "layout": "nn", "batch": 8,
         "epilogue": "bias"},
        {"m": 64, "n": 64, "k": 64, "compute": "bf16", "layout": "nn", "output": "f32"},
    ]  # fmt: skip
    assert [store.load(H100, record.problem) for record in saved] == saved


def test_record_without_entries_is_refused() -> None:
    with pytest.raises(ValueError, match="4096x4096x4096:f32:nn without entries"):
        replace(record(), entries=())


# Evidence


@pytest.mark.parametrize(
    ("saved", "best"),
    [
        (["predicted", "replayed", "measured"], "measured"),
        (["predicted", "replayed"], "replayed"),
        (["measured", "predicted"], "measured"),
        (["predicted"], "predicted"),
    ],
)
def test_best_evidence_is_loaded(store: Store, saved: list[Evidence], best: Evidence) -> None:
    for evidence in saved:
        store.save(record(evidence=evidence))
    loaded = store.load(H100, SQUARE)
    assert loaded is not None
    assert loaded.evidence == best


def test_one_kind_of_evidence_can_be_loaded(store: Store) -> None:
    store.save(record(entry(16, 900.0)))
    predicted = store.save(record(entry(8, 1.0), evidence="predicted"))
    assert store.load(H100, SQUARE, "predicted") == predicted


def test_records_has_the_best_evidence_of_each_problem(store: Store) -> None:
    small = store.save(record(problem=Problem(64, 64, 64), evidence="replayed"))
    store.save(record(evidence="predicted"))
    large = store.save(record())
    assert store.records(H100) == [small, large]


def test_records_of_other_devices_are_excluded(store: Store) -> None:
    store.save(record(device=replace(H100, name="Other")))
    assert store.records(H100) == []


# Predictions of a device file with the name of a real card


FICTION = replace(H100, sms=10)


def test_changed_device_has_predictions_of_its_own(store: Store) -> None:
    real = store.save(record(entry(16, 900.0), evidence="predicted"))
    own = store.save(record(entry(8, 9000.0), evidence="predicted", device=FICTION))
    assert store.load(H100, SQUARE) == real
    assert store.load(FICTION, SQUARE) == own
    assert (store.records(H100), store.records(FICTION)) == ([real], [own])


@pytest.mark.parametrize(
    "change", [{"peak_fp32": 1e15}, {"granularity": 1}, {"reserved_shared_per_block": 0}]
)
def test_any_number_that_predictions_follow_from_counts(
    store: Store, change: dict[str, Any]
) -> None:
    store.save(record(evidence="predicted"))
    assert store.load(replace(H100, **change), SQUARE) is None


def test_unlisted_device_has_predictions_for_its_numbers(store: Store) -> None:
    mine = replace(H100, name="Mine")
    saved = store.save(record(evidence="predicted", device=mine))
    assert store.load(mine, SQUARE) == saved
    assert store.load(replace(mine, l2_bytes=2**20), SQUARE) is None


def test_changed_device_leaves_measured_records_alone(store: Store) -> None:
    saved = store.save(record())
    store.save(record(entry(8, 1.0), evidence="predicted", device=FICTION))
    assert store.load(H100, SQUARE) == store.load(FICTION, SQUARE) == saved


def test_ranges_of_a_changed_device_are_its_own(tmp_path: Path) -> None:
    segments = (Segment(1, 4096, 4096),)
    for device in (H100, FICTION):
        ranges.save(tmp_path, Range(device, SQUARE, "m", segments, "predicted"))
        assert [tuned.device for tuned in ranges.load(tmp_path, device)] == [device]


def test_prediction_in_the_file_of_another_device_is_absent(store: Store) -> None:
    store.save(record(evidence="predicted", device=FICTION))
    (stray,) = store.root.rglob("*.json")
    place = store.path(H100, SQUARE, "predicted")
    place.parent.mkdir()
    stray.rename(place)
    with logs(r"whose file is records/nvidia-h100-80gb-hbm3-\w{8}/"):
        assert store.load(H100, SQUARE) is None


# Merging


def _cold(width: int, time_us: float, cold_us: float) -> Entry:
    made = entry(width, time_us)
    return replace(made, measurement=replace(made.measurement, cold_us=cold_us))


# The slowest entry has the shortest cold time.
COLD_ENTRIES = [
    _cold(width, 900.0 + 10 * width, 999.0 - 10 * width) for width in range(4, 4 + KEPT + 1)
]


def test_best_cold_is_the_fastest_with_a_flushed_l2() -> None:
    assert record(entry(16, 900.0), *COLD_ENTRIES[:3]).best_cold == COLD_ENTRIES[2]


def test_entries_without_cold_times_have_no_best_cold() -> None:
    assert record(entry(16, 900.0)).best_cold is None


def test_best_cold_is_the_leanest_of_the_tied() -> None:
    tied = [_cold(8, 990.0, 502.0), _cold(16, 980.0, 500.0), _cold(4, 900.0, 600.0)]
    assert record(*tied).best_cold == tied[0]


@pytest.mark.parametrize(("cold_us", "best"), [(999.0, 16), (1001.0, 4)])
def test_best_cold_is_the_best_where_that_is_tied(cold_us: float, best: int) -> None:
    both = [_cold(16, 800.0, cold_us), _cold(4, 900.0, 995.0)]
    assert record(*both).best_cold == both[0 if best == 16 else 1]


def test_best_by_cold_is_the_best_without_cold_times() -> None:
    assert record(entry(16, 900.0), entry(8, 950.0)).best_by(COLD) == entry(16, 900.0)


def test_merging_keeps_the_best_cold_with_the_ten_fastest(store: Store) -> None:
    store.save(record(*COLD_ENTRIES[-1:]))
    merged = store.save(record(*COLD_ENTRIES[:-1]))
    assert merged.entries == (*COLD_ENTRIES[: KEPT - 1], COLD_ENTRIES[-1])


def test_best_cold_among_the_fastest_displaces_nothing(store: Store) -> None:
    merged = store.save(record(*COLD_ENTRIES[:KEPT]))
    assert merged.entries == tuple(COLD_ENTRIES[:KEPT])


def _times(merged: Record | None) -> list[float]:
    assert merged is not None
    return [kept.measurement.time_us for kept in merged.entries]


def test_entries_of_both_are_kept_fastest_first(store: Store) -> None:
    store.save(record(entry(16, 900.0), entry(8, 700.0)))
    assert _times(store.save(record(entry(32, 800.0)))) == [700.0, 800.0, 900.0]


def test_new_measurement_of_a_configuration_stands(store: Store) -> None:
    store.save(record(entry(16, 900.0)))
    assert _times(store.save(record(entry(16, 950.0)))) == [950.0]


def test_ten_fastest_are_kept(store: Store) -> None:
    store.save(record(*(entry(width, 100.0 + width) for width in range(4, 16))))
    assert _times(store.save(record(entry(32, 1.0)))) == [1.0, *(100.0 + w for w in range(4, 13))]


def test_run_without_a_baseline_keeps_the_old_one(store: Store) -> None:
    store.save(record(baseline_us=800.0))
    assert store.save(record()).baseline == Measurement(800.0)


def test_new_baseline_stands(store: Store) -> None:
    store.save(record(baseline_us=800.0))
    assert store.save(record(baseline_us=810.0)).baseline == Measurement(810.0)


def test_provenance_is_of_the_last_run(store: Store) -> None:
    store.save(record())
    later = replace(record().provenance, trials=3, date="2026-11-22T12:00:00Z")
    assert store.save(replace(record(), provenance=later)).provenance == later


def test_entries_of_other_sources_are_not_merged(store: Store) -> None:
    store.save(record(entry(16, 100.0), source="old"))
    assert _times(store.save(record(entry(32, 900.0), source="new"))) == [900.0]


def test_record_of_other_sources_is_kept_beside(store: Store) -> None:
    old = store.save(record(entry(16, 100.0), source="old"))
    store.save(record(entry(32, 900.0), source="new"))
    beside = store.path(H100, SQUARE).with_name("4096x4096x4096-f32-nn.json.superseded-1")
    assert loads(beside.read_bytes()) == old


def test_best_is_the_leanest_of_the_tied() -> None:
    assert record(entry(32, 100.0, 1.0), entry(8, 100.5, 1.0)).best == entry(8, 100.5, 1.0)


def test_ties_are_the_others_within_half_a_percent() -> None:
    entries = entry(8, 100.4), entry(16, 100.0), entry(32, 100.45), entry(64, 101.0)
    assert record(*entries).best == entries[0]
    assert record(*entries).ties == entries[1:3]


# The vendor's library


def _beside(baseline: Measurement | None, **changed: Any) -> bool:
    """Whether the library wins against 100 us with a spread of 2 us."""
    return replace(record(entry(16, 100.0, 2.0)), baseline=baseline, **changed).vendor_wins


@pytest.mark.parametrize(
    ("baseline", "fault", "vendor_result", "line"),
    [
        (Measurement(90.0, library="13.1.0"), "", "verified with cuBLAS 13.1.0", "90.00 us, "),
        (Measurement(90.0), "", "not verified", "90.00 us, "),
        (None, "", "not verifiable", ""),
        (None, "largest error 1", "wrong: largest error 1", ""),
    ],
)
def test_record_states_whether_the_vendors_result_is_right(
    store: Store, baseline: Measurement | None, fault: str, vendor_result: str, line: str
) -> None:
    made = record(entry(16, 100.0))
    provenance = replace(made.provenance, baseline_fault=fault)
    made = replace(made, baseline=baseline, provenance=provenance)
    assert store.save(made).vendor_result == vendor_result
    assert f"vendor baseline {line}{vendor_result}" in str(made).splitlines()
    assert replace(made, evidence="predicted").vendor_result == (vendor_result if fault else "")


def test_file_states_the_version_of_the_vendor_only_if_known() -> None:
    made = record(entry(16, 100.0), baseline_us=90.0)
    assert b"library" not in codec.dumps(made)
    assert made.baseline is not None
    stated = replace(made, baseline=replace(made.baseline, library="13.1.0"))
    assert codec.loads(codec.dumps(stated)) == stated
    assert b'"library": "13.1.0"' in codec.dumps(stated)


def test_faster_vendor_library_wins() -> None:
    assert _beside(Measurement(95.0, 3.0))


@pytest.mark.parametrize(
    "baseline",
    [None, Measurement(99.6, 1.0), Measurement(105.0, 1.0)],
    ids=["not timed", "tied", "slower"],
)
def test_tied_slower_or_untimed_vendor_library_loses(baseline: Measurement | None) -> None:
    assert not _beside(baseline)


@pytest.mark.parametrize("evidence", ["replayed", "predicted"])
def test_vendor_library_wins_only_by_measurement(evidence: Evidence) -> None:
    assert not _beside(Measurement(50.0), evidence=evidence)


# Broken files


def _change(path: tuple[str | int, ...], value: object) -> Callable[[bytes], bytes]:
    """A change to a record that updates its checksum."""

    def changed(text: bytes) -> bytes:
        data = json.loads(text)
        target = data
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = value
        with suppress(ValueError):  # a number that JSON does not have
            data[checksum.CHECKSUM] = checksum.of(data)
        return json.dumps(data).encode()

    return changed


def _without_checksum(text: bytes) -> bytes:
    data = json.loads(text)
    del data[checksum.CHECKSUM]
    return json.dumps(data).encode()


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "truncated": lambda text: text[: len(text) // 2],
    "not text": lambda _: b"\xff\xfe\x00",
    "not an object": lambda _: b"[1, 2]",
    "deep": lambda _: b"[" * 100_000,
    "newer schema": _change(("schema",), 3),
    "changed": lambda text: text.replace(b"900.0", b"100.0"),
    "no checksum": _without_checksum,
    "another checksum": lambda text: text.replace(b'"checksum": "', b'"checksum": "0'),
    "no schema": _change(("schema",), None),
    "no entries": _change(("entries",), []),
    "entries of another type": _change(("entries",), {"0": 1}),
    "an entry of another type": _change(("entries", 0), 7),
    "time as a word": _change(("entries", 0, "measurement", "time_us"), "fast"),
    "time of zero": _change(("entries", 0, "measurement", "time_us"), 0),
    "time not a number": _change(("entries", 0, "measurement", "time_us"), float("nan")),
    "time without end": _change(("entries", 0, "measurement", "time_us"), 10**400),
    "registers as a fraction": _change(("entries", 0, "resources", "registers"), 32.5),
    "registers as a truth": _change(("entries", 0, "resources", "registers"), True),
    "malformed configuration": _change(("entries", 0, "config"), "tiled:="),
    "two configurations": _change(("entries", 0, "params"), {"tile_width": 8}),
    "unknown evidence": _change(("evidence",), "hearsay"),
    "another evidence": _change(("evidence",), "predicted"),
    "another problem": _change(("problem", "m"), 64),
    "impossible problem": _change(("problem", "m"), -1),
    "malformed baseline": _change(("baseline",), {"time_us": None}),
    "malformed device": _change(("device",), {"name": "H100"}),
    "device as a word": _change(("device",), "H100"),
    "another device": _change(("device", "name"), "NVIDIA A100"),
    "no provenance": _change(("provenance",), None),
}


@pytest.fixture(params=BROKEN, ids=str)
def broken(request: pytest.FixtureRequest, store: Store) -> bytes:
    """The content of the record's file."""
    store.save(record(entry(16, 900.0)))
    path = store.path(H100, SQUARE)
    path.write_bytes(BROKEN[request.param](path.read_bytes()))
    return path.read_bytes()


def test_broken_file_counts_as_absent_with_a_warning(store: Store, broken: bytes) -> None:
    path = store.path(H100, SQUARE)
    with logs(str(path)):
        assert store.load(H100, SQUARE) is None
    assert path.read_bytes() == broken


def test_broken_file_is_kept_beside_its_replacement(store: Store, broken: bytes) -> None:
    with logs(r"kept as 4096x4096x4096-f32-nn\.json\.broken-1"):
        store.save(record())
    beside = store.path(H100, SQUARE).with_name("4096x4096x4096-f32-nn.json.broken-1")
    assert beside.read_bytes() == broken


def test_second_broken_file_does_not_replace_the_first(store: Store) -> None:
    path = store.path(H100, SQUARE)
    path.parent.mkdir(parents=True)
    for text in ("one", "two"):
        path.write_text(text)
        with logs("kept as"):
            store.save(record())
    assert [path.with_name(f"{path.name}.broken-{n}").read_text() for n in (1, 2)] == ["one", "two"]


def test_broken_file_is_warned_of_once(store: Store) -> None:
    path = store.path(H100, SQUARE)
    path.parent.mkdir(parents=True)
    path.write_text("{")
    with warnings_logged() as texts:
        store.load(H100, SQUARE)
        store.records(H100)
    assert len(texts) == 1


def test_broken_neighbour_does_not_hide_the_others(store: Store) -> None:
    good = store.save(record())
    store.path(H100, Problem(64, 64, 64)).write_text("{")
    with logs("64x64x64-f32-nn"):
        assert store.records(H100) == [good]


def test_unreadable_file_is_neither_loaded_nor_replaced(store: Store) -> None:
    store.path(H100, SQUARE).mkdir(parents=True)
    with logs("Is a directory"):
        assert store.load(H100, SQUARE) is None
    with pytest.raises(CacheError, match="move it away"):
        store.save(record())


# Full and read-only disks, kills, and many processes at once


def test_full_disk_is_reported_with_the_bytes_needed(store: Store) -> None:
    message = r"File too large \(\d+ bytes .* free\); make room or set"
    with small_files(100), pytest.raises(CacheError, match=message):
        store.save(record())


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_failed_write_leaves_the_record_unchanged(store: Store, size: int) -> None:
    saved = store.save(record())
    with small_files(size), pytest.raises(CacheError, match="cannot be written"):
        store.save(record(entry(8, 1.0)))
    assert store.load(H100, SQUARE) == saved


def test_cache_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("")
    with pytest.raises(CacheError, match=str(tmp_path / "cache")):
        Store(tmp_path / "cache").save(record())


def test_read_only_cache_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    store = Store(Path("cache"))
    store.save(record())
    for directory in (tmp_path, *list(store.path(H100, SQUARE).parents)[:-1]):
        directory.chmod(0o555)
    with (
        without_privileges(),
        pytest.raises(CacheError, match=f"cache/records/{H100.slug}.*AUTOTUNE"),
    ):
        store.save(record())


def test_waiting_for_a_locked_cache_ends(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "LOCK_SECONDS", 0.01)
    with (
        writing.locked(store.path(H100, SQUARE).parent),
        pytest.raises(CacheError, match="another process held it"),
    ):
        store.save(record())


def _save_forever(store: Store) -> None:
    while True:
        for width in range(4, 33):
            store.save(record(entry(width, 100.0 + width)))


def test_kill_while_saving_loses_nothing(store: Store) -> None:
    store.save(record(entry(1, 1.0)))
    instants = random.Random(0)
    for _ in range(30):
        process = FORK.Process(target=_save_forever, args=(store,))
        process.start()
        time.sleep(instants.uniform(0.005, 0.04))
        process.kill()
        process.join()
        with warnings_logged() as texts:
            assert _times(store.load(H100, SQUARE))[0] == 1.0
        assert texts == []


def _save_each(store: Store, times: list[float]) -> None:
    for number in times:
        store.save(record(entry(int(number), number)))


def test_concurrent_saves_keep_the_best_of_all(store: Store) -> None:
    shares = [[float(number) for number in range(first, 40, 4)] for first in (1, 2, 3, 4)]
    processes = [FORK.Process(target=_save_each, args=(store, share)) for share in shares]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert _times(store.load(H100, SQUARE)) == [float(number) for number in range(1, 11)]


# Quarantine


def test_quarantine_keeps_the_reason(store: Store) -> None:
    store.quarantine(H100, "tiled:tile_width=16 4096x4096x4096", "crash: illegal address")
    assert store.quarantined(H100) == {
        "tiled:tile_width=16 4096x4096x4096": "crash: illegal address"
    }


def test_quarantine_is_for_one_device(store: Store) -> None:
    store.quarantine(H100, "a", "timeout")
    assert store.quarantined(replace(H100, name="Other")) == {}


def test_latest_reason_stands(store: Store) -> None:
    store.quarantine(H100, "a", "timeout")
    store.quarantine(H100, "a", "crash\nwith two lines")
    assert store.quarantined(H100) == {"a": "crash\nwith two lines"}


@pytest.fixture
def quarantine_file(store: Store) -> Path:
    store.quarantine(H100, "a", "timeout")
    (path,) = store.root.glob("quarantine/*.jsonl")
    return path


def test_torn_last_line_is_skipped(store: Store, quarantine_file: Path) -> None:
    with quarantine_file.open("a") as file:
        file.write('{"key": "b", "rea')
    assert store.quarantined(H100) == {"a": "timeout"}


def test_next_line_repairs_a_torn_one(store: Store, quarantine_file: Path) -> None:
    with quarantine_file.open("a") as file:
        file.write('{"key": "b", "rea')
    store.quarantine(H100, "c", "crash")
    assert store.quarantined(H100) == {"a": "timeout", "c": "crash"}


@pytest.mark.parametrize("line", ["{", "[]", "null", '{"key": "b"}', "\xff"])
def test_broken_line_is_skipped_with_a_warning(
    store: Store, quarantine_file: Path, line: str
) -> None:
    quarantine_file.write_text(f'{line}\n{{"key": "a", "reason": "timeout"}}\n', "latin-1")
    with logs(r"h100-80gb-hbm3\.jsonl: line 1"):
        assert store.quarantined(H100) == {"a": "timeout"}


def test_full_disk_leaves_the_quarantine_unchanged(store: Store, quarantine_file: Path) -> None:
    with (
        small_files(quarantine_file.stat().st_size + 5),
        pytest.raises(CacheError, match=str(quarantine_file)),
    ):
        store.quarantine(H100, "b", "crash")
    assert store.quarantined(H100) == {"a": "timeout"}


def _quarantine_each(store: Store, keys: list[str]) -> None:
    for key in keys:
        store.quarantine(H100, key, "crash")


def test_concurrent_quarantines_lose_nothing(store: Store) -> None:
    shares = [[f"{letter}{number}" for number in range(10)] for letter in "abcd"]
    processes = [FORK.Process(target=_quarantine_each, args=(store, keys)) for keys in shares]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert set(store.quarantined(H100)) == {key for keys in shares for key in keys}


# Ranges


TUNED = Range(
    H100, Problem(512, 4096, 4096, "bf16"), "m", (Segment(1, 64, 64), Segment(65, 512, 512))
)


@pytest.fixture
def range_file(tmp_path: Path) -> Path:
    ranges.save(tmp_path, TUNED)
    return ranges.path_of(tmp_path, TUNED)


def test_saved_range_is_read(range_file: Path) -> None:
    assert ranges.read(range_file) == TUNED


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda text: text.replace(b"4096:bf16", b"2048:bf16"), "it was changed"),
        (_without_checksum, "no checksum"),
        (lambda text: text[:40], "delimiter|Unterminated|Expecting"),
        (lambda _: b"[]", r"range is \[\]; it must be an object"),
        (_change(("segments", 0), [1]), r"segments\[0\] is \[1\]; it must be a list of length 3"),
        (_change(("segments", 0, 1), 10**400), "it has a number of more than 64 digits"),
        (_change(("dimension",), "k"), "the segments end at 512"),
        (_change(("device", "name"), "NVIDIA A100"), "holds 1..512x4096x4096:bf16:nn of NVIDIA A1"),
    ],
)
def test_broken_range_is_skipped_with_the_reason(
    tmp_path: Path, range_file: Path, change: Callable[[bytes], bytes], message: str
) -> None:
    range_file.write_bytes(change(range_file.read_bytes()))
    with logs(f"{range_file}: skipped: .*({message})"):
        assert ranges.load(tmp_path, H100) == ()


# Records of one family, and interrupted searches


def of_family(family: str = "tiled") -> FamilyRecord:
    whole = record(problem=SQUARE)
    shared = (whole.device, whole.evidence, whole.entries, None, whole.provenance)
    return FamilyRecord(*shared, SQUARE, family)


def test_record_of_a_family_survives_its_file(tmp_path: Path) -> None:
    store, saved = Store(tmp_path), of_family()
    store.save(saved)
    (path,) = store.root.rglob("*.json")
    assert path.relative_to(tmp_path).as_posix() == (
        f"families/{H100.slug}/4096x4096x4096-f32-nn-tiled.json"
    )
    assert store.read(path) == store.family(H100, SQUARE, "tiled") == saved


def test_record_of_a_family_leaves_that_of_all_alone(tmp_path: Path) -> None:
    store, whole = Store(tmp_path), record(problem=SQUARE)
    store.save(whole)
    store.save(of_family())
    assert store.load(H100, SQUARE) == whole
    assert Records(store).records(H100) == [whole]


def test_range_of_an_earlier_version_has_a_loss_too(range_file: Path) -> None:
    range_file.write_bytes(_change(("loss",), 0.04)(range_file.read_bytes()))
    assert ranges.read(range_file) == TUNED


def test_interrupted_search_is_marked_in_its_file() -> None:
    whole = record()
    cut = replace(whole, provenance=replace(whole.provenance, interrupted=True))
    assert codec.loads(codec.dumps(cut)) == cut
    assert b"interrupted" not in codec.dumps(whole)
