"""What has crashed or hung is not tried again on that device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from support.fake_runner import tiled
from support.sample_records import H100, SQUARE

from autotune.device import Device
from autotune.records import Store
from autotune.runners.base import Evidence, Failure, Stage
from autotune.tuning.quarantine import DANGERS, Quarantine

HUNG = Failure("timeout", "no end after 10 s")
OTHERS = sorted({*get_args(Stage)} - {*DANGERS})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def quarantine(
    store: Store, device: Device = H100, evidence: Evidence = "measured", source: str = "5e1f"
) -> Quarantine:
    return Quarantine(store, device, evidence, source)


@pytest.mark.parametrize("stage", DANGERS)
def test_what_endangers_the_device_is_barred(store: Store, stage: Stage) -> None:
    quarantine(store).note(SQUARE, tiled(16), Failure(stage, "gone"))
    barred = quarantine(store).barred()
    assert [barred(tiled(16)), barred(tiled(17))] == [True, False]


@pytest.mark.parametrize("stage", OTHERS)
def test_other_failures_are_not(store: Store, stage: Stage) -> None:
    quarantine(store).note(SQUARE, tiled(16), Failure(stage, "wrong"))
    assert not quarantine(store).barred()(tiled(16))


def test_other_sources_may_have_mended_it(store: Store) -> None:
    quarantine(store).note(SQUARE, tiled(16), HUNG)
    assert not quarantine(store, source="5e2f").barred()(tiled(16))


def test_another_device_is_in_no_danger(store: Store) -> None:
    quarantine(store).note(SQUARE, tiled(16), HUNG)
    another = replace(H100, name="NVIDIA A100")
    assert not quarantine(store, another).barred()(tiled(16))


@pytest.mark.parametrize("evidence", ["replayed", "predicted"])
def test_a_recording_or_a_model_neither_bars_nor_is_barred(
    store: Store, evidence: Evidence
) -> None:
    quarantine(store).note(SQUARE, tiled(16), HUNG)
    elsewhere = quarantine(store, evidence=evidence)
    elsewhere.note(SQUARE, tiled(17), HUNG)
    assert not elsewhere.barred()(tiled(16))
    assert not quarantine(store).barred()(tiled(17))


def test_the_reason_says_what_it_was_of(store: Store) -> None:
    quarantine(store).note(SQUARE, tiled(16), HUNG)
    (reason,) = store.quarantined(H100).values()
    assert str(SQUARE) in str(reason)
    assert "timeout: no end after 10 s" in str(reason)
