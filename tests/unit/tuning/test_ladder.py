"""The ladder: steps from the naive kernel to the best, beside cuBLAS."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from support import sample_records
from support.fake_runner import ORIGIN, FakeRunner, compiled
from support.sample_recording import FASTEST, FASTEST_US, PROBLEM, VENDOR_US, recorded

from autotune.cuda.program import CompileFailure, Program
from autotune.device import Device, find
from autotune.errors import NotFoundError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.family import Family, Rule
from autotune.families.plan import Template
from autotune.families.textbook import TILED
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.recording import Recording, SweepRow
from autotune.measure.targets import Target
from autotune.model import cost
from autotune.model.legality import kept_rules
from autotune.problem import Problem
from autotune.records import FamilyRecord, Store
from autotune.report.ladder import Rung, render, rungs, to_json
from autotune.tuning import ladder
from autotune.tuning.ladder import BEST, STEPS, LadderChoice, choice, climb

TUNED = LadderChoice(FASTEST, "tuned")


def times(config: Config) -> Measurement:
    return Measurement(100.0 + len(str(config)))


def rung(name: str) -> Rung:
    return next(step for step in rungs(ladder.recorded(recorded())) if step.name == name)


def printed(climbed: ladder.Ladder, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(render(climbed))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_recorded_ladder_ends_with_the_fastest_kernel() -> None:
    steps = ladder.recorded(recorded()).steps
    assert ([*steps], steps[BEST].config) == ([*STEPS, BEST], FASTEST)


def test_unrecorded_steps_are_left_out() -> None:
    rows = tuple(row for row in recorded().rows if row.config.family == "simt")
    assert [*ladder.recorded(replace(recorded(), rows=rows)).steps] == [BEST]


def test_recording_without_simt_kernels_has_no_ladder() -> None:
    rows = tuple(row for row in recorded().rows if row.config.family != "simt")
    with pytest.raises(NotFoundError, match="256x256x256:f32:nn on NVIDIA H100 80GB HBM3 has no"):
        ladder.recorded(replace(recorded(), rows=rows))


def test_kernel_of_another_version_is_passed_over() -> None:
    first, *_ = rows = recorded().rows
    older = replace(first, config=Config.parse("simt:bm=64,bn=64"), outcome=Measurement(1.0))
    assert ladder.recorded(replace(recorded(), rows=(older, *rows))).steps[BEST].config == FASTEST


def test_climb_times_all_steps_interleaved() -> None:
    runner = FakeRunner(times)
    climb(PROBLEM, TUNED, runner, compiled)
    assert runner.rematched == [*STEPS.values(), FASTEST]


def test_failed_step_keeps_its_reason() -> None:
    runner = FakeRunner(
        lambda config: Failure("verify", "wrong") if config.family == "naive" else times(config)
    )
    climbed = climb(PROBLEM, TUNED, runner, compiled)
    assert [step.failure for step in rungs(climbed)][:3] == ["verify: wrong", "verify: wrong", None]


def inaccurate_naive() -> FakeRunner:
    """A runner on which naive kernels err eight times as much as cuBLAS and fail in a rematch."""

    def verified(config: Config) -> Measurement:
        error = 8e-7 if config.family == "naive" else 1e-7
        return replace(times(config), relative_error=error)

    def refused(config: Config) -> Measurement | Failure:
        return Failure("accuracy", "8 times") if config.family == "naive" else verified(config)

    class Runner(FakeRunner):
        def baseline(self) -> Measurement:
            return Measurement(20.0, relative_error=1e-7)

    return Runner(verified, again=refused)


def test_inaccurate_step_is_shown_with_its_error() -> None:
    climbed = climb(PROBLEM, TUNED, inaccurate_naive(), compiled)
    first, *_ = steps = rungs(climbed)
    assert [step.failure for step in steps] == [None] * len(steps)
    assert (first.time_us, first.relative_error) == (
        times(STEPS["naive, uncoalesced"]).time_us,
        8e-7,
    )
    assert "naive, uncoalesced: relative error 8e-07 is 8.0 times" in printed(climbed)


def test_only_inaccurate_steps_are_measured_by_themselves() -> None:
    runner = inaccurate_naive()
    climb(PROBLEM, TUNED, runner, compiled)
    assert [config.family for config in runner.measured] == ["naive", "naive"]


def test_accurate_steps_have_no_inaccuracy() -> None:
    steps = rungs(climb(PROBLEM, TUNED, inaccurate_naive(), compiled))
    assert [step.inaccuracy is None for step in steps] == [False, False, *[True] * 5]


def test_step_that_does_not_compile_is_not_timed() -> None:
    def broken(template: Template, arch: str) -> Program | CompileFailure:
        if template.kernel == "naive":
            return CompileFailure(template, arch, "no", "")
        return compiled(template, arch)

    climbed = climb(PROBLEM, TUNED, FakeRunner(times), broken)
    assert [step.time_us is None for step in rungs(climbed)] == [True, True, *[False] * 5]


def test_speed_is_2mnk_over_the_time() -> None:
    assert rung(BEST).gflops == pytest.approx(2 * 256**3 / FASTEST_US / 1e3)


def test_cublas_share_is_the_ratio_of_times() -> None:
    assert rung(BEST).cublas_share == VENDOR_US / FASTEST_US


def test_cublas_comes_last_without_a_configuration() -> None:
    last = rungs(ladder.recorded(recorded()))[-1]
    assert (last.name, last.time_us, last.cublas_share, last.config) == (
        "cuBLAS",
        VENDOR_US,
        1.0,
        None,
    )


@pytest.mark.parametrize(
    ("name", "flop_per_byte"),
    # PMPP, the chapter on tiled multiplication: 0.25 FLOP/B without tiles, TILE_WIDTH / 4 with.
    [("naive, coalesced", 0.25), ("naive, uncoalesced", 0.25), ("tiled, TILE_WIDTH 32", 8.0)],
)
def test_flop_per_byte_of_textbook_kernels(name: str, flop_per_byte: float) -> None:
    assert rung(name).flop_per_byte == flop_per_byte


def test_bound_is_what_the_bandwidth_feeds() -> None:
    assert rung("naive, coalesced").bound_gflops == pytest.approx(3.352e12 * 0.25 / 1e9)


def test_without_a_vendor_baseline_there_is_no_share() -> None:
    climbed = ladder.recorded(replace(recorded(), baseline=None))
    assert [step.cublas_share for step in rungs(climbed)] == [None] * 6


def test_table_title_has_the_evidence() -> None:
    assert printed(ladder.recorded(recorded())).startswith(
        "256x256x256:f32:nn on NVIDIA H100 80GB HBM3  REPLAYED"
    )


def test_ladder_as_json_names_every_rung() -> None:
    data = json.loads(json.dumps(to_json(ladder.recorded(recorded()))))
    assert [step["name"] for step in data["rungs"]] == [*STEPS, BEST, "cuBLAS"]


def test_every_step_is_legal_on_a_t4() -> None:
    from autotune import device
    from autotune.model import space

    problem = Problem(4096, 4096, 4096)
    assert [space.rejection(step, problem, device.find("t4")) for step in STEPS.values()] == [
        None
    ] * 5


# On tensor cores: the families are stand-ins that plan `tiled` kernels.


def tensor_core_family(name: str, oldest: tuple[int, int] = (8, 0)) -> Family[Any]:
    """A stand-in for a tensor-core family, legal from compute capability `oldest` on."""

    def architecture(_p: object, _problem: Problem, device: Device) -> str | None:
        return None if device.compute_capability >= oldest else f"needs {oldest}"

    return replace(
        TILED,
        name=name,
        precisions=("tf32", "bf16"),
        rules=(Rule("architecture", architecture, ("tile_width",)),),
        tensor_cores=True,
    )


def on(family: str, width: int) -> Config:
    return Config.of(family, {"tile_width": width, "specialized": 1})


@pytest.fixture
def with_tensor_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Families of stand-ins, whose rules are not those kept of the package's own."""
    stand_ins = {
        "mma": tensor_core_family("mma"),
        "wgmma": tensor_core_family("wgmma", oldest=(9, 0)),
    }
    unchanged = {
        name: family for name, family in registry.FAMILIES.items() if name not in stand_ins
    }
    monkeypatch.setattr(registry, "FAMILIES", {**unchanged, **stand_ins})
    monkeypatch.setattr(cost, "trained", lambda: ((9, 0), {}))
    kept_rules.cache_clear()
    yield
    kept_rules.cache_clear()


def in_precision(compute: str) -> Problem:
    return replace(PROBLEM, compute=compute)


def extended(store: Store, device: str = "h100") -> ladder.Ladder:
    """A ladder whose kernels take a microsecond for each column of a tile, cuBLAS 20 us."""

    class Runner(FakeRunner):
        def baseline(self) -> Measurement:
            return Measurement(20.0)

    def timed(config: Config) -> Measurement:
        return Measurement(float(config.values.get("tile_width", 64)))

    runner = Runner(timed, device=find(device))

    @contextmanager
    def opened(problem: Problem) -> Iterator[Target]:
        assert problem.shape == PROBLEM.shape
        yield Target(runner, ORIGIN)

    target: Any = opened
    return ladder.extended(climb(PROBLEM, TUNED, runner, compiled), store, target, compiled)


def tuned(store: Store, compute: str, *configs: Config) -> None:
    entries = [
        replace(sample_records.entry(16, 9.0 + place), config=config)
        for place, config in enumerate(configs)
    ]
    store.save(sample_records.record(*entries, problem=in_precision(compute), device=find("h100")))


@pytest.mark.usefixtures("with_tensor_cores")
def test_each_precision_has_its_steps_and_its_cublas(tmp_path: Path) -> None:
    climbed = extended(Store(tmp_path))
    names = [step.name for step in rungs(climbed)]
    assert names[len(STEPS) + 1 :] == [
        "cuBLAS",
        *("tf32, mma", "tf32, wgmma", "cuBLAS, tf32"),
        *("bf16, mma", "bf16, wgmma", "cuBLAS, bf16"),
    ]


@pytest.mark.usefixtures("with_tensor_cores")
def test_tensor_core_step_runs_the_recorded_kernel(tmp_path: Path) -> None:
    tuned(store := Store(tmp_path), "bf16", on("mma", 9), on("wgmma", 10), on("mma", 11))
    climbed = extended(store)
    steps = {step.name: step.config for step in rungs(climbed) if step.compute == "bf16"}
    assert steps["bf16, mma"] == str(on("mma", 9))
    assert steps["bf16, wgmma"] == str(on("wgmma", 10))
    assert climbed.untuned == ("tf32, mma", "tf32, wgmma")


@pytest.mark.usefixtures("with_tensor_cores")
def test_recorded_kernel_illegal_today_is_not_run(tmp_path: Path) -> None:
    tuned(store := Store(tmp_path), "bf16", on("mma", 999), on("mma", 11))
    (_, bf16) = extended(store).higher
    assert bf16.steps["bf16, mma"].config == on("mma", 11)


@pytest.mark.usefixtures("with_tensor_cores")
def test_shares_are_of_the_same_precision(tmp_path: Path) -> None:
    tuned(store := Store(tmp_path), "bf16", on("mma", 10))
    step = next(step for step in rungs(extended(store)) if step.name == "bf16, mma")
    assert step.cublas_share == 20.0 / 10.0
    peak = 132 * 2048 * 2 * 1.98e9
    assert step.peak_share == pytest.approx(2 * 256**3 / 10e-6 / peak)


@pytest.mark.usefixtures("with_tensor_cores")
def test_16_bit_operands_have_twice_the_flop_per_byte(tmp_path: Path) -> None:
    for compute in ("tf32", "bf16"):
        tuned(store := Store(tmp_path), compute, on("mma", 16))
    steps = {step.name: step.flop_per_byte for step in rungs(extended(store))}
    assert (steps["tf32, mma"], steps["bf16, mma"]) == (4.0, 8.0)


@pytest.mark.usefixtures("with_tensor_cores")
def test_steps_the_device_cannot_run_have_a_reason(tmp_path: Path) -> None:
    climbed = extended(Store(tmp_path), "a100")
    assert [*climbed.missing] == ["tf32, wgmma", "bf16, wgmma"]
    assert [*climbed.higher[0].steps] == ["tf32, mma"]
    assert (
        "left out: tf32, wgmma; bf16, wgmma: NVIDIA A100-SXM4-80GB cannot run it (architecture)"
        in printed(climbed)
    )


@pytest.mark.usefixtures("with_tensor_cores")
def test_without_tensor_cores_the_ladder_is_fp32_only(tmp_path: Path) -> None:
    climbed = extended(Store(tmp_path), "t4")
    assert (climbed.higher, len(climbed.missing)) == ((), 4)


def recorded_in(compute: str, *configs: Config) -> Recording:
    first = next(row for row in recorded().rows if row.config.family == "tiled")
    rows = tuple(
        SweepRow(config, first.resources, Measurement(10.0 - place))
        for place, config in enumerate(configs)
    )
    return replace(recorded(), problem=in_precision(compute), rows=rows)


@pytest.mark.usefixtures("with_tensor_cores")
def test_recorded_ladder_has_recorded_precisions() -> None:
    recordings = {"bf16": recorded_in("bf16", on("mma", 9), on("mma", 10))}

    def find_recording(problem: Problem) -> Recording:
        if problem.compute not in recordings:
            raise NotFoundError("no such recording")
        return recordings[problem.compute]

    climbed = ladder.recorded(recorded(), find_recording)
    (bf16,) = climbed.higher
    assert {name: trial.config for name, trial in bf16.steps.items()} == {
        "bf16, mma": on("mma", 10)
    }
    assert climbed.missing == dict.fromkeys(
        ("tf32, mma", "tf32, wgmma", "bf16, wgmma"), "not recorded"
    )


@pytest.mark.usefixtures("with_tensor_cores")
def test_json_has_precisions_and_missing_steps(tmp_path: Path) -> None:
    data = json.loads(json.dumps(to_json(extended(Store(tmp_path), "a100"))))
    assert [step["compute"] for step in data["rungs"]] == ["f32"] * 7 + ["tf32"] * 2 + ["bf16"] * 2
    assert data["missing"].keys() == {"tf32, wgmma", "bf16, wgmma"}
    assert data["untuned"] == ["tf32, mma", "bf16, mma"]


@pytest.mark.usefixtures("with_tensor_cores")
def test_table_with_tensor_cores_fits_80_columns(tmp_path: Path) -> None:
    shown = printed(extended(Store(tmp_path)), width=80)
    assert "…" not in shown
    assert "bf16, the peak 1,070.5" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 80


def test_long_limiters_and_failures_fit_80_columns() -> None:
    def failing(config: Config) -> Measurement | Failure:
        reason = "the largest error 3.1e-02 is over 1.0e-03 " * 3
        return Failure("verify", reason) if config.family == "naive" else times(config)

    climbed = climb(PROBLEM, TUNED, FakeRunner(failing), compiled)
    trial = replace(climbed.steps[BEST], limiter="registers and shared memory and clusters")
    shown = printed(replace(climbed, steps={**climbed.steps, BEST: trial}), width=80)
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "failed: naive, coalesced: verify: the largest error" in " ".join(shown.split())


def test_roofline_moves_each_matrix_once() -> None:
    small = climb(replace(PROBLEM, m=16, n=16), TUNED, FakeRunner(times), compiled)
    step = next(step for step in rungs(small) if step.name == "tiled, TILE_WIDTH 16")
    moved = 4 * (16 * 256 + 256 * 16 + 16 * 16)
    assert step.roofline_gflops == pytest.approx(2 * 16 * 16 * 256 / moved * 3.352e12 / 1e9)


def test_roofline_is_at_most_the_peak() -> None:
    large = climb(replace(PROBLEM, m=8192, n=8192, k=8192), TUNED, FakeRunner(times), compiled)
    assert [step.roofline_gflops for step in rungs(large)] == [pytest.approx(66.9e3)] * 7


def of_family(store: Store, interrupted: bool, config: Config, time_us: float) -> None:
    whole = sample_records.record(
        replace(sample_records.entry(16, time_us), config=config), device=find("h100")
    )
    run = replace(whole.provenance, interrupted=interrupted)
    shared = whole.device, whole.evidence, whole.entries, None, run
    store.save(FamilyRecord(*shared, in_precision("bf16"), "mma"))


@pytest.mark.usefixtures("with_tensor_cores")
def test_family_tuned_alone_is_on_the_ladder(tmp_path: Path) -> None:
    tuned(store := Store(tmp_path), "bf16", on("mma", 9))
    of_family(store, False, on("mma", 11), 5.0)
    chosen = choice(in_precision("bf16"), find("h100"), "mma", store)
    assert chosen == LadderChoice(on("mma", 11), "tuned")


@pytest.mark.usefixtures("with_tensor_cores")
def test_interrupted_search_yields_to_one_that_ended(tmp_path: Path) -> None:
    of_family(store := Store(tmp_path), True, on("mma", 11), 5.0)
    bf16 = in_precision("bf16")
    assert choice(bf16, find("h100"), "mma", store) == LadderChoice(on("mma", 11), "interrupted")
    climbed = extended(store)
    assert climbed.interrupted == ("bf16, mma",)
    assert "of an interrupted search, so not final: bf16, mma" in printed(climbed)
    tuned(store, "bf16", on("mma", 9))
    assert choice(bf16, find("h100"), "mma", store) == LadderChoice(on("mma", 9), "tuned")


@pytest.mark.usefixtures("with_tensor_cores")
def test_measured_search_precedes_a_replayed_one(tmp_path: Path) -> None:
    tuned(store := Store(tmp_path), "bf16", on("mma", 9))
    bf16 = in_precision("bf16")
    whole = store.load(find("h100"), bf16)
    assert whole is not None
    store.withdraw(whole)
    store.save(replace(whole, evidence="replayed"))
    of_family(store, True, on("mma", 11), 9.0)
    assert choice(bf16, find("h100"), "mma", store) == LadderChoice(on("mma", 11), "interrupted")
