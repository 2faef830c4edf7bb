"""Stale records are measured again on a GPU; both look-ups of the driver version agree."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune import cli, settings
from autotune.errors import MissingError
from autotune.families.config import Config
from autotune.measure import devices, targets
from autotune.problem import Problem
from autotune.records import Record, Store, codec
from autotune.records.merging import changes, merge, stale

SHAPE = (192, 128, 256)
PROBLEM = Problem(*SHAPE)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    try:
        devices.probe()
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def store() -> Store:
    return Store(settings.cache_dir())


@pytest.fixture
def old(store: Store) -> Record:
    """A record of other machine code than today's, with ten times the measured times."""
    tuned = autotune.tune(*SHAPE, trials=8, seconds=40)
    provenance = replace(tuned.provenance, driver="12.0", source="0ld")
    slower = tuple(
        replace(
            entry,
            measurement=replace(entry.measurement, time_us=10 * entry.measurement.time_us),
            code="0" * 16,
        )
        for entry in tuned.entries
    )
    aged = replace(tuned, entries=slower, provenance=provenance)
    store.path(tuned.device, PROBLEM).write_bytes(codec.dumps(aged))
    return aged


def verified(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """The JSON output of `cache verify`."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["cache", "verify", *options, "--json"])
    assert caught.value.code == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    return data


def test_driver_version_is_the_same_without_a_session() -> None:
    with targets.opened(PROBLEM) as target:
        assert devices.driver_version() == target.origin.driver


def test_tuned_record_is_not_stale(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    autotune.tune(*SHAPE, trials=2, seconds=40)
    assert store.load(devices.probe(), PROBLEM) is not None
    found = verified(capsys)
    assert (found["stale"], found["other_tools"]) == ([], [])


def test_record_of_another_driver_is_measured_again(
    store: Store, old: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    provenance = replace(old.provenance, source=targets.here().source)
    made = merge(None, replace(old, provenance=provenance))
    store.path(old.device, PROBLEM).write_bytes(codec.dumps(made))
    found = verified(capsys)
    assert (found["stale"], len(found["other_tools"])) == ([], 1)
    assert verified(capsys, "--retime", "--top", "2")["retimed"][0]["failed"] == []
    new = store.load(old.device, PROBLEM)
    assert new is not None
    assert changes(new, targets.here()) is None
    assert new.best.measurement.time_us < 0.5 * old.best.measurement.time_us


def test_stale_record_is_measured_again(
    store: Store, old: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    (stale_one,) = verified(capsys)["stale"]
    assert stale_one["changed"].startswith("driver 12.0, now ")
    (retimed,) = verified(capsys, "--retime", "--top", "2")["retimed"]
    assert retimed["failed"] == []
    new = store.load(old.device, PROBLEM)
    assert new is not None
    assert stale(new, targets.here()) is None
    assert {entry.config for entry in new.entries} <= {entry.config for entry in old.entries}
    # Measured again: the times of the old record are ten times too long.
    assert new.best.measurement.time_us < 0.5 * old.best.measurement.time_us


def test_record_of_the_same_machine_code_is_kept(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = autotune.tune(*SHAPE, trials=8, seconds=40)
    provenance = replace(tuned.provenance, source="0ld")
    aged = replace(tuned, provenance=provenance)
    store.path(tuned.device, PROBLEM).write_bytes(codec.dumps(aged))
    assert stale(aged, targets.here()) is not None
    found = verified(capsys)
    assert (found["stale"], found["counts"]["stamped"]) == ([], 1)
    kept = store.load(tuned.device, PROBLEM)
    assert kept is not None
    assert stale(kept, targets.here()) is None
    assert kept.best == tuned.best


def test_illegal_configuration_is_dropped(
    store: Store, old: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    fastest = old.entries[0]
    gone = replace(
        fastest,
        config=Config.of("vanished", {"a": 1}),
        measurement=replace(fastest.measurement, time_us=0.001, spread_us=0.0),
    )
    path = store.path(old.device, PROBLEM)
    path.write_bytes(codec.dumps(replace(old, entries=(gone, *old.entries))))
    (retimed,) = verified(capsys, "--retime", "--top", "1")["retimed"]
    (failed,) = retimed["failed"]
    assert failed["config"] == "vanished:a=1"
    assert store.load(old.device, PROBLEM) is not None
