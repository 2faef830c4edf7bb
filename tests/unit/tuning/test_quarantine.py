"""A candidate that crashed or hung is not tried again on that device."""

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
from autotune.tuning.evaluate import DANGEROUS, Quarantine

HUNG = Failure("timeout", "no end after 10 s")
HARMLESS = sorted({*get_args(Stage)} - {*DANGEROUS})


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


def quarantine(
    store: Store, device: Device = H100, evidence: Evidence = "measured", source: str = "5e1f"
) -> Quarantine:
    return Quarantine(store, device, evidence, source)


@pytest.mark.parametrize("stage", DANGEROUS)
def test_dangerous_failure_is_quarantined(store: Store, stage: Stage) -> None:
    quarantine(store).note(SQUARE, tiled(16), Failure(stage, "gone"))
    barred = quarantine(store).barred()
    assert [barred(tiled(16)), barred(tiled(17))] == [True, False]


@pytest.mark.parametrize("stage", HARMLESS)
def test_harmless_failure_is_not_quarantined(store: Store, stage: Stage) -> None:
    quarantine(store).note(SQUARE, tiled(16), Failure(stage, "wrong"))
    assert not quarantine(store).barred()(tiled(16))


def test_other_sources_may_have_fixed_the_kernel(store: Store) -> None:
    quarantine(store).note(SQUARE, tiled(16), HUNG)
    assert not quarantine(store, source="5e2f").barred()(tiled(16))


def test_quarantine_follows_the_sources_of_the_family(store: Store) -> None:
    source = "mma:31da tiled:5e1f"
    quarantine(store, source=source).note(SQUARE, tiled(16), HUNG)
    other_mma = quarantine(store, source="mma:c0de tiled:5e1f")
    assert other_mma.barred()(tiled(16))
    assert not quarantine(store, source="mma:31da tiled:c0de").barred()(tiled(16))
    # As a record of tiled kernels alone names them.
    assert quarantine(store, source="5e1f").barred()(tiled(16))


def test_another_device_has_its_own_quarantine(store: Store) -> None:
    quarantine(store).note(SQUARE, tiled(16), HUNG)
    another = replace(H100, name="NVIDIA A100")
    assert not quarantine(store, another).barred()(tiled(16))


@pytest.mark.parametrize("evidence", ["replayed", "predicted"])
def test_only_live_devices_have_a_quarantine(store: Store, evidence: Evidence) -> None:
    quarantine(store).note(SQUARE, tiled(16), HUNG)
    not_live = quarantine(store, evidence=evidence)
    not_live.note(SQUARE, tiled(17), HUNG)
    assert not not_live.barred()(tiled(16))
    assert not quarantine(store).barred()(tiled(17))


def test_reason_names_the_tunable_and_the_failure(store: Store) -> None:
    quarantine(store).note(SQUARE, tiled(16), HUNG)
    (reason,) = store.quarantined(H100).values()
    assert str(SQUARE) in str(reason)
    assert "timeout: no end after 10 s" in str(reason)
