"""From a plan to a candidate and its trial; what crashed or hung is quarantined."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import get_args

import pytest
from support.fake_runner import FakeRunner, by_width, compiled, crash, program, tiled, uncompiled
from support.sample_records import H100, SQUARE

from autotune.cuda.program import CompileFailure, Program
from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Resources, Template
from autotune.measure.measurement import Evidence, Failure, Measurement, Stage
from autotune.measure.objective import COLD, HOT, Objective
from autotune.measure.runner import Candidate
from autotune.model import space
from autotune.problem import Problem
from autotune.records import Store
from autotune.tuning.pipeline import prepare
from autotune.tuning.trials import (
    BY_OTHER_OBJECTIVE,
    DANGEROUS,
    LEADERS,
    Leaderboard,
    Quarantine,
    Trial,
)

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


def quarantine(
    store: Store, device: Device = H100, evidence: Evidence = "measured", source: str = "5e1f"
) -> Quarantine:
    return Quarantine(store, device, evidence, source)


@pytest.mark.parametrize("stage", DANGEROUS)
def test_dangerous_failure_is_quarantined(store: Store, stage: Stage) -> None:
    quarantine(store).note(SQUARE, tiled(16), Failure(stage, "gone"))
    barred = quarantine(store).barred()
    assert barred == {tiled(16)}


@pytest.mark.parametrize("stage", HARMLESS)
def test_harmless_failure_is_not_quarantined(store: Store, stage: Stage) -> None:
    quarantine(store).note(SQUARE, tiled(16), Failure(stage, "wrong"))
    assert tiled(16) not in quarantine(store).barred()


def test_other_sources_may_have_fixed_the_kernel(store: Store) -> None:
    quarantine(store).note(SQUARE, tiled(16), HUNG)
    assert tiled(16) not in quarantine(store, source="5e2f").barred()


def test_quarantine_follows_the_sources_of_the_family(store: Store) -> None:
    source = "mma:31da tiled:5e1f"
    quarantine(store, source=source).note(SQUARE, tiled(16), HUNG)
    other_mma = quarantine(store, source="mma:c0de tiled:5e1f")
    assert tiled(16) in other_mma.barred()
    assert tiled(16) not in quarantine(store, source="mma:31da tiled:c0de").barred()
    # As a record of tiled kernels alone names them.
    assert tiled(16) in quarantine(store, source="5e1f").barred()


def test_another_device_has_its_own_quarantine(store: Store) -> None:
    quarantine(store).note(SQUARE, tiled(16), HUNG)
    another = replace(H100, name="NVIDIA A100")
    assert tiled(16) not in quarantine(store, another).barred()


@pytest.mark.parametrize("evidence", ["replayed", "predicted"])
def test_only_live_devices_have_a_quarantine(store: Store, evidence: Evidence) -> None:
    quarantine(store).note(SQUARE, tiled(16), HUNG)
    not_live = quarantine(store, evidence=evidence)
    not_live.note(SQUARE, tiled(17), HUNG)
    assert tiled(16) not in not_live.barred()
    assert tiled(17) not in quarantine(store).barred()


def test_reason_names_the_tunable_and_the_failure(store: Store) -> None:
    quarantine(store).note(SQUARE, tiled(16), HUNG)
    (reason,) = store.quarantined(H100).values()
    assert str(SQUARE) in str(reason)
    assert "timeout: no end after 10 s" in str(reason)


def leaderboard(trials: Iterable[Trial]) -> Leaderboard:
    board = Leaderboard()
    for trial in trials:
        board.add(trial)
    return board


def timed(config: Config, time_us: float) -> Trial:
    return Trial(config, Measurement(time_us))


NAIVE = Config.parse("naive:mapping=coalesced,block=32")


TWENTY = [timed(tiled(width), 100.0 + width) for width in range(5, 25)]


def test_leaders_are_the_fastest_in_order() -> None:
    leaders = leaderboard(reversed(TWENTY)).leaders
    assert leaders == TWENTY[:LEADERS]


def test_run_without_a_trial_has_a_summary() -> None:
    assert leaderboard([]).failure_summary() == "none was tried; allow more trials or time"


def test_leaders_within_reach() -> None:
    board = Leaderboard(reach=1.03)
    for trial in [timed(NAIVE, 114.0), *TWENTY]:
        board.add(trial)
    assert board.leaders == [*TWENTY[:4], timed(NAIVE, 114.0)]


def test_best_of_a_near_family_is_a_leader() -> None:
    leaders = leaderboard([timed(NAIVE, 115.0), *TWENTY]).leaders
    assert leaders == [*TWENTY[: LEADERS - 1], timed(NAIVE, 115.0)]


def test_only_the_best_of_a_near_family_is_preferred() -> None:
    slower = timed(Config.parse("naive:mapping=coalesced,block=16"), 115.1)
    assert slower not in leaderboard([timed(NAIVE, 115.0), slower, *TWENTY]).leaders


def test_family_far_behind_has_no_leader() -> None:
    assert leaderboard([timed(NAIVE, 116.0), *TWENTY]).leaders == TWENTY[:LEADERS]


def test_no_configuration_leads_twice() -> None:
    leaders = leaderboard([timed(NAIVE, 101.0), *TWENTY]).leaders
    assert leaders == [timed(NAIVE, 101.0), *TWENTY[: LEADERS - 1]]


def test_after_a_rematch_only_its_trials_count() -> None:
    board = leaderboard(TWENTY)
    board.rematch(
        [timed(tiled(7), 120.0), timed(tiled(6), 110.0), Trial(tiled(5), crash(tiled(5)))]
    )
    assert board.leaders == [timed(tiled(6), 110.0), timed(tiled(7), 120.0)]


def test_failure_never_leads() -> None:
    assert leaderboard([Trial(tiled(4), crash(tiled(4)))]).leaders == []


def test_failures_are_counted_and_the_best_kept() -> None:
    ran = [Trial(config, by_width(config)) for config in (tiled(9), tiled(22))]
    board = leaderboard([Trial(tiled(4), crash(tiled(4))), *ran])
    assert board.best is not None
    assert (board.failures, board.best.config, len(board.trials)) == (1, tiled(22), 3)


@pytest.mark.parametrize(
    ("trials", "text"),
    [
        ([], "none was tried; allow more trials or time"),
        (
            [Trial(tiled(4), Failure("accuracy", "2.1 times cuBLAS's"))] * 2
            + [Trial(tiled(5), Failure("verify", "wrong"))],
            "accuracy 2, verify 1; such as tiled:tile_width=4,specialized=1: accuracy: 2.1 times",
        ),
    ],
)
def test_failure_summary_says_why_no_trial_has_a_time(trials: list[Trial], text: str) -> None:
    assert leaderboard(trials).failure_summary().startswith(text)


def both_times(width: int, hot_us: float, cold_us: float | None) -> Trial:
    return Trial(tiled(width), Measurement(hot_us, cold_us=cold_us))


# The faster a trial is hot, the slower it is cold.
OPPOSED = [both_times(width, 100.0 + width, 300.0 - width) for width in range(5, 30)]


def leaderboard_by(objective: Objective, trials: Iterable[Trial]) -> Leaderboard:
    board = Leaderboard(objective)
    for trial in trials:
        board.add(trial)
    return board


def test_objective_cold_ranks_by_cold_time() -> None:
    leaders = leaderboard_by(COLD, OPPOSED).leaders
    cold_first = OPPOSED[::-1]
    assert leaders == [
        *cold_first[: LEADERS - BY_OTHER_OBJECTIVE],
        *OPPOSED[BY_OTHER_OBJECTIVE - 1 :: -1],
    ]


def test_objective_hot_keeps_the_best_cold_trials() -> None:
    leaders = leaderboard_by(HOT, OPPOSED).leaders
    assert leaders == [*OPPOSED[: LEADERS - BY_OTHER_OBJECTIVE], *OPPOSED[-BY_OTHER_OBJECTIVE:]]


def test_best_is_the_best_by_the_objective() -> None:
    hot, cold = leaderboard_by(HOT, OPPOSED), leaderboard_by(COLD, OPPOSED)
    assert (hot.best, cold.best) == (OPPOSED[0], OPPOSED[-1])


def test_trial_without_a_cold_time_cannot_lead_cold() -> None:
    board = leaderboard_by(COLD, [both_times(4, 1.0, None), *OPPOSED[:3]])
    assert tiled(4) not in [trial.config for trial in board.leaders]
    assert board.best == OPPOSED[2]


def check(measurement: Measurement, baseline: Measurement) -> Measurement | Failure:
    """Refuses the two fastest of `TWENTY`."""
    del baseline
    return Failure("accuracy", "no") if measurement.time_us < 107 else measurement


def test_late_baseline_checks_every_trial() -> None:
    board = Leaderboard(check=check)
    for trial in TWENTY[:10]:
        assert board.add(trial) == trial
    board.compare(Measurement(90.0))
    assert (board.failures, board.best, len(board.trials)) == (2, TWENTY[2], 10)
    assert board.leaders[0] == TWENTY[2]


def test_known_baseline_checks_a_trial_at_once() -> None:
    board = Leaderboard(check=check)
    board.compare(Measurement(90.0))
    assert board.add(TWENTY[0]) == replace(TWENTY[0], outcome=Failure("accuracy", "no"))
    assert board.add(TWENTY[2]) == TWENTY[2]
    assert (board.failures, board.leaders) == (1, [TWENTY[2]])
