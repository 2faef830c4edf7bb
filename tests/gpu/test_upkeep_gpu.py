"""Records of other kernels, measured again on a real GPU; the driver as the two tell it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import autotune
from autotune import cli, gpu, settings
from autotune.errors import MissingError
from autotune.families.config import Config
from autotune.problem import Problem
from autotune.records import Record, Store, codec
from autotune.records.merging import stale
from autotune.targets import local, targets

SHAPE = (192, 128, 256)
PROBLEM = Problem(*SHAPE)


@pytest.fixture(autouse=True)
def _own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    try:
        gpu.probe()
    except MissingError as error:
        pytest.skip(str(error))


@pytest.fixture
def store() -> Store:
    return Store(settings.cache_dir())


@pytest.fixture
def old(store: Store) -> Record:
    """A record of kernels that there are no more, twice as slow as it was."""
    tuned = autotune.tune(*SHAPE, trials=8, budget=40)
    made = replace(tuned.provenance, driver="12.0", source="0ld")
    slower = tuple(
        replace(one, measurement=replace(one.measurement, time_us=2 * one.measurement.time_us))
        for one in tuned.entries
    )
    aged = replace(tuned, entries=slower, provenance=made)
    store.path(tuned.device, PROBLEM).write_bytes(codec.dumps(aged))
    return aged


def verified(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    """What `cache verify` prints as JSON."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["cache", "verify", *options, "--json"])
    assert ended.value.code == 0
    data: dict[str, Any] = json.loads(capsys.readouterr().out)
    return data


def test_the_driver_is_told_alike_with_and_without_a_session() -> None:
    with targets.opened(PROBLEM) as target:
        assert local.driver_version() == target.origin.driver


def test_a_tuned_record_is_not_stale(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    autotune.tune(*SHAPE, trials=2, budget=40)
    assert store.load(gpu.probe(), PROBLEM) is not None
    assert verified(capsys)["stale"] == []


def test_a_stale_record_is_measured_again(
    store: Store, old: Record, capsys: pytest.CaptureFixture[str]
) -> None:
    (stale_one,) = verified(capsys)["stale"]
    assert stale_one["changed"].startswith("driver 12.0, now ")
    (retimed,) = verified(capsys, "--retime", "--top", "2")["retimed"]
    assert retimed["failed"] == []
    new = store.load(old.device, PROBLEM)
    assert new is not None
    assert stale(new, targets.here()) is None
    assert {one.config for one in new.entries} <= {one.config for one in old.entries}
    # Measured today, not taken over: the old record's times were doubled.
    assert new.best.measurement.time_us < 0.75 * old.best.measurement.time_us


def test_a_configuration_that_is_illegal_today_drops_out(
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
