"""From a plan to a candidate and its trial; what crashed or hung is quarantined."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from support.fake_runner import FakeRunner, by_width, compiled, crash, program, tiled, uncompiled
from support.sample_records import H100, SQUARE

from autotune.candidates import space
from autotune.cuda.program import CompileFailure, Program
from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Resources, Template
from autotune.problem import Problem
from autotune.records import Store
from autotune.runners.base import Candidate, Evidence, Failure, Measurement, Stage
from autotune.tuning.evaluate import DANGEROUS, Quarantine, Trial, prepare

SPLIT = Config.parse(
    "simt:bm=64,bn=64,wm=32,wn=16,tm=4,tn=4,slices=1,bk=8,copy=staged,stages=2,fragments=1,"
    "min_blocks=1,split_k=2,reduction=separate,workers=0,chunks=1,pack=none,group=1,fence=0,"
    "order=rows"
)
# Copies of both operands come before the GEMM's launch.
PACKED = Config.of("simt", SPLIT.values | {"pack": "ab"})


def candidate(config: Config) -> Candidate:
    prepared = prepare(registry.plan(config, SQUARE), FakeRunner(), compiled)
    assert isinstance(prepared, Candidate)
    return prepared


def test_resources_add_static_and_dynamic_shared_memory() -> None:
    resources = candidate(tiled(16)).resources
    assert (resources.threads, resources.registers, resources.shared) == (
        256,
        32,
        16 + 2 * 16 * 16 * 4,
    )


def test_every_launch_gets_its_program() -> None:
    two = candidate(SPLIT)
    templates = [launch.template for launch in two.plan.launches]
    assert [program.template for program in two.programs] == templates
    assert len(templates) == 2


def test_resources_are_those_of_the_gemm_launch() -> None:
    def build(template: Template, arch: str) -> Program:
        return program(template, arch, registers=90 if template.kernel == "simt" else 30)

    prepared = prepare(registry.plan(PACKED, SQUARE), FakeRunner(), build)
    assert isinstance(prepared, Candidate)
    assert [built.template.kernel for built in prepared.programs] == ["pack", "simt", "split_k"]
    assert prepared.resources.registers == 90


def test_known_resources_need_no_compiler() -> None:
    runner = FakeRunner(recorded=[tiled(16)])
    assert isinstance(prepare(registry.plan(tiled(16), SQUARE), runner, uncompiled), Candidate)


def test_compile_error_is_a_failure() -> None:
    def broken(template: Template, arch: str) -> CompileFailure:
        return CompileFailure(template, arch, "tiled.cu(7): error: expected a ;", "log")

    failure = prepare(registry.plan(tiled(16), SQUARE), FakeRunner(), broken)
    assert failure == Failure("compile", "tiled.cu(7): error: expected a ;")


@pytest.mark.parametrize("memory", [{"spills": 48}, {"local": 48}])
def test_spills_and_local_memory_reject_with_numbers(memory: dict[str, int]) -> None:
    failure = prepare(
        registry.plan(tiled(16), SQUARE), FakeRunner(), lambda t, a: program(t, a, **memory)
    )
    assert isinstance(failure, Failure)
    assert failure.stage == "resources"
    assert "48 bytes" in failure.reason


@pytest.mark.parametrize(
    ("spills", "local", "runs"), [(40, 40, True), (44, 24, False), (40, 48, False), (8, 8, True)]
)
def test_spill_of_a_few_bytes_is_left_to_timing(spills: int, local: int, runs: bool) -> None:
    prepared = prepare(
        registry.plan(tiled(16), SQUARE),
        FakeRunner(),
        lambda t, a: program(t, a, spills=spills, local=local),
    )
    assert isinstance(prepared, Candidate) == runs


def test_block_that_fits_no_sm_is_rejected_with_numbers() -> None:
    failure = prepare(
        registry.plan(tiled(32), SQUARE), FakeRunner(), lambda t, a: program(t, a, registers=80)
    )
    assert isinstance(failure, Failure)
    assert "1024 threads of 80 registers" in failure.reason
    assert "limited by registers" in failure.reason


def trial(outcome: Measurement | Failure) -> Trial:
    return Trial.of(candidate(tiled(16)), outcome, H100)


def test_measured_trial_has_an_entry() -> None:
    # 256 threads of 32 registers: 8 blocks of 8 warps fill the 64 warps of an SM.
    entry = trial(by_width(tiled(16))).entry
    assert entry is not None
    assert (entry.occupancy, entry.limiter) == (1.0, "warps and registers")


def test_limiter_names_clusters_that_leave_sms_idle() -> None:
    deep = Problem(256, 512, 16384, "bf16")
    config = next(
        config
        for config in space.feasible(deep, H100, "wgmma").configs
        if config.values["cluster"] == "1x1x8"
    )
    resources = Resources(threads=256, registers=168, shared=200_000)
    ready = Candidate(config, registry.plan(config, deep), (), resources)
    limiters = [
        Trial.of(ready, Measurement(10.0), replace(H100, sms=sms, clusters=(64, 32, 16))).limiter
        for sms in (128, 132)
    ]
    assert limiters == ["registers and shared memory", "registers and shared memory and clusters"]


def test_failed_trial_has_no_entry() -> None:
    assert trial(crash(tiled(16))).entry is None


def test_failure_has_no_time() -> None:
    assert Trial(tiled(4), crash(tiled(4))).time_us > Measurement(1e30).time_us


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
