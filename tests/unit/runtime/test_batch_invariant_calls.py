"""The process's matmul of batch-invariant kernels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fake_driver import FakeCuda
from support.fake_runner import compiled
from support.sample_records import entry, record

import autotune
from autotune import runtime
from autotune.cuda import compiler
from autotune.errors import NotFoundError, UsageError
from autotune.families.config import Config
from autotune.model import space
from autotune.problem import Problem
from autotune.records import FamilyRecord, Store, ranges
from autotune.records.ranges import Range, Segment
from autotune.runtime.launcher import Driver

ORDER = "mma bf16 swap=0 128"
TOP = Problem(64, 64, 128, "bf16", "nt")


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path))
    driver = Driver(FakeCuda())
    monkeypatch.setattr(Driver, "load", lambda: driver)
    runtime.batch_invariant.cache_clear()
    runtime._matmul.cache_clear()


def test_product_without_a_range_is_refused() -> None:
    with pytest.raises(NotFoundError, match=r"`autotune tune 1..8192x64x128:bf16:nt --batch-inv"):
        runtime.batch_invariant().runtime.resolve(TOP, 0)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """The kernel of a range of the fake GPU."""
    device = runtime.batch_invariant().runtime.gpu(0).device
    config = space.feasible(TOP, device, "mma", ORDER).configs[0]
    plain = record(replace(entry(16, 9.0), config=config), problem=TOP, baseline_us=1.0)
    fields = plain.entries, plain.baseline, plain.provenance, TOP, "auto", ORDER
    Store(tmp_path).save(FamilyRecord(device, "measured", *fields))
    segments = (Segment(1, 64, 64),)
    ranges.save(tmp_path, Range(device, TOP, "m", segments, order=ORDER))
    return config


def test_range_is_run_and_never_the_vendor(config: Config) -> None:
    answer = runtime.batch_invariant().runtime.resolve(TOP, 0)
    assert (answer.config, answer.vendor) == (config, False)


def test_kernel_is_that_of_the_range(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiler, "compile", lambda template, arch, **_: compiled(template, arch))
    with autotune.policy(batch_invariant=True):
        assert autotune.kernel(TOP, device=0).config == config
        (answer,) = autotune.warmup([TOP], device=0)
    assert answer.config == config
    assert runtime.batch_invariant().runtime.has_answer(TOP, 0)


@pytest.mark.parametrize("load", [autotune.kernel, lambda *a, **k: autotune.warmup([*a], **k)])
def test_kernel_without_a_range_says_what_to_tune(load: Any) -> None:
    with pytest.raises(NotFoundError, match=r"`autotune tune 1..8192x64x128:bf16:nt --batch-inv"):
        load(TOP, policy=autotune.Policy(batch_invariant=True), device=0)


@pytest.mark.parametrize("tune", [True, "quick"])
@pytest.mark.parametrize("load", [autotune.kernel, lambda *a, **k: autotune.warmup([*a], **k)])
def test_single_size_of_a_range_is_not_tuned(load: Any, tune: Any) -> None:
    with pytest.raises(UsageError, match="not tuned alone; tune its range"):
        load(TOP, policy=autotune.Policy(batch_invariant=True, tune=tune), device=0)


def test_frozen_mode_does_not_fall_back_to_the_vendor() -> None:
    with runtime.entered(autotune.Policy(frozen=True)):
        assert runtime.batch_invariant().runtime.mode.missing == "raise"
