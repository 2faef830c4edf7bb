"""The ladder: numbered rungs, the tuned kernel of each precision, and cuBLAS."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from rich.console import Console
from support import sample_records
from support.fake_runner import ORIGIN, FakeRunner, compiled

from autotune.cuda.program import CompileFailure, Program
from autotune.device import find
from autotune.errors import AutotuneError, NotFoundError, UsageError
from autotune.families.config import Config
from autotune.families.ladder import RUNGS
from autotune.families.plan import Template
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.targets import Target
from autotune.problem import Problem
from autotune.records import FamilyRecord, Store
from autotune.report.ladder import difference, explained, numbered, render, source, why
from autotune.tuning import ladder
from autotune.tuning.ladder import Ladder, LadderChoice, RungTime, choice, climb, load, problems

H100 = find("h100")
SIDE = 512
F32, BF16 = problems(SIDE)
SIMT = Config.parse(
    "simt:bm=128,bn=128,wm=32,wn=64,tm=8,tn=8,slices=1,bk=16,copy=async,stages=3,fragments=2,"
    "min_blocks=1,split_k=1,reduction=none,workers=0,chunks=1,pack=none,group=1,fence=0,"
    "order=columns"
)
WGMMA = Config.parse(
    "wgmma:swap=0,bm=128,bn=128,consumers=2,schedule=cooperative,min_blocks=1,source=shared,"
    "low=none,pack=needed,bk=64,promote=0,cluster=1x1,split_k=1,reduction=none,workers=0,"
    "store=staged,stages=4,group=1"
)
CHOICES: Mapping[str, LadderChoice | str] = {
    "f32": LadderChoice(SIMT, "tuned"),
    "bf16": LadderChoice(WGMMA, "tuned"),
}
Compile = Callable[[Template, str], Program | CompileFailure]


def times(config: Config) -> Measurement:
    """10 us, and a microsecond less for each rung; tuned kernels take a microsecond."""
    return Measurement(20.0 - float(config.values.get("rung", 19)), relative_error=1e-7)


class Runner(FakeRunner):
    """A runner with a cuBLAS that takes 2 us."""

    def baseline(self) -> Measurement:
        return Measurement(2.0, relative_error=1e-7)


def climbed(
    runner: FakeRunner | None = None,
    choices: Mapping[str, LadderChoice | str] = CHOICES,
    compile: Compile = compiled,
    n: int = SIDE,
) -> Ladder:
    runner = runner or Runner(times)

    @contextmanager
    def opened(_problem: Problem) -> Iterator[Target]:
        yield Target(runner, ORIGIN)

    return climb(n, runner.device, choices, opened, compile)


def rung(name: str, ladder: Ladder) -> RungTime:
    return next(step for step in ladder.rungs if step.name == name)


def printed(ladder: Ladder, width: int = 140) -> str:
    console = Console(file=io.StringIO(), width=width)
    console.print(render(ladder))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_each_precision_ends_with_the_tuned_kernel_and_cublas() -> None:
    names = {
        compute: [step.name for step in climbed().rungs if step.compute == compute]
        for compute in ("f32", "bf16")
    }
    rungs = {
        compute: [rung.name for rung in RUNGS if rung.compute == compute]
        for compute in ("f32", "bf16")
    }
    assert names["f32"] == [*rungs["f32"], "tuned simt", "cuBLAS"]
    assert names["bf16"] == [*rungs["bf16"], "tuned wgmma", "cuBLAS"]


def test_kernels_of_a_precision_are_timed_interleaved() -> None:
    runner = Runner(times)
    climbed(runner)
    assert runner.measured == []
    assert runner.rematched == [
        *(rung.config(runner.device) for rung in RUNGS[:9]),
        SIMT,
        *(rung.config(runner.device) for rung in RUNGS[9:]),
        WGMMA,
    ]


def test_rungs_that_do_not_fit_the_size_have_a_reason() -> None:
    small = climbed(n=100)
    assert [step.name for step in small.rungs if step.compute == "f32"][:4] == [
        *("1 naive", "2 coalesced", "3 tiled", "4 dynamic")
    ]
    assert len(small.missing) == len(RUNGS) - 4
    text = " ".join(printed(small).split())
    assert "left out: 9 fragments: tiles: takes whole tiles: give a multiple for m of 128" in text


def test_device_without_tensor_cores_climbs_in_fp32() -> None:
    choices = {**CHOICES, "bf16": "Tesla T4 cannot run it (architecture)"}
    t4 = climbed(Runner(times, device=find("t4")), choices)
    assert {step.compute for step in t4.rungs} == {"f32"}
    assert t4.missing["tuned bf16"] == "Tesla T4 cannot run it (architecture)"


def test_failed_rung_keeps_its_reason() -> None:
    failing = Config.of("ladder", {"rung": 3, "workers": 0})
    runner = Runner(
        lambda config: Failure("verify", "wrong") if config == failing else times(config)
    )
    ladder = climbed(runner)
    assert [step.failure for step in ladder.rungs][:4] == [None, None, "verify: wrong", None]
    assert "failed: 3 tiled: verify: wrong" in printed(ladder)


def test_inaccurate_rung_is_shown_with_its_error() -> None:
    naive = RUNGS[0].config(H100)

    def verified(config: Config) -> Measurement:
        return replace(times(config), relative_error=8e-7 if config == naive else 1e-7)

    def refused(config: Config) -> Measurement | Failure:
        return Failure("accuracy", "8 times") if config == naive else verified(config)

    runner = Runner(verified, again=refused)
    ladder = climbed(runner)
    assert runner.measured == [naive]
    assert rung("1 naive", ladder).relative_error == 8e-7
    assert "1 naive: relative error 8e-07 is 8.0 times" in printed(ladder)
    assert [step.name for step in ladder.rungs if step.inaccuracy] == ["1 naive"]


def test_rung_that_does_not_compile_is_not_timed() -> None:
    def broken(template: Template, arch: str) -> Program | CompileFailure:
        if template.kernel == "warps":
            return CompileFailure(template, arch, "no", "")
        return compiled(template, arch)

    ladder = climbed(compile=broken)
    assert [step.name for step in ladder.rungs if step.time_us is None] == ["7 warps"]


def test_speed_is_2mnk_over_the_time() -> None:
    assert rung("9 fragments", climbed()).gflops == pytest.approx(2 * SIDE**3 / 11.0 / 1e3)


def test_shares_are_of_the_same_precision() -> None:
    step = rung("17 persistent", climbed())
    assert step.cublas_share == 2.0 / 3.0
    peak = 132 * 2048 * 2 * 1.98e9
    assert step.peak_share == pytest.approx(2 * SIDE**3 / 3e-6 / peak)


def test_without_a_vendor_baseline_there_is_no_share() -> None:
    class Alone(FakeRunner):
        baseline_fault = "none"

    assert {step.cublas_share for step in climbed(Alone(times)).rungs} == {None}


@pytest.mark.parametrize(
    ("name", "flop_per_byte"),
    # PMPP, the chapter on tiled multiplication: 0.25 FLOP/B without tiles, TILE_WIDTH / 4 with.
    [
        ("1 naive", 0.25),
        ("2 coalesced", 0.25),
        ("3 tiled", 8.0),
        ("7 warps", 32.0),
        ("10 mma", 64.0),
    ],
)
def test_flop_per_byte_follows_from_the_tile(name: str, flop_per_byte: float) -> None:
    assert rung(name, climbed()).flop_per_byte == flop_per_byte


def test_bound_is_what_the_bandwidth_feeds() -> None:
    assert rung("1 naive", climbed()).bound_gflops == pytest.approx(3.352e12 * 0.25 / 1e9)


def test_roofline_moves_each_matrix_once() -> None:
    moved = 3 * 4 * SIDE * SIDE
    roof = 2 * SIDE**3 / moved * 3.352e12 / 1e9
    assert rung("1 naive", climbed()).roofline_gflops == pytest.approx(min(roof, 66.9e3), rel=1e-3)


def test_untuned_and_interrupted_kernels_are_named() -> None:
    choices = {"f32": LadderChoice(SIMT, "model"), "bf16": LadderChoice(WGMMA, "interrupted")}
    ladder = climbed(choices=choices)
    assert (ladder.untuned, ladder.interrupted) == (("tuned simt",), ("tuned wgmma",))
    text = printed(ladder)
    assert "the model's choice, as not tuned: tuned simt" in text
    assert "of an interrupted search, so not final: tuned wgmma" in text


def test_table_fits_80_columns() -> None:
    shown = printed(climbed(), width=80)
    assert "…" not in shown
    assert "bf16, nt: the peak 1,070.5" in " ".join(shown.split())
    assert max(map(len, shown.splitlines())) <= 80


# Recorded ladders


def saved(root: Path, ladder: Ladder) -> None:
    folder = root / "lab"
    folder.mkdir()
    (folder / f"ladder-{ladder.n}.json").write_text(json.dumps(asdict(ladder)))


def test_recorded_ladder_is_what_was_printed(tmp_path: Path) -> None:
    saved(tmp_path, measured := climbed())
    assert load("lab", SIDE, tmp_path) == replace(measured, evidence="replayed")
    assert printed(load("lab", SIDE, tmp_path)).startswith(f"512x512x512 on {H100.name}  REPLAYED")


@pytest.mark.parametrize("compute", ["f32", "bf16"])
def test_last_rung_of_the_h100_is_as_fast_as_the_tuned_kernel(compute: str) -> None:
    *_, last, tuned, _cublas = (
        rung for rung in load("h100", 4096).rungs if rung.compute == compute
    )
    assert tuned.name.startswith("tuned")
    assert (last.gflops or 0.0) >= 0.97 * (tuned.gflops or 0.0)


def test_every_rung_was_recorded_and_counted_on_an_h100() -> None:
    recorded = load("h100", 4096)
    assert [step.failure for step in recorded.rungs] == [None] * (len(RUNGS) + 4)
    assert [*ladder.counters()] == [rung.number for rung in RUNGS]


def test_missing_ladder_names_those_there_are(tmp_path: Path) -> None:
    saved(tmp_path, climbed())
    with pytest.raises(NotFoundError, match="no ladder of 64 is recorded on lab; recorded: lab at"):
        load("lab", 64, tmp_path)


@pytest.mark.parametrize("text", ["{", "[]", '{"n": "four"}'])
def test_broken_ladder_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "lab").mkdir()
    (tmp_path / "lab" / "ladder-8.json").write_text(text)
    with pytest.raises(AutotuneError, match=r"ladder-8.json: not a recorded ladder: ") as caught:
        load("lab", 8, tmp_path)
    assert "\n" not in str(caught.value)


# Counters


def counted(**changed: float) -> dict[str, float]:
    values = dict.fromkeys(ladder.counters()[1], 0.0)
    return {**values, "time_ns": 2e6, "dram_bytes": 1e9, "issued": 0.5, "warps": 8.0, **changed}


def reasons(number: int, counters: ladder.Counted) -> str:
    console = Console(file=io.StringIO(), width=120)
    console.print(why(numbered(number), counters))
    assert isinstance(console.file, io.StringIO)
    return " ".join(console.file.getvalue().split())


def test_why_compares_a_rung_with_the_one_before() -> None:
    counters = {6: counted(bank_conflicts=7e7), 7: counted(bank_conflicts=0.0)}
    text = reasons(7, counters)
    assert text.startswith(f"7 warps: {RUNGS[6].change}. Removed: {RUNGS[6].removed}.")
    assert "bank conflicts of them 70.0 0.0" in text


def test_why_divides_warps_by_littles_law() -> None:
    text = reasons(1, {1: counted(long_scoreboard=9.0, lg_throttle=0.01)})
    assert "issued a cycle (a scheduler) 0.50 = warps 8.00 / cycles of a warp each 16.0" in text
    assert "waiting for global memory 9.00" in text
    assert "the queue of loads" not in text  # too little to be shown


def test_why_has_the_roofline_of_the_bytes_that_moved() -> None:
    text = reasons(1, {1: counted(dram_bytes=2 * 4096**3 / 10)})
    assert "roofline: TFLOP/s at most 33.5 FLOP/B of device memory 10" in text


def test_rung_without_counters_is_refused() -> None:
    with pytest.raises(NotFoundError, match="no counters of rung 7 are recorded"):
        why(numbered(7), {})


def test_missing_counters_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no counters are recorded on h100"):
        ladder.counters(tmp_path)


# The tuned kernel


def tuned(store: Store, *configs: Config) -> None:
    entries = [
        replace(sample_records.entry(16, 9.0 + place), config=config)
        for place, config in enumerate(configs)
    ]
    store.save(sample_records.record(*entries, problem=BF16, device=H100))


def of_family(store: Store, interrupted: bool, config: Config, time_us: float) -> None:
    whole = sample_records.record(
        replace(sample_records.entry(16, time_us), config=config), device=H100
    )
    run = replace(whole.provenance, interrupted=interrupted)
    shared = whole.device, whole.evidence, whole.entries, None, run
    store.save(FamilyRecord(*shared, BF16, "wgmma"))


def with_group(group: int) -> Config:
    return Config.of("wgmma", WGMMA.values | {"group": group})


def test_tuned_kernel_is_the_fastest_recorded_one(tmp_path: Path) -> None:
    tuned(store := Store(tmp_path), WGMMA, with_group(2))
    assert choice(BF16, H100, store) == LadderChoice(WGMMA, "tuned")


def test_recorded_kernel_illegal_today_is_not_run(tmp_path: Path) -> None:
    illegal = Config.of("wgmma", WGMMA.values | {"bm": 999})
    tuned(store := Store(tmp_path), illegal, WGMMA)
    assert choice(BF16, H100, store) == LadderChoice(WGMMA, "tuned")


def test_unrecorded_kernel_is_the_models_choice(tmp_path: Path) -> None:
    chosen = choice(F32, H100, Store(tmp_path))
    assert (chosen.config.family, chosen.source, chosen.name) == ("simt", "model", "tuned simt")


def test_device_without_wgmma_runs_mma(tmp_path: Path) -> None:
    assert choice(BF16, find("a100"), Store(tmp_path)).config.family == "mma"


def test_device_without_any_kernel_has_a_reason(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"Tesla T4 cannot run it \("):
        choice(BF16, find("t4"), Store(tmp_path))


def test_family_tuned_alone_counts(tmp_path: Path) -> None:
    tuned(store := Store(tmp_path), WGMMA)
    of_family(store, False, with_group(2), 5.0)
    assert choice(BF16, H100, store) == LadderChoice(with_group(2), "tuned")


def test_interrupted_search_yields_to_one_that_ended(tmp_path: Path) -> None:
    of_family(store := Store(tmp_path), True, with_group(2), 5.0)
    assert choice(BF16, H100, store) == LadderChoice(with_group(2), "interrupted")
    tuned(store, WGMMA)
    assert choice(BF16, H100, store) == LadderChoice(WGMMA, "tuned")


def test_measured_search_precedes_a_replayed_one(tmp_path: Path) -> None:
    tuned(store := Store(tmp_path), WGMMA)
    whole = store.load(H100, BF16)
    assert whole is not None
    store.withdraw(whole)
    store.save(replace(whole, evidence="replayed"))
    of_family(store, True, with_group(2), 9.0)
    assert choice(BF16, H100, store) == LadderChoice(with_group(2), "interrupted")


# Sources


def test_diff_turns_the_rung_before_into_the_rung() -> None:
    changed = difference(RUNGS[1])
    assert changed.startswith("--- ladder/01_naive.cu\n+++ ladder/02_coalesced.cu\n")
    added = {line[1:] for line in changed.splitlines() if line.startswith("+")}
    assert "    const int column = blockIdx.x * 32 + threadIdx.x;" in added


@pytest.mark.parametrize("number", [1, 10])
def test_first_rung_of_a_precision_has_no_diff(number: int) -> None:
    assert difference(numbered(number)) == ""


def test_rung_is_shown_with_source_diff_and_change() -> None:
    text = explained(RUNGS[2])
    assert text.startswith(source(RUNGS[2]))
    assert difference(RUNGS[2]) in text
    assert text.endswith(f"3 tiled: {RUNGS[2].change}.\nRemoved: {RUNGS[2].removed}.")


@pytest.mark.parametrize("number", [0, -1, 18])
def test_unknown_rung_is_refused(number: int) -> None:
    with pytest.raises(UsageError, match=f"there is no rung {number}; give 1 to 17"):
        numbered(number)


def test_every_precision_has_tuned_families() -> None:
    assert ladder.TUNED.keys() == {rung.compute for rung in RUNGS}
