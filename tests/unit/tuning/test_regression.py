"""`autotune check`: what would run today beside the times of a bundle."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.command_line import answer, own_machine, run
from support.fake_runner import UNKNOWN, FakeRunner, compiled, tiled
from support.sample_recording import DEVICE, PROBLEM
from support.sample_records import H100, SQUARE, entry, record

import autotune
from autotune.errors import NotFoundError
from autotune.lookup.answer import recorded_answer
from autotune.measure.objective import COLD, HOT
from autotune.measure.targets import Target
from autotune.records import Record, Store, exchange
from autotune.records.bundle import Bundle
from autotune.tuning import retiming
from autotune.tuning.retiming import TimeCheck


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return own_machine(monkeypatch, tmp_path)


def bundle_of(path: Path, factor: float) -> Path:
    """A bundle of the recording's problem, with its times multiplied."""
    tuned = autotune.tune(PROBLEM, device=DEVICE, effort="exhaustive", progress=False)
    entries = tuple(
        replace(
            item, measurement=replace(item.measurement, time_us=factor * item.measurement.time_us)
        )
        for item in tuned.entries
    )
    exchange.write(path, Bundle((replace(tuned, entries=entries),)))
    return path


def test_same_speed_passes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = bundle_of(tmp_path / "times.jsonl.xz", 1.0)
    arguments = ("check", str(PROBLEM), "--against", str(path), "--device", DEVICE)
    data: Any = answer(capsys, *arguments, "--min", "0.9")
    assert data["passed"] is True
    (row,) = data["checks"]
    assert row["ratio"] == pytest.approx(1, abs=0.1)
    assert row["evidence"] == "replayed"
    assert run(*arguments, "--min", "0.9") == 0
    out = capsys.readouterr().out
    assert "0 of 1 below 0.9" in out
    assert "replayed" in out


def test_predicted_times_check_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "times.jsonl.xz"
    exchange.write(path, Bundle((record(),)))
    arguments = ("check", "--against", str(path), "--device", "h100", "--min", "0.001")
    assert run(*arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "is not in this machine, and predicted times check nothing" in line


def test_predicted_times_of_a_bundle_are_no_reference() -> None:
    measured, predicted = record(entry(16, 100.0)), record(entry(16, 50.0), evidence="predicted")
    for records in ([measured, predicted], [predicted, measured]):
        assert retiming.references(records, [], H100, HOT) == {SQUARE: 100.0}
    with pytest.raises(NotFoundError):
        retiming.references([predicted], [], H100, HOT)


def test_slower_kernel_is_status_1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = bundle_of(tmp_path / "times.jsonl.xz", 0.5)
    arguments = ("check", "--against", str(path), "--device", DEVICE)
    assert run(*arguments) == 1
    out = capsys.readouterr().out
    assert "below 0.95" in out
    assert "1 of 1 below 0.95" in out
    assert run(*arguments, "--min", "0.4") == 0


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ((str(PROBLEM),), 2, "give --against BUNDLE"),
        ((str(PROBLEM), "--against", "{path}", "--min", "0"), 2, "a --min above 0"),
        (("64x64x64", "--against", "{path}"), 3, "the bundle has no hot time of 64x64x64:f32:nn"),
        (("--against", "absent"), 2, "absent"),
    ],
)
def test_wrong_calls_say_what_is_missing(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    arguments: tuple[str, ...],
    status: int,
    message: str,
) -> None:
    path = tmp_path / "times.jsonl.xz"
    exchange.write(path, Bundle((record(),)))
    words = [word.format(path=path) for word in arguments]
    assert run("check", *words, "--device", DEVICE) == status
    assert message in capsys.readouterr().err


def test_bundle_of_another_device_is_refused() -> None:
    with pytest.raises(NotFoundError, match="the bundle has no hot time of anything on"):
        retiming.references([], [], H100, HOT)
    with pytest.raises(NotFoundError, match="no cold time"):
        retiming.references([record()], [SQUARE], H100, COLD)


def test_kernel_that_fails_has_no_ratio() -> None:
    check = TimeCheck(SQUARE, 100.0, None, "tiled", "verify: wrong")
    assert check.ratio == 0


def test_vendor_is_timed_where_it_runs(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = bundle_of(tmp_path / "times.jsonl.xz", 1.0)
    (reference,) = exchange.read(path)
    assert isinstance(reference, Record)
    baseline = reference.baseline
    assert baseline is not None
    faster = replace(baseline, time_us=0.5 * reference.best.measurement.time_us)
    Store(cache).save(replace(reference, baseline=faster, evidence="measured"))
    data: Any = answer(capsys, "check", "--against", str(path), "--device", DEVICE, "--min", "0.01")
    assert [(row["runs"], row["now_us"]) for row in data["checks"]] == [
        ("cuBLAS", pytest.approx(baseline.time_us))
    ]


def test_vendor_whose_result_is_wrong_has_no_ratio() -> None:
    runner = FakeRunner()
    runner.baseline_fault = "wrong result"
    made = record(replace(entry(16, 900.0), config=tiled(16)), baseline_us=100.0)
    answer = recorded_answer(SQUARE, H100, made, "exact", 0.0)
    assert answer is not None
    assert answer.vendor
    target = Target(runner, UNKNOWN)
    (checked,) = retiming.check(
        {SQUARE: 100.0}, lambda _: nullcontext(target), lambda _: answer, compiled, HOT
    )
    assert (checked.now_us, checked.why) == (None, "verify: wrong result")


def test_cold_times_are_compared_with_cold_times() -> None:
    best = replace(entry(16, 100.0), config=tiled(16))
    timed = record(replace(best, measurement=replace(best.measurement, cold_us=120.0)))
    assert retiming.references([timed], [], H100, COLD) == {SQUARE: 120.0}
    assert retiming.references([timed], [], H100, HOT) == {SQUARE: 100.0}
