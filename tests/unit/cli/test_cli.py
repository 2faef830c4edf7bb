"""The command line: what each verb prints, and its exit status."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.command_line import answer, printed, run
from support.fake_runner import tiled
from support.sample_recording import DEVICE, FASTEST, PROBLEM, VENDOR_US
from support.sample_records import H100, SQUARE, entry, record

from autotune import device, settings
from autotune.cli.options import seconds_of, show
from autotune.device import Device
from autotune.errors import DeviceError, UsageError
from autotune.families import registry
from autotune.families.config import Config
from autotune.measure import devices
from autotune.measure.without_gpu import ReplayRunner
from autotune.model import space
from autotune.problem import Problem
from autotune.records import Record, Store, bundle
from autotune.report import doctor
from autotune.report.doctor import Check
from autotune.report.record import render
from autotune.version import __version__

SHAPE = PROBLEM.shape


TUNE = ("tune", SHAPE, "--device", DEVICE, "--sampler", "exhaustive")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, "--version") == f"{__version__}\n"
    assert logging.getLogger("autotune").handlers == []


# device


def test_device_prints_the_limits(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "device", "--device", "h100")
    assert ["232,448", "B"] in [line.split()[-2:] for line in text.splitlines()]


def test_device_prints_the_peak_of_each_precision(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "device", "--device", "rtx 3090").splitlines()
    peaks = dict(line.rsplit(maxsplit=2)[:2] for line in lines if "FLOP/s" in line)
    # The GA102 whitepaper, at 1695 MHz and with fp32 sums: 35.6, 35.6, 71 and 71 TFLOP/s, and 284
    # in int8.
    assert {name.strip(): float(value) for name, value in peaks.items()} == pytest.approx(
        {
            **{"peak fp32": 35.6, "peak tf32": 35.6, "peak fp16": 71.0, "peak bf16": 71.0},
            "peak int8": 284.0,
        },
        rel=5e-3,
    )


def test_device_names_precisions_without_tensor_cores(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "device", "--device", "t4").splitlines()
    missing = [line.split()[1] for line in lines if "no tensor cores for it" in line]
    assert missing == ["tf32", "bf16", "fp8", "fp8e5", "int8"]


def test_device_json_is_a_device_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "card.json"
    file.write_text(json.dumps(answer(capsys, "device", "--device", "rtx 3090")))
    assert answer(capsys, "device", "--device", str(file)) == device.find("rtx 3090").to_json()


def test_device_of_a_recording(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "device", "--device", DEVICE)["name"] == "NVIDIA H100 80GB HBM3"


def test_device_takes_the_number_of_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cards = [device.find("t4"), device.find("l4")]
    monkeypatch.setattr(devices, "probe", lambda index=0: cards[index])
    assert answer(capsys, "device", "--device", "gpu:1")["name"] == "NVIDIA L4"


def test_device_states_the_clusters_of_a_gpu(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def probe(index: int = 0, *, enter: bool = False) -> device.Device:
        clusters = (66, 32, 15 - index) if enter else None
        return replace(device.find("h100"), clusters=clusters, clusters_expected=False)

    monkeypatch.setattr(devices, "probe", probe)
    assert answer(capsys, "device", "--device", "gpu:1")["clusters"] == [66, 32, 14]
    assert "clusters of 2, 4, 8 66, 32, 15" in " ".join(printed(capsys, "device").split())


def test_device_marks_the_clusters_of_the_catalogue(capsys: pytest.CaptureFixture[str]) -> None:
    text = " ".join(printed(capsys, "device", "--device", "h100-pcie").split())
    assert "clusters of 2, 4, 8 57, 25, 9 expected, driver not asked" in text
    assert "resident clusters: the least on 7 or 8 GPCs" in text


def test_device_is_what_the_driver_shows(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "probe", lambda _: device.find("t4"))
    assert answer(capsys, "device")["name"] == "Tesla T4"


# occupancy


def test_occupancy_takes_several_widths_after_one_option(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = answer(capsys, "occupancy", "--tile-width", "4,8", "--device", "h100")
    assert [row["tile_width"] for row in rows(data)] == [4, 8]


def test_occupancy_takes_a_repeated_option(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(capsys, "occupancy", "--device", "h100", "--tile-width", "8", "--tile-width=16")
    assert [row["tile_width"] for row in rows(data)] == [8, 16]


@pytest.mark.parametrize(
    ("gpu_device", "clusters", "note"),
    [
        (
            "h100",
            15,
            "NVIDIA H100 80GB HBM3; clusters as expected of such cards, not asked of the driver",
        ),
        ("gpu", 14, "NVIDIA H100 80GB HBM3"),
    ],
)
def test_occupancy_counts_resident_clusters(
    gpu_device: str,
    clusters: int,
    note: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def probe(_: int = 0, *, enter: bool = False) -> device.Device:
        assert not enter, "a reading verb creates no context"
        return replace(H100, clusters=(66, 32, 14), clusters_expected=False)

    monkeypatch.setattr(devices, "probe", probe)
    kernel = ("--threads", "384", "--registers", "168", "--shared", "200000")
    data = answer(capsys, "occupancy", "--device", gpu_device, *kernel, "--cluster", "8")
    (row,) = rows(data)
    assert (row["cluster"], row["clusters"], data["note"]) == (8, clusters, note)


def test_occupancy_refuses_other_clusters(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("occupancy", "--device", "h100", "--cluster", "3") == 2
    assert capsys.readouterr().err == "error: a cluster of 3 blocks; give 1, 2, 4 or 8 blocks\n"


def test_occupancy_counts_compiled_registers(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(capsys, "occupancy", "--device", "h100", "--tile-width", "4,32")
    # A block of 1024 threads has 64 registers a thread at most on an H100.
    assert 0 < int(str(rows(data)[1]["registers"])) <= 64 < 65536


def test_occupancy_of_an_old_device_names_the_target(
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


def test_closed_standard_output_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    assert run("device", "--device", "h100") == 0


def test_occupancy_table_fits_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "occupancy", "--device", "h100", "--tile-width", "16")
    assert text.rstrip().endswith("13,400.0   20%")


def rows(data: dict[str, object]) -> list[dict[str, object]]:
    listed = data["rows"]
    assert isinstance(listed, list)
    return listed


# tune and best


def test_tune_on_a_recording_finds_its_fastest(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, *TUNE)["config"] == str(FASTEST)


def test_tune_prints_the_record_with_its_evidence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = printed(capsys, *TUNE).splitlines()[0]
    assert first.split() == [str(PROBLEM), "on", "NVIDIA", "H100", "80GB", "HBM3", "REPLAYED"]


def test_tune_prints_progress_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    run(*TUNE, "--json")
    assert capsys.readouterr().err.startswith("25 configurations, 0 rejected\ncuBLAS: ")


def test_tune_stops_after_its_trials(capsys: pytest.CaptureFixture[str]) -> None:
    run("tune", SHAPE, "--device", DEVICE, "--trials", "7", "--quiet")
    assert "after 7 trials in" in capsys.readouterr().err


def test_tune_continues_earlier_trials(capsys: pytest.CaptureFixture[str]) -> None:
    run("tune", SHAPE, "--device", DEVICE, "--trials", "7")
    run("tune", SHAPE, "--device", DEVICE, "--trials", "9")
    assert "25 configurations, 0 rejected, 7 tried before" in capsys.readouterr().err


def test_tune_searches_the_named_family(capsys: pytest.CaptureFixture[str]) -> None:
    config = Config.parse(str(answer(capsys, *TUNE, "--family", "tiled")["config"]))
    assert config.family == "tiled"


def test_record_of_a_family_stands_beside_that_of_all(capsys: pytest.CaptureFixture[str]) -> None:
    overall = answer(capsys, *TUNE)
    data = answer(capsys, *TUNE, "--family", "tiled")
    assert answer(capsys, "best", SHAPE, "--device", DEVICE)["config"] == overall["config"]
    alone = answer(capsys, "best", SHAPE, "--device", DEVICE, "--family", "tiled")
    assert (alone["config"], alone["family"]) == (data["config"], "tiled")


def test_family_that_was_not_tuned_is_not_found(capsys: pytest.CaptureFixture[str]) -> None:
    run(*TUNE)
    assert run("best", SHAPE, "--device", DEVICE, "--family", "tiled") == 3
    hint = f"run `autotune tune {PROBLEM} --family tiled --device {DEVICE}`"
    assert hint in capsys.readouterr().err


def test_explain_names_the_rejecting_rules(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert "divisibility" in printed(capsys, *TUNE, "--explain", "--family", "simt")


def test_explain_counts_rejections_of_all_families(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = answer(capsys, *TUNE, "--explain")
    spaces = [space.feasible(PROBLEM, H100, name) for name in registry.tuned(PROBLEM)]
    legal = sum(len(feasible.configs) for feasible in spaces)
    rejected = data["rejected"]
    assert isinstance(rejected, dict)
    assert rejected.pop("not recorded") == legal - 25
    assert sum(rejected.values()) == sum(sum(feasible.rejected.values()) for feasible in spaces)
    assert data["failed"] == {"verify": 1}


def test_best_finds_what_tune_recorded(capsys: pytest.CaptureFixture[str]) -> None:
    tuned = answer(capsys, *TUNE)
    assert answer(capsys, "best", SHAPE, "--device", DEVICE) == tuned


def test_best_compares_with_cublas(capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, *TUNE)
    assert answer(capsys, "best", SHAPE, "--device", DEVICE)["cublas_us"] == VENDOR_US


@pytest.mark.parametrize("exact", [(), ("--exact",)])
def test_best_by_the_cold_time(capsys: pytest.CaptureFixture[str], exact: tuple[str, ...]) -> None:
    entries = (
        replace(entry(width, hot_us), config=tiled(width))
        for width, hot_us in ((16, 900.0), (32, 950.0))
    )
    hot, cold = (
        replace(made, measurement=replace(made.measurement, cold_us=cold_us))
        for made, cold_us in zip(entries, (1200.0, 1100.0), strict=True)
    )
    Store(settings.cache_dir()).save(record(hot, cold, device=device.find("h100")))
    asked = "best", str(SQUARE), "--device", "h100", *exact
    data = answer(capsys, *asked, "--objective", "cold")
    assert (data["config"], data["time_us"], data["objective"]) == (str(tiled(32)), 1100.0, "cold")
    assert answer(capsys, *asked)["config"] == str(tiled(16))
    text = printed(capsys, *asked, "--objective", "cold")
    assert "\ncold time  1100.0 us, hot 950.0 us" in text


def test_best_by_an_unknown_time_is_refused() -> None:
    assert run("best", SHAPE, "--device", DEVICE, "--objective", "warm") == 2


def test_tuning_cold_without_cold_times_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*TUNE, "--objective", "cold") == 1
    assert ": cold times are not known here; minimise the hot times" in capsys.readouterr().err


def test_best_fits_a_screen(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(*TUNE)
    capsys.readouterr()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    lines = printed(capsys, "best", SHAPE, "--device", DEVICE).splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80


def test_best_predicts_an_untuned_problem(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(capsys, "best", "64x64x64", "--device", "h100")
    assert (data["how"], data["record"]) == ("predicted", None)
    assert "is not tuned" in str(data["note"])


def test_best_prints_the_expected_loss(capsys: pytest.CaptureFixture[str]) -> None:
    run(*TUNE)
    capsys.readouterr()
    text = printed(capsys, "best", "256x256x300", "--device", "h100")
    assert re.search(r"^expected loss +\d+% against full tuning", text, re.MULTILINE)


STALE = record(replace(entry(16, 900.0), config=tiled(16)), source="5e1f")


def test_best_warns_of_a_stale_record(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    Store(tmp_path / "cache").save(STALE)
    monkeypatch.setattr(devices, "probe", lambda _=0: device.find("h100"))
    assert run("best", str(SQUARE), "--device", "h100") == 0
    warning = capsys.readouterr().err
    assert warning.startswith("warning: it was measured with ")
    assert "kernel sources 5e1f, now " in warning
    assert "; `autotune cache verify --retime` or `autotune tune " in warning
    assert f"`autotune tune {SQUARE} --device h100` measures again" in warning


def test_stale_shipped_record_names_tuning_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ship(tmp_path / "shipped", monkeypatch)
    monkeypatch.setattr(devices, "probe", lambda _=0: device.find("h100"))
    assert run("best", str(SQUARE), "--device", "h100") == 0
    warning = capsys.readouterr().err
    assert f"; `autotune tune {SQUARE} --device h100` measures again" in warning
    assert "verify" not in warning


@pytest.mark.parametrize("shipped", [True, False])
@pytest.mark.parametrize("card", [None, "h200"])
def test_stale_record_of_another_card_warns_of_nothing(
    shipped: bool,
    card: str | None,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    if shipped:
        ship(tmp_path / "shipped", monkeypatch)
    else:
        Store(tmp_path / "cache").save(STALE)
    if card is not None:
        only = device.find(card)
        monkeypatch.setattr(devices, "probe", partial(gpu, only))
    assert run("best", str(SQUARE), "--device", "h100") == 0
    assert capsys.readouterr().err == ""


def gpu(only: Device, index: int = 0) -> Device:
    """The one GPU of a machine."""
    if index:
        raise DeviceError("there is no such GPU")
    return only


def ship(folder: Path, monkeypatch: pytest.MonkeyPatch, shipped: Record = STALE) -> None:
    """Ships a record, by default a stale one."""
    folder.mkdir()
    (folder / "h100.jsonl.xz").write_bytes(bundle.dumps([shipped]))
    monkeypatch.setenv("AUTOTUNE_SHIPPED_DIR", str(folder))


def test_replayed_tuning_never_hides_a_shipped_measurement(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ship(tmp_path / "shipped", monkeypatch, replace(STALE, problem=PROBLEM))
    assert run(*TUNE) == 0
    (replayed,) = (tmp_path / "cache" / "records").glob("*/*.json")
    assert replayed.name.endswith(".replayed.json")
    capsys.readouterr()
    for options in ((), ("--exact",)):
        found = answer(capsys, "best", *options, SHAPE, "--device", DEVICE)
        assert (found["evidence"], found["time_us"]) == ("measured", 900.0)


RANGE = ("tune", "30..64x64x64", "--device", "h100", "--trials", "3")


def test_range_is_tuned_at_a_few_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(capsys, *RANGE)
    segments = data["segments"]
    assert isinstance(segments, list)
    assert (segments[0][0], segments[-1][1], data["dimension"]) == (30, 64, "m")


def test_range_is_printed_with_its_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *RANGE)
    assert text.startswith("30..64x64x64:f32:nn on NVIDIA H100 80GB HBM3: predicted\n")
    assert re.search(r"\d+ sizes tuned\s*$", text)


def test_progress_names_each_size_of_a_range(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(*RANGE)
    assert "tuning 64x64x64:f32:nn" in capsys.readouterr().err


def test_predictions_are_marked(
    capsys: pytest.CaptureFixture[str],
) -> None:
    data = answer(
        capsys, "tune", "64x64x64", "--device", "h100", "--family", "tiled", "--trials", "2"
    )
    assert (data["evidence"], data["how"], data["cublas_us"]) == ("predicted", "predicted", None)


def test_interrupt_keeps_the_measurements(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    run("tune", SHAPE, "--device", DEVICE, "--trials", "5")
    monkeypatch.setattr(ReplayRunner, "measure", interrupt)
    assert run(*TUNE) == 130
    assert capsys.readouterr().err.endswith("the measurements are kept; run again to continue\n")
    assert run("best", SHAPE, "--device", DEVICE) == 0
    hint = f"its search was interrupted; `autotune tune {PROBLEM} --device {DEVICE}` continues it"
    assert hint not in capsys.readouterr().err  # the first search had ended


def test_interrupted_search_is_marked(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, outcomes = ReplayRunner.measure, iter(range(5))

    def interrupted(*arguments: Any) -> Any:
        if next(outcomes, None) is None:
            raise KeyboardInterrupt
        return measure(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(ReplayRunner, "measure", interrupted)
        assert run(*TUNE) == 130
    capsys.readouterr()
    assert run("best", SHAPE, "--device", DEVICE) == 0
    hint = f"its search was interrupted; `autotune tune {PROBLEM} --device {DEVICE}` continues it"
    shown = capsys.readouterr()
    assert shown.err == f"warning: {hint}\n"
    assert "interrupted after 5 trials" in shown.out
    assert answer(capsys, *TUNE)["interrupted"] is False


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90.0), ("60s", 60.0), ("2M", 120.0), ("1.5h", 5400.0)]
)
def test_budget_is_parsed_in_seconds(text: str, seconds: float) -> None:
    assert seconds_of(text, "budget", "60s", units=" smh") == seconds


@pytest.mark.parametrize("text", ["", "s", "1d", "-5", "1e3", "nan", "9999999999s"])
def test_malformed_budget_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"malformed budget .*; give 60s or 2m"):
        seconds_of(text, "budget", "60s or 2m", units=" smh")


def test_age_needs_a_unit() -> None:
    assert seconds_of("30d", "age", "30d", units="smhd") == 2592000.0
    with pytest.raises(UsageError, match="malformed age '30'; give 30d"):
        seconds_of("30", "age", "30d", units="smhd")


# ladder


def test_ladder_of_a_named_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "ladder", "256", "--device", "h100")["evidence"] == "predicted"


def test_ladder_without_a_gpu_replays_the_recording(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run("ladder", "256")
    assert "no GPU here: the recorded ladder of an H100" in capsys.readouterr().err


def test_ladder_shows_a_rung(capsys: pytest.CaptureFixture[str]) -> None:
    shown = answer(capsys, "ladder", "--show", "7")
    assert (shown["kernel"], shown["number"]) == ("warps", 7)
    assert str(shown["diff"]).startswith("--- ladder/06_vectors.cu\n+++ ladder/07_warps.cu\n")
    run("ladder", "--show", "7")
    assert capsys.readouterr().out.startswith("// Rung 7. C = alpha A B + beta C")


# doctor


@pytest.mark.parametrize(
    ("checks", "status"),
    [
        ((Check("NVRTC", True, ""), Check("GPU", False, "none", "buy one")), 0),
        ((Check("NVRTC", False, ""), Check("GPU", False, "none", "buy one")), 1),
        ((Check("tuning session", False, "", "install"), Check("GPU", False, "")), 0),
        ((Check("tuning session", False, "", "install"), Check("GPU", True, "H100")), 1),
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


@pytest.mark.parametrize("shape", ["64x64x64", "64x64x96"])
def test_hint_of_an_untuned_problem_works_without_a_gpu(
    shape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = replace(entry(16, 900.0), config=tiled(16))
    Store(settings.cache_dir()).save(record(tuned, problem=Problem(64, 64, 128)))
    note = str(answer(capsys, "best", shape, "--device", "h100")["note"])
    assert f"`autotune tune {shape}:f32:nn --device h100`" in note


def test_ascii_terminal_shows_no_escapes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run(*TUNE)
    capsys.readouterr()
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    show(render(Store(settings.cache_dir()).records(H100)[0]))
    sys.stdout.flush()
    text = written.getvalue().decode()
    assert "8.00 us" in text
    assert "\\" not in text


@pytest.mark.parametrize("shape", ["64×64×64", "64 64 64", "64,64,64", "64x64x64"])
@pytest.mark.parametrize("compute", ["bf16", "BFloat16", "torch.bfloat16"])
def test_problem_is_written_in_several_ways(
    capsys: pytest.CaptureFixture[str], shape: str, compute: str
) -> None:
    asked = answer(capsys, "best", f"{shape}:{compute}", "--device", "h100")
    assert asked["problem"] == "64x64x64:bf16:nn"


def test_device_may_be_called_cuda(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tune", "64x64x64", "--device", "cuda:0") == 1
    first = capsys.readouterr().err
    assert run("tune", "64x64x64", "--device", "gpu:0") == 1
    assert first == capsys.readouterr().err
