"""Energies in records: written, read, merged, and compared with the vendor's."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.sample_records import entry, record

from autotune.files import checksum
from autotune.measure.measurement import Energy
from autotune.measure.objective import ENERGY
from autotune.records import Entry, Record
from autotune.records.codec import dumps, encode, loads
from autotune.records.merging import KEPT, merge


def metered(width: int, time_us: float, joules: float, spread_j: float = 0.0) -> Entry:
    timed = entry(width, time_us)
    energy = Energy(joules, spread_j, 612.0, 1_755.0)
    return replace(timed, measurement=replace(timed.measurement, energy=energy))


def with_baseline(made: Record, joules: float | None) -> Record:
    assert made.baseline is not None
    energy = None if joules is None else Energy(joules, 0.0, 600.0, 1_700.0)
    return replace(made, baseline=replace(made.baseline, energy=energy))


def test_energies_are_read_as_they_were_written() -> None:
    made = record(metered(16, 100.0, 2.0, 0.01), entry(32, 110.0), baseline_us=95.0)
    made = with_baseline(made, 1.5)
    assert loads(dumps(made)) == made


def test_record_without_energies_is_written_as_before() -> None:
    assert "energy" not in json.dumps(encode(record(entry(16, 100.0))))


@pytest.mark.parametrize(
    ("name", "value"),
    [("joules", 0.0), ("joules", -1.0), ("power_w", 0), ("spread_j", -0.1), ("clock_mhz", 1e7)],
)
def test_impossible_energy_is_refused(name: str, value: float) -> None:
    fields = json.loads(json.dumps(encode(record(metered(16, 100.0, 2.0)))))
    fields["entries"][0]["measurement"]["energy"][name] = value
    with pytest.raises(ValueError, match=rf"entries\[0\]\.measurement\.energy\.{name} is "):
        loads(checksum.sealed(fields))


def test_best_by_energy_is_the_least_with_its_spread() -> None:
    made = record(metered(8, 100.0, 2.0), metered(16, 101.0, 1.9, 0.2), metered(32, 110.0, 1.95))
    assert made.best_by(ENERGY).config == entry(32, 110.0).config


def test_fastest_stands_where_its_energy_is_tied() -> None:
    made = record(metered(8, 100.0, 2.0), metered(16, 110.0, 1.991))
    assert made.best_energy == made.best


def test_record_without_energies_answers_by_time() -> None:
    made = record(entry(8, 100.0), entry(16, 110.0))
    assert (made.best_energy, made.best_by(ENERGY)) == (None, made.best)


def test_merging_keeps_the_least_energy_and_the_fastest_cold() -> None:
    fast = [entry(width, 100.0 + width) for width in range(4, 4 + KEPT)]
    cold = entry(30, 200.0)
    cold = replace(cold, measurement=replace(cold.measurement, cold_us=90.0))
    least = metered(31, 210.0, 0.5)
    kept = merge(record(cold, least), record(*fast)).entries
    assert kept == (*fast[: KEPT - 2], cold, least)


def test_new_time_keeps_the_earlier_energy() -> None:
    merged = merge(record(metered(8, 100.0, 2.0)), record(entry(8, 90.0)))
    assert merged.entries == (metered(8, 90.0, 2.0),)


@pytest.mark.parametrize(
    ("joules", "wins"),
    [(1.5, True), (1.995, False), (2.5, False), (None, True)],
    ids=["less", "tied", "more", "unknown, but faster"],
)
def test_vendor_wins_by_energy_where_it_takes_less(joules: float | None, wins: bool) -> None:
    made = record(metered(8, 100.0, 2.0), baseline_us=90.0)
    assert with_baseline(made, joules).vendor_wins_by(ENERGY) is wins
