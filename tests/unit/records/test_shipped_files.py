"""The records that come with the package."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from autotune import settings
from autotune.candidates import space
from autotune.device import Device, find
from autotune.lookup.lookup import lookup
from autotune.problem import Problem
from autotune.records import Store, bundle, shipped
from autotune.targets.targets import check_memory

DEVICES = ("h100", "h200")


@pytest.fixture(autouse=True)
def _shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTUNE_SHIPPED_DIR")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    name: str = request.param
    return find(name)


def test_each_device_has_a_hundred_problems_and_more(device: Device) -> None:
    assert len(shipped.records(device)) > 100


def test_they_are_of_all_precisions_with_a_library_beside(device: Device) -> None:
    computes = Counter(one.problem.compute for one in shipped.records(device))
    assert {"f32", "tf32", "f16", "bf16"} <= set(computes)


def test_all_were_measured_beside_the_vendors_library(device: Device) -> None:
    found = shipped.records(device)
    assert {one.evidence for one in found} == {"measured"}
    assert all(one.baseline is not None for one in found)


def test_their_best_are_legal_today(device: Device) -> None:
    for one in shipped.records(device):
        check_memory(one.problem, device)
        assert space.rejection(one.best.config, one.problem, device) is None, one.title


def test_a_product_of_theirs_is_exact(device: Device, tmp_path: Path) -> None:
    answer = lookup(Problem(16, 4096, 4096, "bf16", "nt"), device, Store(tmp_path))
    assert answer is not None
    assert (answer.how, answer.evidence) == ("exact", "measured")


def test_no_two_bundles_hold_the_same_problem() -> None:
    held = [
        (record.device.slug, record.problem)
        for path in shipped.paths(settings.shipped_dir())
        for record in bundle.loads(path.read_bytes()).records
    ]
    assert max(Counter(held).values()) == 1
