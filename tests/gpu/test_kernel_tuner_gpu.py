"""Moving from Kernel Tuner on a GPU: the calls of the guide, and recordings both ways."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import stencil
from support.document_commands import blocks
from support.paths import ROOT

import autotune
from autotune import settings
from autotune.api.tuning import save_t4
from autotune.device import Device
from autotune.measure.measurement import Measurement
from autotune.measure.recording import KernelRecording
from autotune.records import Store
from autotune.tuning.options import Search

CALLS, RUN_KERNEL = (
    block
    for block in blocks([ROOT / "docs" / "kernel-authors.md"], "py")
    if re.search(r"^# \d", block.text, re.M)
)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))


def test_calls_of_the_guide_run(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del device
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "calls"}
    exec(compile(CALLS.text, str(CALLS), "exec"), names)
    assert names["record"].evidence == "measured"
    a, b = (torch.from_numpy(names[name]).cuda() for name in "ab")
    names |= {"a": a, "b": b, "c": torch.zeros_like(a)}
    exec(compile(RUN_KERNEL.text, str(RUN_KERNEL), "exec"), names)
    assert np.array_equal(names["c"].cpu().numpy(), (a + b).cpu().numpy())


def test_trials_are_exported_and_searched_again(device: Device, tmp_path: Path) -> None:
    own, t4 = tmp_path / "stencil.json.gz", tmp_path / "GPU_T4.json"
    record = stencil.tune(700, 1300, search=Search(trials=6, recording=own))
    assert save_t4(record, Store(settings.cache_dir()), t4) == 6
    times = {
        row.config: row.outcome.time_us
        for row in KernelRecording.load(own).rows
        if isinstance(row.outcome, Measurement)
    }
    assert {
        row.config: row.outcome.time_us
        for row in KernelRecording.load(t4).rows
        if isinstance(row.outcome, Measurement)
    } == pytest.approx(times, rel=1e-3)
    assert KernelRecording.load(own).device.name == device.name
    for path in (own, t4):
        replayed = stencil.tune(700, 1300, device=f"replay:{path}")
        assert (replayed.evidence, replayed.provenance.trials) == ("replayed", 6)
    shipped = autotune.tune_kernel(**stencil.call(), device="replay:stencil")
    assert shipped.device.name == "NVIDIA H200"
