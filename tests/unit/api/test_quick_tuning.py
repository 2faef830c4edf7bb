"""Quick tuning: the most promising configurations are raced, and the record says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.sample_recording import DEVICE, FASTEST, FASTEST_US, PROBLEM, recorded, ship
from support.sample_records import H100

import autotune
from autotune.errors import UsageError
from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.lookup.promising import FOLLOWING, RACED, contenders
from autotune.model.space import ALIKE
from autotune.records import Records, Store
from autotune.records.record import Record


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no shipped records, and a recording in place of a GPU."""
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(tmp_path / "shipped"))
    ship(tmp_path / "recordings", monkeypatch)
    return tmp_path / "cache"


def _with_bn(config: Config, bn: int) -> tuple[tuple[str, Value], ...]:
    return tuple((name, bn if name == "bn" else value) for name, value in config.params)


def tuned(**options: Any) -> Record:
    return autotune.tune(PROBLEM, device=DEVICE, progress=False, **options)


def test_race_tries_the_most_promising_and_records_it_as_quick(cache: Path) -> None:
    record = tuned(effort="quick")
    assert record.provenance.quick
    assert not record.provenance.final
    assert record.provenance.trials <= RACED + FOLLOWING
    assert Store(cache).load(record.device, PROBLEM) == record


def test_search_replaces_a_race(cache: Path) -> None:
    tuned(effort="quick")
    record = tuned(trials=40)
    assert not record.provenance.quick
    assert record.best.config == FASTEST
    assert record.best.measurement.time_us == pytest.approx(FASTEST_US, rel=0.1)
    assert tuned(effort="quick").provenance.quick is False  # a race takes nothing from a search
    assert Store(cache).load(record.device, PROBLEM) is not None


def test_race_is_answered_with_its_loss(cache: Path) -> None:
    del cache
    tuned(effort="quick")
    answer = autotune.choose(str(PROBLEM), device=DEVICE)
    assert (answer.how, answer.expected_loss, answer.final) == ("exact", 0.01, False)
    assert (answer.enough(quick=True), answer.enough(quick=False)) == (True, False)


@pytest.mark.parametrize(
    ("option", "name"),
    [
        ({"trials": 9}, "trials"),
        ({"search": autotune.Search(seed=3)}, "seed"),
        ({"family": "simt"}, "family"),
    ],
)
def test_race_takes_no_options_of_a_search(option: dict[str, Any], name: str, cache: Path) -> None:
    del cache
    with pytest.raises(UsageError, match=f"quick takes no {name}"):
        tuned(effort="quick", **option)


def test_shipped_search_stands_before_a_race_of_ones_own(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tuned(effort="quick")
    shipped = replace(own, provenance=replace(own.provenance, quick=False, seed=7))
    monkeypatch.setattr("autotune.records.shipped.record", lambda *_: shipped)
    monkeypatch.setattr("autotune.records.shipped.records", lambda _: (shipped,))
    records = Records(Store(cache))
    assert records.load(own.device, PROBLEM) == shipped
    assert records.records(own.device) == [shipped]


def test_raced_configurations_differ_in_tile_or_depth(cache: Path) -> None:
    alike = [row.config for row in recorded().rows if row.config.family == "simt"]
    wider = [replace(config, params=_with_bn(config, 64)) for config in alike]
    raced = contenders(PROBLEM, H100, Records(Store(cache)), configs=[*alike, *wider]).first
    works = [registry.find("simt").work(config, PROBLEM) for config in raced]
    kinds = [(work.tile, work.iterations) for work in works]
    assert len(set(raced)) == RACED
    assert max(map(kinds.count, kinds)) == ALIKE


def test_similar_configurations_fill_a_race_at_last(cache: Path) -> None:
    alike = [row.config for row in recorded().rows if row.config.values.get("bk") == 8]
    raced = contenders(PROBLEM, H100, Records(Store(cache)), configs=alike).first
    assert len(set(raced)) == min(RACED, len(alike)) > ALIKE
