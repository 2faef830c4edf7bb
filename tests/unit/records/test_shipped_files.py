"""The records that come with the package."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from autotune import settings
from autotune.device import Device, find
from autotune.lookup.lookup import lookup
from autotune.measure.targets import check_memory
from autotune.model import space
from autotune.model.legality import as_tuned
from autotune.problem import Problem
from autotune.records import Store, bundle, shipped

DEVICES = ("h100", "h200")


@pytest.fixture(autouse=True)
def _shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AUTOTUNE_SHIPPED_DIR")


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Device:
    name: str = request.param
    return find(name)


def test_each_device_has_more_than_a_hundred_problems(device: Device) -> None:
    assert len(shipped.records(device)) > 100


def test_all_precisions_are_shipped(device: Device) -> None:
    computes = Counter(record.problem.compute for record in shipped.records(device))
    assert {"f32", "tf32", "f16", "bf16"} <= set(computes)


def test_all_were_measured_with_a_vendor_baseline(device: Device) -> None:
    records = shipped.records(device)
    assert {record.evidence for record in records} == {"measured"}
    assert all(record.baseline is not None for record in records)


def test_best_configurations_are_legal(device: Device) -> None:
    for record in shipped.records(device):
        check_memory(record.problem, device)
        card = as_tuned(device, record.device)
        rejection = space.rejection(record.best.config, record.problem, card, recorded=True)
        assert rejection is None, record.title


def test_shipped_problem_is_looked_up_exactly(device: Device, tmp_path: Path) -> None:
    answer = lookup(Problem(16, 4096, 4096, "bf16", "nt"), device, Store(tmp_path))
    assert answer is not None
    assert (answer.how, answer.evidence) == ("exact", "measured")


def test_no_two_bundles_hold_the_same_problem() -> None:
    problems = [
        (record.device.slug, record.problem)
        for path in shipped.paths(settings.shipped_dir())
        for record in bundle.loads(path.read_bytes()).records
    ]
    assert max(Counter(problems).values()) == 1
