"""The scripts that make shipped records and those that evaluate left-out shapes."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import left_out
import pytest
import shipped
import suite
import typer
from results import geomean
from support import sample_recording
from support.command_line import run as command_line
from support.fake_runner import ORIGIN, FakeRunner, OpenFake, compiled, crash, tiled
from support.sample_recording import DEVICE, FASTEST, FASTEST_US, PROBLEM
from support.sample_records import H100, SQUARE, entry, record
from typer import Typer
from typer.testing import CliRunner, Result

from autotune import settings
from autotune.cuda import compiler, cublaslt
from autotune.lookup.digest import RecordDigest
from autotune.lookup.lookup import lookup
from autotune.measure import targets
from autotune.measure.measurement import Measurement
from autotune.measure.recording import Recording, path_of
from autotune.problem import Problem
from autotune.records import Record, Store, bundle, merging

SUBMISSION = bundle.Submission(H100.name, "13.0", "NVRTC 13.0", "", "0.1.0", "2026-11-21", "5e1f")


every_problem = shipped.problems  # the fixture below replaces it


@pytest.fixture(autouse=True)
def _recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", str(tmp_path / "cache"))
    sample_recording.ship(tmp_path / "recordings", monkeypatch)
    monkeypatch.setattr(shipped, "problems", lambda _: [PROBLEM])
    # Makes the recorded kernels current.
    monkeypatch.setattr(targets, "here", lambda: sample_recording.recorded().origin)


def run(out: Path, *options: object) -> Result:
    app = Typer()
    app.command()(shipped.main)
    words = ("--device", DEVICE, "--out", out, "--each", 1, "--trials", out.parent, *options)
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


# Problems to tune


def test_problems_come_from_the_suite_and_from_models() -> None:
    problems = every_problem()
    kinds = Counter((problem.compute, problem.layout) for problem in problems)
    assert all(kinds[compute, "nn"] == 27 for compute in ("f32", "tf32", "f16", "bf16", "tf32x3"))
    assert kinds["bf16", "nt"] == kinds["f16", "nt"] >= 100
    assert len(problems) == len({*problems})


def test_first_problems_span_precisions_and_sizes() -> None:
    first = every_problem()[:100]
    assert {problem.compute for problem in first} == {"f32", "tf32", "f16", "bf16"}
    assert len({problem.m for problem in first if problem.layout == "nt"}) >= 2


def test_8_bit_problems_follow_all_others() -> None:
    problems = every_problem()
    eight_bit = [problem for problem in problems if problem.precision.eight_bit]
    assert problems[-len(eight_bit) :] == eight_bit
    kinds = Counter((problem.compute, problem.scale, problem.accumulate) for problem in eight_bit)
    assert kinds["f8", "tensor", "exact"] == kinds["i8", "tensor", "exact"] == 27
    assert kinds["f8", "block", "exact"] == kinds["f8", "none", "fast"] == 27
    assert kinds["f8", "row", "exact"] >= 100
    assert {problem.layout for problem in eight_bit} == {"nt"}


def test_f16_twin_follows_its_problem() -> None:
    layers = [layer for layer in every_problem() if layer.layout == "nt"]
    assert layers[1] == replace(layers[0], compute="f16")


def test_precisions_can_be_selected() -> None:
    assert {problem.compute for problem in every_problem(["tf32"])} == {"tf32"}


# The shipped file


def test_file_holds_the_tuned_records(tmp_path: Path) -> None:
    done = run(tmp_path / "made.jsonl.xz")
    (record,) = bundle.loads((tmp_path / "made.jsonl.xz").read_bytes()).records
    assert (done.exit_code, record.problem, record.best.config) == (0, PROBLEM, FASTEST)


def test_recorded_problems_are_skipped(tmp_path: Path) -> None:
    run(tmp_path / "made.jsonl.xz")
    before = (tmp_path / "made.jsonl.xz").read_bytes()
    assert "1 of 1 problems are there already" in run(tmp_path / "made.jsonl.xz").output
    assert (tmp_path / "made.jsonl.xz").read_bytes() == before


def test_records_of_other_kernels_are_tuned_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(tmp_path / "made.jsonl.xz")
    newer = replace(sample_recording.recorded().origin, source="other")
    monkeypatch.setattr(targets, "here", lambda: newer)
    assert "0 of 1 problems are there already" in run(tmp_path / "made.jsonl.xz").output


def test_no_problem_starts_too_late_to_finish(tmp_path: Path) -> None:
    done = run(tmp_path / "made.jsonl.xz", "--seconds", 0.5)
    assert "0 s are over: 1 problems are left" in done.output
    assert not (tmp_path / "made.jsonl.xz").exists()


def test_problem_without_a_result_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "problems", lambda _: [Problem(8, 8, 8), PROBLEM])
    done = run(tmp_path / "made.jsonl.xz")
    assert (done.exit_code, "no result: 8x8x8:f32:nn" in done.output) == (1, True)
    assert len(bundle.loads((tmp_path / "made.jsonl.xz").read_bytes()).records) == 1


def test_unknown_precision_is_refused(tmp_path: Path) -> None:
    assert run(tmp_path / "made.jsonl.xz", "--compute", "f64").exit_code == 2


def test_recorded_trials_are_only_guesses(tmp_path: Path) -> None:
    (tmp_path / "trials").mkdir()
    guess = replace(sample_recording.recorded(), problem=Problem(512, 256, 256))
    guess.save(path_of("trials", guess.problem, tmp_path))
    run(tmp_path / "made.jsonl.xz", "--trials", tmp_path / "trials")
    records = bundle.loads((tmp_path / "made.jsonl.xz").read_bytes()).records
    assert [record.problem for record in records] == [PROBLEM]


def test_record_has_the_ten_fastest_of_a_recording() -> None:
    record = shipped.record_of(sample_recording.recorded())
    assert record is not None
    times = [entry.measurement.time_us for entry in record.entries]
    assert (record.entries[0].config, len(times), times) == (FASTEST, 10, sorted(times))


def test_rounding_stays_within_a_spread() -> None:
    measured = Measurement(123.456789 + 1 / 7, 123.456789 / 900)
    exact = record(replace(entry(16, 1.0), measurement=measured))
    rounded = shipped.rounded(exact).best.measurement
    assert 0 < abs(rounded.time_us - measured.time_us) < measured.spread_us / 50


def test_recording_without_times_makes_no_record() -> None:
    assert shipped.record_of(replace(sample_recording.recorded(), rows=())) is None


# Submissions


def submission(path: Path, *records: Record) -> Path:
    """A file that `autotune cache export --submit` wrote from a cache with these records."""
    store = Store(settings.cache_dir())
    for each in records:
        store.save(each)
    assert command_line("cache", "export", str(path), "--submit") == 0
    return path


def test_submitted_records_answer_look_ups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured = shipped.record_of(sample_recording.recorded())
    assert measured is not None
    file, folder = submission(tmp_path / "card.jsonl.xz", measured), tmp_path / "shipped"
    shipped.take([file], folder)
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(folder))
    answer = lookup(PROBLEM, H100, Store(tmp_path / "empty"))
    assert answer is not None
    assert (answer.how, answer.time_us, answer.config) == ("exact", FASTEST_US, FASTEST)


def test_submission_adds_to_the_records_of_its_card(tmp_path: Path) -> None:
    own, faster = record(), record(entry(8, 700.0), problem=SQUARE)
    for each in (record(problem=PROBLEM), own, faster):
        shipped.take([submission(tmp_path / "submitted.xz", each)], tmp_path / "shipped")
    (out,) = (tmp_path / "shipped").iterdir()
    made = {made.problem: made for made in bundle.loads(out.read_bytes()).records}
    assert [*made] == [PROBLEM, SQUARE]
    assert made[SQUARE].best.measurement.time_us == 700.0


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (bundle.Bundle((record(),)), "cache export --submit"),
        (bundle.Bundle((record(source="0ld"),), (), SUBMISSION), "1 stale"),
        (bundle.Bundle((record(evidence="predicted"),), (), SUBMISSION), "1 predicted"),
    ],
    ids=["plain export", "stale", "predicted"],
)
def test_unfit_submission_is_refused(content: bundle.Bundle, told: str, tmp_path: Path) -> None:
    (tmp_path / "card.xz").write_bytes(b"".join(bundle.written(content)))
    with pytest.raises(typer.BadParameter, match=told):
        shipped.take([tmp_path / "card.xz"], tmp_path / "shipped")
    assert not (tmp_path / "shipped").exists()


# Stale records


@pytest.fixture
def stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a shipped file with two stale records and one of the current sources."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    first, second = (replace(entry(16, 900.0), config=tiled(width)) for width in (16, 8))
    records = [
        record(first, second, source="0ld"),
        record(first, second, problem=PROBLEM, source="0ld"),
        record(first, problem=Problem(512, 512, 512)),
    ]
    (folder / f"{H100.slug}-suites.jsonl.xz").write_bytes(bundle.dumps(records))
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(folder))
    monkeypatch.setattr(targets, "resolve", lambda _: H100)
    monkeypatch.setattr(targets, "here", lambda: ORIGIN)
    monkeypatch.setattr(cublaslt, "version", lambda: "13.10.0")
    monkeypatch.setattr(compiler, "compile", lambda template, arch, cache: compiled(template, arch))  # noqa: ARG005
    return folder


def retime(
    runner: FakeRunner, out: Path, monkeypatch: pytest.MonkeyPatch, *options: object
) -> Result:
    monkeypatch.setattr(suite, "TargetOpener", OpenFake(runner))
    app = Typer()
    app.command()(shipped.retime)
    words = [str(word) for word in (out, *options)]
    return CliRunner().invoke(app, words, catch_exceptions=False)


def test_stale_records_are_timed_again_and_taken(
    stale: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, runner = tmp_path / "new.jsonl.xz", FakeRunner(lambda _: Measurement(80.0))
    assert retime(runner, out, monkeypatch, "--top", 1).exit_code == 0
    assert runner.measured == [tiled(16)] * 2
    submitted = bundle.loads(out.read_bytes()).submission
    assert submitted is not None
    assert submitted.cublas == "13.10.0"
    shipped.take([out], stale)
    (file,) = stale.iterdir()
    taken = bundle.loads(file.read_bytes()).records
    assert [(each.problem.m, each.best.measurement.time_us) for each in taken] == [
        (256, 80.0),
        (512, 900.0),
        (4096, 80.0),
    ]
    assert [each for each in taken if merging.stale(each, ORIGIN)] == []


@pytest.mark.usefixtures("stale")
def test_records_that_are_not_stale_are_timed_again_on_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = FakeRunner(lambda _: Measurement(80.0))
    done = retime(runner, tmp_path / "new.jsonl.xz", monkeypatch, "--top", 1, "--again")
    assert "3 records of" in done.output
    assert len(runner.measured) == 3


def test_records_beside_the_oldest_cublas_are_timed_first(
    stale: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = stale.iterdir()
    records = bundle.loads(file.read_bytes()).records
    beside = [
        replace(each, baseline=Measurement(100.0, library=version))
        for each, version in zip(records, ("13.10.0", "13.9.0", "13.1.0"), strict=True)
    ]
    file.write_bytes(bundle.dumps(beside))
    runner = FakeRunner(lambda _: Measurement(80.0))
    done = retime(runner, tmp_path / "new.jsonl.xz", monkeypatch, "--top", 1, "--again")
    places = [done.output.index(f"{each.problem} ") for each in beside]
    assert places == sorted(places, reverse=True)


def test_winner_that_was_timed_again_has_its_new_time(tmp_path: Path) -> None:
    old, new = (
        replace(record(*entries), baseline=Measurement(entries[0].measurement.time_us + 2.0))
        for entries in (
            (entry(16, 100.0), entry(8, 101.0), entry(32, 105.0), entry(24, 120.0)),
            (entry(16, 110.0), entry(8, 111.0)),
        )
    )
    folder = tmp_path / "shipped"
    for each in (old, new):
        [*shipped.put([each], folder, ORIGIN)]
    (file,) = folder.iterdir()
    (taken,) = bundle.loads(file.read_bytes()).records
    assert [each.measurement.time_us for each in taken.entries] == [110.0, 111.0, 120.0]
    assert taken.baseline == new.baseline


@pytest.mark.usefixtures("stale")
def test_retiming_continues_an_earlier_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "new.jsonl.xz"
    first, runner = (FakeRunner(lambda _: Measurement(80.0)) for _ in range(2))
    retime(first, out, monkeypatch, "--only", "256x256")
    assert "1 stale records" in retime(runner, out, monkeypatch, "--top", 1).output
    assert (len(runner.measured), len(bundle.loads(out.read_bytes()).records)) == (1, 2)


@pytest.mark.usefixtures("stale")
def test_bundle_names_every_cublas_and_drops_stale_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "new.jsonl.xz"
    out.write_bytes(bundle.dumps([record(source="0ld")]))
    for version, shape in (("13.1.0", "4096x4096"), ("13.10.0", "256x256")):
        monkeypatch.setattr(cublaslt, "version", lambda version=version: version)
        runner = FakeRunner(lambda _: Measurement(80.0))
        retime(runner, out, monkeypatch, "--only", shape, "--top", 1)
        assert len(runner.measured) == 1
    content = bundle.loads(out.read_bytes())
    assert content.submission is not None
    assert content.submission.cublas == "13.1.0, 13.10.0"
    assert [each.best.measurement.time_us for each in content.records] == [80.0, 80.0]


@pytest.mark.usefixtures("stale")
def test_retiming_ends_with_its_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = retime(FakeRunner(), tmp_path / "new.jsonl.xz", monkeypatch, "--seconds", 0)
    assert (done.exit_code, "2 are left" in done.output) == (1, True)


@pytest.mark.usefixtures("stale")
def test_records_slower_than_cublas_are_tuned_worst_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned: list[Problem] = []

    def tune_at(problem: Problem, *_: object) -> Record:
        tuned.append(problem)
        return record(replace(entry(32, 85.0), config=tiled(32)), problem=problem)

    monkeypatch.setattr(shipped, "tune_at", tune_at)
    runner, out = FakeRunner(lambda _: Measurement(80.0)), tmp_path / "new.jsonl.xz"
    retime(runner, out, monkeypatch, "--only", "256x256")  # cuBLAS takes 90
    assert tuned == []
    slower = iter((95.0, 100.0))
    runner = FakeRunner(again=lambda _: Measurement(next(slower)))
    out.unlink()
    retime(runner, out, monkeypatch, "--top", 1)
    assert [problem.m for problem in tuned] == [4096, 256]
    assert [each.best.config for each in bundle.loads(out.read_bytes()).records] == [tiled(32)] * 2


@pytest.mark.usefixtures("stale")
def test_record_of_which_nothing_works_is_tuned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuned = record(replace(entry(32, 700.0), config=tiled(32)))
    monkeypatch.setattr(shipped, "tune_at", lambda problem, *_: replace(tuned, problem=problem))
    runner, out = FakeRunner(crash), tmp_path / "new.jsonl.xz"
    assert retime(runner, out, monkeypatch, "--only", "4096x4096").exit_code == 0
    assert runner.measured == [tiled(16), tiled(8)]
    (made,) = bundle.loads(out.read_bytes()).records
    assert made.entries == tuned.entries


# Left-out shapes


def recordings(folder: Path) -> Path:
    """Recordings of three problems with different fastest configurations."""
    for size in (128, 256, 512):
        recording = sample_recording.recorded()
        recording = replace(recording, problem=Problem(size, size, size))
        recording.save(path_of(folder.name, recording.problem, folder.parent))
    return folder


def run_left_out(*arguments: object) -> Result:
    words = [str(word) for word in arguments]
    app = Typer()
    app.command()(left_out.main)
    return CliRunner().invoke(app, words, catch_exceptions=False)


def test_each_recorded_problem_is_left_out(tmp_path: Path) -> None:
    out, folder = tmp_path / "out.json", recordings(tmp_path / "sizes")
    assert run_left_out(folder, "--out", out).exit_code == 0
    rows = json.loads(out.read_text())["rows"]
    assert [row["problem"] for row in rows] == [
        f"{size}x{size}x{size}:f32:nn" for size in (128, 256, 512)
    ]
    assert all(0 < row["ratio"] <= 1 for row in rows)


def test_fit_writes_rising_expected_losses(tmp_path: Path) -> None:
    fitted = tmp_path / "losses.json"
    run_left_out(recordings(tmp_path / "sizes"), "--fit", "--losses", fitted)
    losses = json.loads(fitted.read_text())["losses"]
    assert losses["near"]["losses"] == sorted(losses["near"]["losses"])
    assert len(losses["near"]["losses"]) == len(losses["near"]["deviations"]) + 1
    assert losses["model"]["losses"][0] >= 0


def test_left_out_problem_ignores_its_own_record(tmp_path: Path) -> None:
    recording = Recording.load(next(recordings(tmp_path / "sizes").glob("128*")))
    own = shipped.record_of(recording)
    assert own is not None
    alone = left_out.row_of(recording, [])
    assert left_out.row_of(recording, [RecordDigest.of(own)]).picked == alone.picked


def test_failure_counts_as_one_percent_in_the_mean() -> None:
    assert geomean([1.0, 0.0]) == pytest.approx(0.1)


def test_record_in_the_file_has_its_device(tmp_path: Path) -> None:
    run(tmp_path / "made.jsonl.xz")
    (record,) = bundle.loads((tmp_path / "made.jsonl.xz").read_bytes()).records
    assert record.device == H100


def test_bundled_recordings_keep_their_origin(tmp_path: Path) -> None:
    out = tmp_path / "suites.jsonl.xz"
    shipped.bundle_recordings(recordings(tmp_path / "sizes"), out)
    records = bundle.loads(out.read_bytes()).records
    assert [record.problem.m for record in records] == [128, 256, 512]
    assert {record.provenance.source for record in records} == {
        sample_recording.recorded().origin.source
    }


def test_problems_of_earlier_bundles_are_skipped(tmp_path: Path) -> None:
    first, second = tmp_path / "first.jsonl.xz", tmp_path / "second.jsonl.xz"
    shipped.bundle_recordings(recordings(tmp_path / "sizes"), first)
    shipped.bundle_recordings(recordings(tmp_path / "sizes"), second)
    assert bundle.loads(second.read_bytes()).records == ()
