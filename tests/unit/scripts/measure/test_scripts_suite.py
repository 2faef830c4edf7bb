"""The suite, on a recording, and the sweep, on a catalogued device."""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from time import monotonic, sleep
from typing import Any

import pytest
import record
import results
import suite
import typer
from support import sample_recording, sample_records
from support.fake_runner import ORIGIN, FakeRunner, OpenFake, compiled, crash, tiled
from support.sample_recording import DEVICE, FASTEST, FASTEST_US, PROBLEM, VENDOR_US
from support.sample_records import H100
from typer import Typer
from typer.testing import CliRunner, Result

from autotune.cuda import cublaslt
from autotune.errors import AutotuneError, ConfigError, RunnerError
from autotune.families import registry
from autotune.families.config import Config
from autotune.measure import recording, targets
from autotune.measure.baseline import ALGORITHMS
from autotune.measure.bench import BASELINE
from autotune.measure.measurement import Failure, Measurement
from autotune.measure.recording import Recording
from autotune.measure.runner import Candidate
from autotune.measure.targets import Target, TargetOpener
from autotune.problem import LAYOUTS, Problem
from autotune.records import bundle
from autotune.tuning.loop import Search
from autotune.tuning.trials import Progress, Trial

SHAPE = PROBLEM.shape


ENTRY = sample_records.entry(16, 90.0)


RECORD = sample_records.record(ENTRY)


@pytest.fixture(autouse=True)
def _recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    sample_recording.ship(tmp_path / "recordings", monkeypatch)
    monkeypatch.setattr(record, "SURVEY", 500)


def run(out: Path, *options: object, shapes: tuple[str, ...] = (SHAPE,)) -> Result:
    app = Typer()
    app.command()(suite.main)
    named = [word for shape in shapes for word in ("--shapes", shape)]
    words = (out, "--device", DEVICE, "--budget", 5, *named, *options)
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


def rows(out: Path, name: str = "suite-f32") -> list[dict[str, Any]]:
    content = json.loads((out / f"{name}.json").read_text())
    return list(content["rows"])


def test_suite_has_27_shapes() -> None:
    problems = suite.chosen(None, False)
    assert len({*problems}) == 27
    assert {problem.layout for problem in problems} == {"nn"}


def test_layouts_are_three_shapes_in_four_layouts() -> None:
    problems = suite.chosen(None, True)
    assert [problem.layout for problem in problems] == [*LAYOUTS] * 3
    assert len({problem.shape for problem in problems}) == 3


def test_each_precision_has_all_shapes() -> None:
    problems = suite.chosen(None, False, ["bf16", "tf32x3"])
    assert [problem.compute for problem in problems] == ["bf16"] * 27 + ["tf32x3"] * 27


def test_8_bit_kinds_have_files_of_their_own() -> None:
    problems = suite.chosen(None, False, ["f8:nt:scale=row:fast"])
    assert len(problems) == 27
    assert {(item.layout, item.scale, item.accumulate) for item in problems} == {
        ("nt", "row", "fast")
    }
    texts = ("f8", "f8:scale=tensor", "f8:scale=row", "f8:scale=block", "f8:fast", "i8")
    kinds = [suite.kind_of(Problem.parse(f"8x8x8:nt:{text}")) for text in texts]
    assert kinds == ["f8", "f8", "f8-row", "f8-block", "f8-fast", "i8"]


def test_shape_that_names_its_precision_appears_once() -> None:
    problems = suite.chosen(["8x8x8:f16", "8x8x4"], False, ["f32", "f16"])
    assert [str(problem) for problem in problems] == [
        "8x8x8:f16:nn",
        "8x8x4:f32:nn",
        "8x8x4:f16:nn",
    ]


def test_every_precision_has_its_own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # IEEE fp32 kernels also serve tf32x3, so the recording of fp32 stands in for one of tf32x3.
    near = replace(sample_recording.recorded(), problem=replace(PROBLEM, compute="tf32x3"))
    both = {sweep.problem: sweep for sweep in (sample_recording.recorded(), near)}
    monkeypatch.setattr(recording, "find", lambda _name, problem: both[problem])
    out = tmp_path / "out"
    assert run(out, "--compute", "f32", "--compute", "tf32x3").exit_code == 0
    exact, third = rows(out)[0], rows(out, "suite-tf32x3")[0]
    assert [row["compute"] for row in (exact, third)] == ["f32", "tf32x3"]
    assert (third["vendor"], third["family"]) == ("f32", "simt")
    peak = H100.peak("tf32x3")
    assert json.loads((out / "suite-tf32x3.json").read_text())["ceilings"]["flops"] == peak


def test_file_name_can_be_set(tmp_path: Path) -> None:
    run(tmp_path, "--name", "other")
    assert len(rows(tmp_path, "other-f32")) == 1


def test_ceiling_is_for_one_precision(tmp_path: Path) -> None:
    result = run(tmp_path, "--compute", "f32", "--compute", "tf32", "--flops", 1e12)
    assert result.exit_code == 2


def test_row_has_the_winner_and_cublas(tmp_path: Path) -> None:
    out = tmp_path / "out"
    assert run(out).exit_code == 0
    (row,) = rows(out)
    assert (row["shape"], row["config"]) == ([256, 256, 256], str(FASTEST))
    assert row["ratio"] == pytest.approx(VENDOR_US / FASTEST_US, rel=0.02)


def test_existing_rows_are_not_tuned_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(out)
    before = (out / "suite-f32.json").read_bytes()
    assert "1 of 1 shapes are there already" in run(out).output
    assert (out / "suite-f32.json").read_bytes() == before


def test_again_tunes_existing_rows_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(out)
    content = json.loads((out / "suite-f32.json").read_text())
    content["rows"][0]["config"] = "of yesterday"
    (out / "suite-f32.json").write_text(json.dumps(content))
    run(out, "--again")
    assert [row["config"] for row in rows(out)] == [str(FASTEST)]


def test_rows_beside_another_cublas_are_tuned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    run(out)
    monkeypatch.setattr(cublaslt, "version", lambda: "13.99.0")
    assert "0 of 1 shapes are there already" in run(out).output
    assert json.loads((out / "suite-f32.json").read_text())["cublas"] == "13.99.0"


def test_no_shape_starts_after_the_time_limit(tmp_path: Path) -> None:
    result = run(tmp_path / "out", "--seconds", 0)
    assert (result.exit_code, "no result: 256x256x256" in result.output) == (1, True)
    assert not (tmp_path / "out").exists()


def test_records_of_a_run_can_be_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opener = OpenFake(FakeRunner(lambda _: Measurement(10.0)))
    monkeypatch.setattr(suite, "TargetOpener", opener)
    monkeypatch.setattr(suite, "compile", lambda template, arch, cache: compiled(template, arch))  # noqa: ARG005
    monkeypatch.setattr(targets, "resolve", lambda _: H100)
    monkeypatch.setattr(targets, "here", lambda: ORIGIN)
    monkeypatch.setattr(cublaslt, "version", lambda: "13.10.0")
    made = tmp_path / "made.jsonl.xz"
    assert run(tmp_path, "--devices", "0", "--records", made).exit_code == 0
    content = bundle.loads(made.read_bytes())
    assert [record.problem for record in content.records] == [PROBLEM]
    assert content.submission is not None
    assert content.submission.cublas == "13.10.0"


def met(item: int, opener: TargetOpener, *, folder: Path) -> tuple[object, int, int]:
    """The device, the process and the square of an item, once the other device has one too."""
    (folder / str(opener.device)).touch()
    ends = monotonic() + 30
    while len([*folder.iterdir()]) < 2:
        assert monotonic() < ends
        sleep(0.01)
    return opener.device, os.getpid(), item * item


def test_gpus_take_items_in_processes_of_their_own(tmp_path: Path) -> None:
    work = partial(met, folder=tmp_path)
    made = dict(suite.side_by_side(range(4), ["h100", "h200"], math.inf, work))
    assert {item: square for item, (*_, square) in made.items()} == {0: 0, 1: 1, 2: 4, 3: 9}
    places = {device: process for device, process, _ in made.values()}
    assert {*places} == {"h100", "h200"}
    assert len({*places.values()} - {os.getpid()}) == 2


def test_shapes_are_tuned_in_other_processes(tmp_path: Path) -> None:
    problem, gpus = Problem.parse("4096x4096x4096"), ["replay:h100"] * 2
    ceilings = {"f32": results.Ceilings(1e12, 1e12)}
    tuning = suite.SuiteRun(tmp_path, Search(trials=8, jobs=1), ceilings, None)
    ((_, made),) = suite.side_by_side([problem], gpus, math.inf, tuning.attempt)
    assert not isinstance(made, str)
    assert (made[0].problem, made[1]["shape"]) == (problem, [4096, 4096, 4096])


def test_failing_shape_leaves_the_others(tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(out, shapes=("5x5x5", SHAPE))
    assert (result.exit_code, len(rows(out))) == (1, 1)
    assert "no result: 5x5x5" in result.output


def test_every_trial_is_kept(tmp_path: Path) -> None:
    folder = tmp_path / "trials"
    run(tmp_path / "out", "--trials", folder)
    kept = Recording.load(folder / f"{PROBLEM.slug}.json.gz")
    simt = {row.config for row in sample_recording.recorded().rows if row.config.family == "simt"}
    assert {row.config for row in kept.rows} <= simt
    assert [len(kept.rows)] == [row["trials"] for row in rows(tmp_path / "out")]
    assert kept.baseline is not None


def test_trials_of_leaders_have_their_rematch_times() -> None:
    overtaken, slow = tiled(8), tiled(32)
    keeper = suite.Keeper()
    for config in (tiled(16), overtaken, slow):
        keeper.trial(Trial(config, Measurement(100.0)), Progress(1, 0, None, 0.0))
    keeper.rematch([Trial(config, Measurement(100.0)) for config in (tiled(16), overtaken)])
    kept = keeper.recording(replace(RECORD, entries=(replace(ENTRY, config=tiled(16)),)), ORIGIN)
    assert {row.config: row.outcome for row in kept.rows} == {
        tiled(16): ENTRY.measurement,
        slow: Measurement(100.0),
    }


def test_ceiling_can_be_set(tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(out, "--flops", 1e12)
    (row,) = rows(out)
    assert row["roofline_share"] == pytest.approx(PROBLEM.flops / 1e12 / row["ours_us"] * 1e6)


class ComparingRunner(FakeRunner):
    """Also times further baselines if it has their libraries."""

    libraries = True

    def compare(
        self, candidates: Sequence[Candidate], baselines: Sequence[str]
    ) -> dict[str, Measurement | Failure]:
        if baselines and not self.libraries:
            raise RunnerError("no libcublasLt")
        outcomes: dict[str, Measurement | Failure] = {BASELINE: Measurement(15.0)}
        for candidate, outcome in zip(candidates, self.rematch(candidates), strict=True):
            outcomes[str(candidate.config)] = outcome
        if baselines == [ALGORITHMS]:
            outcomes["cuBLASLt 1"] = Failure("verify", "wrong result")
            outcomes["cuBLASLt 2"] = Measurement(12.0)
        return outcomes


def test_final_round_has_the_correct_cublaslt_results() -> None:
    runner = ComparingRunner(lambda _: Measurement(10.0))
    last = suite.finals(tiled(16), tiled(16), PROBLEM, runner, compiled, [ALGORITHMS])
    assert (last.ours.time_us, last.cublas, last.cublaslt_us) == (10.0, Measurement(15.0), 12.0)
    assert [*last.cublaslt] == ["cuBLASLt 2"]


def test_winner_failing_in_the_final_round_has_no_row() -> None:
    with pytest.raises(AutotuneError, match="illegal access"):
        suite.finals(tiled(16), tiled(16), PROBLEM, ComparingRunner(crash), compiled)


def test_final_round_times_the_cold_winner_too() -> None:
    runner = ComparingRunner(lambda config: Measurement(float(config.integer("tile_width"))))
    last = suite.finals(tiled(16), tiled(32), PROBLEM, runner, compiled)
    assert (last.ours, last.cold) == (Measurement(16.0), Measurement(32.0))
    assert runner.rematched == [tiled(16), tiled(32)]


def test_final_round_works_without_cublaslt() -> None:
    runner = ComparingRunner(lambda _: Measurement(10.0))
    runner.libraries = False
    last = suite.finals(tiled(16), tiled(16), PROBLEM, runner, compiled, [ALGORITHMS])
    assert (last.cublas, last.cublaslt_us) == (Measurement(15.0), None)


def sweep(*names: str, problem: Problem = PROBLEM, seed: int = 0) -> list[Config]:
    return record.choose(problem, H100, names, 30, 60, seed)


def test_sweep_fills_up_from_large_families() -> None:
    chosen = sweep("simt", "naive", "tiled")
    programs = {registry.plan(config, PROBLEM).launches[0].template for config in chosen}
    counts = Counter(config.family for config in chosen)
    assert len(programs) == 30
    assert min(counts[name] for name in ("naive", "tiled", "simt")) >= 2


def test_sweep_keeps_its_limits() -> None:
    deep = Problem(
        64, 64, 65536
    )  # dozens of configurations a program, each splitting K differently
    chosen = sweep("simt", problem=deep)
    programs = {registry.plan(config, deep).launches[0].template for config in chosen}
    assert len(programs) == 30
    assert len(chosen) <= 60
    assert len({*chosen}) == len(chosen)


def test_sweep_takes_the_families_of_its_precision() -> None:
    half = replace(PROBLEM, compute="bf16")
    assert record.serving(half, "auto") == registry.tuned(half)
    with pytest.raises(ConfigError, match="simt does not compute bf16"):
        record.serving(half, "simt")


# 1260 configurations of 420 programs, quick to plan.
LARGE = Problem(4096, 4096, 4096, "bf16")


def test_equal_seeds_give_equal_sweeps() -> None:
    first, repeated, reseeded = (sweep("mma", problem=LARGE, seed=seed) for seed in (0, 0, 1))
    assert first == repeated != reseeded


def test_sweep_has_exactly_the_requested_configurations() -> None:
    # A survey of 500 has one configuration of most programs.
    chosen = record.choose(LARGE, H100, ["mma"], 30, 75, 0)
    programs = {registry.plan(config, LARGE).main.template for config in chosen}
    assert (len(programs), len({*chosen})) == (30, 75)


def test_large_programs_take_the_shares_small_ones_leave() -> None:
    groups = [[tiled(width, kind) for kind in range(size)] for width, size in ((4, 9), (5, 1))]
    shared = record.shared([*groups, [tiled(6)]], 8, Random(0))
    assert Counter(config.integer("tile_width") for config in shared) == {4: 6, 5: 1, 6: 1}


def test_extension_adds_only_missing_configurations() -> None:
    chosen = [tiled(width) for width in range(4, 24)]
    recorded = [tiled(width) for width in range(10, 14)] + [tiled(32)]
    new = record.added(chosen, recorded, 15, 0)
    assert (len(new), {*new} & {*recorded}) == (10, set())
    assert record.added(chosen, recorded, 3, 0) == []


def test_extended_sweep_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runner = FakeRunner(lambda _: Measurement(10.0))
    monkeypatch.setattr(targets, "opened", lambda _: nullcontext(Target(runner, ORIGIN)))
    monkeypatch.setattr(record, "compile", lambda template, arch, cache: compiled(template, arch))  # noqa: ARG005
    app = Typer()
    app.command()(record.main)
    words = ("mine", LARGE, "--family", "mma", "--root", tmp_path, "--programs", 10)

    def sweep_of(configs: int, *options: str) -> Recording:
        arguments = [*words, "--configs", configs, *options]
        CliRunner().invoke(app, [str(word) for word in arguments], catch_exceptions=False)
        return Recording.load(recording.path_of("mine", LARGE, tmp_path))

    first, second = sweep_of(10), sweep_of(25, "--extend")
    assert second.rows[:10] == first.rows
    assert len({row.config for row in second.rows}) == len(runner.measured) == 25


def test_extension_resumes_an_interrupted_sweep(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json.gz"
    whole = sample_recording.recorded()
    replace(whole, rows=whole.rows[:5]).save(path)
    replace(whole, rows=whole.rows[3:9]).save(record.left_of(path))
    resumed = [row.config for row in record.earlier(path, H100, whole.origin)]
    assert sorted(resumed) == sorted(row.config for row in whole.rows[:9])


def test_extending_a_sweep_of_other_kernels_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sweep.json.gz"
    sample_recording.recorded().save(path)
    with pytest.raises(typer.BadParameter, match="without --extend"):
        record.earlier(path, H100, replace(ORIGIN, source="0ld"))
