"""The process's matmul of batch-invariant kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.fake_driver import FakeCuda
from support.sample_records import entry, record

from autotune import runtime
from autotune.candidates import space
from autotune.errors import NotFoundError
from autotune.problem import Problem
from autotune.records import OrderedRecord, Store, ranges
from autotune.records.ranges import Range, Segment
from autotune.runtime import process
from autotune.runtime.driver import Driver
from autotune.settings import Mode

ORDER = "mma bf16 swap=0 128"
TOP = Problem(64, 64, 128, "bf16", "nt")


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    driver = Driver(FakeCuda())
    monkeypatch.setattr(Driver, "load", lambda: driver)
    process.batch_invariant.cache_clear()
    process._invariant_matmul.cache_clear()


def test_product_without_a_range_is_refused() -> None:
    with pytest.raises(NotFoundError, match=r"`autotune tune 1..8192x64x128:bf16:nt --batch-inv"):
        runtime.batch_invariant().runtime.resolve(TOP, 0)


def test_range_is_run_and_never_the_vendor(tmp_path: Path) -> None:
    device = runtime.batch_invariant().runtime.gpu(0).device
    config = space.feasible(TOP, device, "mma", ORDER).configs[0]
    plain = record(replace(entry(16, 9.0), config=config), problem=TOP, baseline_us=1.0)
    fields = plain.entries, plain.baseline, plain.provenance, TOP, "auto", ORDER
    Store(tmp_path).save(OrderedRecord(device, "measured", *fields))
    segments = (Segment(1, 64, 64),)
    ranges.save(tmp_path, Range(device, TOP, "m", segments, 0.0, order=ORDER))
    answer = runtime.batch_invariant().runtime.resolve(TOP, 0)
    assert (answer.config, answer.vendor) == (config, False)


def test_frozen_mode_does_not_fall_back_to_the_vendor() -> None:
    with runtime.process.switched(Mode("frozen", "vendor")):
        assert runtime.batch_invariant().runtime.mode.missing == "raise"
