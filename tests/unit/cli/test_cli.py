"""The command line: what each verb prints, and its exit status."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.command_line import answer, own_machine, printed, run
from support.fake_runner import tiled
from support.sample_recording import DEVICE, FASTEST, PROBLEM, VENDOR_US
from support.sample_records import H100, SQUARE, entry, record

from autotune import __version__, device, gpu, runtime
from autotune.candidates import space
from autotune.cli.tuning import parse_seconds
from autotune.errors import UsageError
from autotune.families import registry
from autotune.families.config import Config
from autotune.records import Store
from autotune.report import doctor
from autotune.report.doctor import Check

SHAPE = PROBLEM.shape
TUNE = ("tune", SHAPE, "--device", DEVICE, "--sampler", "exhaustive")


@pytest.fixture(autouse=True)
def _own_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The machine of these tests."""
    own_machine(monkeypatch, tmp_path)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "--version") == f"{__version__}\n"


@pytest.mark.parametrize("verb", ["doctor", "device", "occupancy", "tune", "best", "ladder"])
def test_every_verb_has_help(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, verb, "--help").startswith(f"Usage: autotune {verb}")


# device


def test_device_prints_the_limits(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "device", "--device", "h100")
    assert ["232,448", "B"] in [line.split()[-2:] for line in text.splitlines()]


def test_device_prints_the_peak_of_each_precision(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "device", "--device", "rtx 3090").splitlines()
    peaks = dict(line.rsplit(maxsplit=2)[:2] for line in lines if "peak" in line)
    # The GA102 whitepaper, at 1695 MHz and with fp32 sums: 35.6, 35.6, 71 and 71 TFLOP/s.
    assert {name.strip(): float(value) for name, value in peaks.items()} == pytest.approx(
        {"peak fp32": 35.6, "peak tf32": 35.6, "peak fp16": 71.0, "peak bf16": 71.0}, rel=5e-3
    )


def test_device_says_what_its_tensor_cores_lack(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "device", "--device", "t4").splitlines()
    lacking = [line.split()[1] for line in lines if "no tensor cores for it" in line]
    assert lacking == ["tf32", "bf16"]


def test_device_json_is_what_device_files_hold(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "card.json"
    file.write_text(json.dumps(answer(capsys, "device", "--device", "rtx 3090")))
    assert answer(capsys, "device", "--device", str(file)) == device.find("rtx 3090").to_json()


def test_device_of_a_recording(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "device", "--device", DEVICE)["name"] == "NVIDIA H100 80GB HBM3"


def test_device_of_this_machine_by_its_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = [device.find("t4"), device.find("l4")]
    monkeypatch.setattr(gpu, "probe", lambda index=0: cards[index])
    assert answer(capsys, "device", "--device", "gpu:1")["name"] == "NVIDIA L4"


def test_device_without_pycuda_asks_the_driver(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "probe", lambda _: device.find("t4"))
    assert answer(capsys, "device")["name"] == "Tesla T4"


# occupancy


def test_occupancy_takes_several_tile_widths_after_one_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = answer(capsys, "occupancy", "--tile-width", "4", "8", "--device", "h100")
    assert [row["tile_width"] for row in rows(data)] == [4, 8]


def test_occupancy_takes_the_option_again(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(capsys, "occupancy", "--device", "h100", "--tile-width", "8", "--tile-width=16")
    assert [row["tile_width"] for row in rows(data)] == [8, 16]


def test_occupancy_counts_compiled_registers(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(capsys, "occupancy", "--device", "h100", "--tile-width", "4", "32")
    # A block of 1024 threads has 64 registers a thread at most on an H100.
    assert 0 < int(str(rows(data)[1]["registers"])) <= 64 < 65536


def test_occupancy_of_an_old_device_says_what_it_compiled_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = printed(capsys, "occupancy", "--device", "gtx 980", "--tile-width", "16")
    assert text.startswith("NVIDIA GeForce GTX 980; registers as compiled for sm_75\n")


def test_occupancy_of_one_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(
        capsys, "occupancy", "--device", "textbook-d", "--threads", "512", "--registers", "11"
    )
    # PMPP on device D: 11 registers with 512-thread blocks lose a whole block of three.
    assert rows(data)[0]["blocks_per_sm"] == 2


def test_a_closed_standard_output_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert run("device", "--device", "h100") == 0


def test_occupancy_table_fits_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "occupancy", "--device", "h100", "--tile-width", "16")
    assert text.rstrip().endswith("13,400.0   20%")


def rows(data: dict[str, object]) -> list[dict[str, object]]:
    found = data["rows"]
    assert isinstance(found, list)
    return found


# tune and best


def test_tune_on_a_recording_finds_its_fastest(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, *TUNE)["config"] == str(FASTEST)


def test_tune_prints_the_record_and_says_that_it_was_replayed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = printed(capsys, *TUNE).splitlines()[0]
    assert first.split() == [str(PROBLEM), "on", "NVIDIA", "H100", "80GB", "HBM3", "REPLAYED"]


def test_tune_tells_its_progress_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    run(*TUNE, "--json")
    assert capsys.readouterr().err.startswith("25 configurations, 0 rejected\ncuBLAS: ")


def test_tune_stops_after_the_trials(capsys: pytest.CaptureFixture[str]) -> None:
    run("tune", SHAPE, "--device", DEVICE, "--trials", "7", "--quiet")
    assert "after 7 trials in" in capsys.readouterr().err


def test_tune_goes_on_where_it_ended(capsys: pytest.CaptureFixture[str]) -> None:
    run("tune", SHAPE, "--device", DEVICE, "--trials", "7")
    run("tune", SHAPE, "--device", DEVICE, "--trials", "9")
    assert "25 configurations, 0 rejected, 7 tried before" in capsys.readouterr().err


def test_tune_tries_the_family_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    config = Config.parse(str(answer(capsys, *TUNE, "--family", "tiled")["config"]))
    assert config.family == "tiled"


def test_tune_explains_why_configurations_are_illegal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "divisibility" in printed(capsys, *TUNE, "--explain", "--family", "simt")


def test_tune_explains_what_fell_of_all_the_families_that_it_chose_from(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = answer(capsys, *TUNE, "--explain")
    spaces = [space.feasible(PROBLEM, H100, name) for name in registry.tuned(PROBLEM)]
    legal = sum(len(one.configs) for one in spaces)
    rejected = told["rejected"]
    assert isinstance(rejected, dict)
    assert rejected.pop("not recorded") == legal - 25
    assert sum(rejected.values()) == sum(sum(one.rejected.values()) for one in spaces)
    assert told["failed"] == {"verify": 1}


def test_best_finds_what_tune_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    tuned = answer(capsys, *TUNE)
    assert answer(capsys, "best", SHAPE, "--device", DEVICE) == tuned


def test_best_compares_with_cublas(capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, *TUNE)
    assert answer(capsys, "best", SHAPE, "--device", DEVICE)["cublas_us"] == VENDOR_US


def test_best_fits_a_screen(capsys: pytest.CaptureFixture[str]) -> None:
    run(*TUNE)
    capsys.readouterr()
    lines = printed(capsys, "best", SHAPE, "--device", DEVICE).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_best_of_what_nobody_tuned_is_what_would_run(capsys: pytest.CaptureFixture[str]) -> None:
    told = answer(capsys, "best", "64x64x64", "--device", "h100")
    assert (told["how"], told["record"]) == ("predicted", None)
    assert "is not tuned" in str(told["note"])


def test_best_says_what_may_be_lost(capsys: pytest.CaptureFixture[str]) -> None:
    run(*TUNE)
    capsys.readouterr()
    shown = printed(capsys, "best", "256x256x300", "--device", "h100")
    assert re.search(r"^expected loss +\d+% against full tuning", shown, re.MULTILINE)


def test_best_warns_of_what_was_measured_with_other_things_than_todays(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    known = replace(entry(16, 900.0), config=tiled(16))
    Store(tmp_path / "cache").save(record(known, source="5e1f"))
    assert run("best", str(SQUARE), "--device", "h100") == 0
    warned = capsys.readouterr().err
    assert warned.startswith("warning: it was measured with ")
    assert "kernel sources 5e1f, now " in warned
    assert "`autotune cache verify --retime`" in warned


def test_best_asked_for_what_was_tuned_alone_finds_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("best", "--exact", "64x64x64", "--device", "h100") == 3
    assert "run `autotune tune 64x64x64:f32:nn --device h100`" in capsys.readouterr().err


RANGE = ("tune", "30..64x64x64", "--device", "h100", "--family", "tiled", "--trials", "3")


def test_a_range_is_tuned_at_a_few_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    told = answer(capsys, *RANGE)
    segments = told["segments"]
    assert isinstance(segments, list)
    assert (segments[0][0], segments[-1][1], told["dimension"]) == (30, 64, "m")


def test_a_range_is_printed_with_its_points(capsys: pytest.CaptureFixture[str]) -> None:
    shown = printed(capsys, *RANGE)
    assert shown.startswith("30..64x64x64:f32:nn on NVIDIA H100 80GB HBM3: predicted\n")
    assert re.search(r"sizes tuned; expected loss at most \d+\.\d%\s*$", shown)


def test_each_size_of_a_range_is_named_while_it_is_tuned(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(*RANGE)
    assert "tuning 64x64x64:f32:nn" in capsys.readouterr().err


def test_predictions_are_marked_and_have_real_registers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = answer(
        capsys, "tune", "64x64x64", "--device", "h100", "--family", "tiled", "--trials", "2"
    )
    assert (told["evidence"], told["how"], told["cublas_us"]) == ("predicted", "predicted", None)


def test_an_interrupt_keeps_what_was_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from autotune.runners.replay import ReplayRunner

    def pressed(*_: object) -> None:
        raise KeyboardInterrupt

    run("tune", SHAPE, "--device", DEVICE, "--trials", "5")
    monkeypatch.setattr(ReplayRunner, "measure", pressed)
    assert run(*TUNE) == 130
    assert capsys.readouterr().err.endswith("what was measured is kept; run again to go on\n")
    assert run("best", SHAPE, "--device", DEVICE) == 0


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("60s", 60.0), ("2m", 120.0), ("1.5h", 5400.0)]
)
def test_budgets(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "1d", "-5", "1e3", "nan"])
def test_malformed_budgets(text: str) -> None:
    with pytest.raises(UsageError, match="give 60s, 2m or 90"):
        parse_seconds(text)


# ladder


def test_ladder_of_a_recording(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "ladder", "256", "--device", DEVICE)["evidence"] == "replayed"


def test_ladder_without_a_gpu_says_that_it_takes_the_recording(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("ladder", "256")
    assert "no GPU here: the recorded ladder of an H100" in capsys.readouterr().err


# doctor


@pytest.mark.parametrize(
    ("checks", "status"),
    [
        ((Check("NVRTC", True, ""), Check("GPU", False, "none", "buy one")), 0),
        ((Check("NVRTC", False, ""), Check("GPU", False, "none", "buy one")), 1),
        ((Check("PyCUDA", False, "", "install"), Check("GPU", False, "")), 0),
        ((Check("PyCUDA", False, "", "install"), Check("GPU", True, "H100")), 1),
    ],
)
def test_doctor_fails_only_for_what_this_machine_needs(
    checks: tuple[Check, ...], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "checks", lambda: checks)
    assert run("doctor") == status


def test_doctor_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "checks", lambda: (Check("Python", True, "3.12"),))
    assert answer(capsys, "doctor") == {
        "ok": True,
        "checks": [{"name": "Python", "ok": True, "detail": "3.12", "remedy": ""}],
    }
