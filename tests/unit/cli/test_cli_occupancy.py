"""The verbs occupancy and device: sweeps, several devices, the catalogue."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from support.command_line import answer, printed, run

from autotune import device
from autotune.cli.device import MOST, amounts
from autotune.errors import UsageError
from autotune.report.pages.page import plotly_js


def words(text: str) -> list[str]:
    return text.split()


def rows(data: Any) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = data["rows"]
    return listed


def test_sweep_takes_lists_ranges_and_units(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(
        capsys,
        *("occupancy", "h100", "--threads", "64..128", "--registers", "32,40"),
        *("--shared", "0..2K,16K"),
    )
    kernels = [(row["threads"], row["registers"], row["shared"]) for row in rows(data)]
    assert len(kernels) == 3 * 2 * 4
    assert kernels[:5] == [
        (64, 32, 0),
        (64, 32, 1024),
        (64, 32, 2048),
        (64, 32, 16384),
        (64, 40, 0),
    ]


def test_devices_follow_one_another(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, *words("occupancy h100 sm_86 --threads 64..128:64 --registers 40"))
    lines = [line.split() for line in text.splitlines()]
    assert [line[0] for line in lines if line[-1] in ("HBM3", "sm_86")] == ["NVIDIA", "sm_86"]
    assert [line[:6] for line in lines if line[0] == "64"] == [
        ["64", "40", "0", "24", "75%", "registers"],
        ["64", "40", "0", "16", "67%", "blocks"],
    ]


def test_several_devices_are_listed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    data: Any = answer(capsys, *words("occupancy h100 sm_75 --threads 256 --registers 40"))
    assert [(entry["device"], entry["rows"][0]["blocks_per_sm"]) for entry in data["devices"]] == [
        ("NVIDIA H100 80GB HBM3", 6),
        ("sm_75", 4),
    ]


def test_missing_threads_sweep_the_block_size(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(capsys, *words("occupancy h100 --registers 40"))
    assert [row["threads"] for row in rows(data)] == [*range(32, 1025, 32)]
    assert data["best_threads"] == [64, 96, 128, 192, 256, 384, 512, 768]
    text = printed(capsys, *words("occupancy h100 --registers 40"))
    assert text.endswith("best block size: 64, 96, 128, 192, 256, 384, 512, 768 (75%)\n")


def test_carve_out_is_passed_on(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(
        capsys,
        *words("occupancy h100 --threads 64 --registers 32 --shared 16K --carve-out 25"),
    )
    # A quarter of 228 KiB is 57: the SM takes 64 KiB, and a block 16 and 1 that is reserved.
    assert rows(data)[0]["limits"]["shared memory"] == 3


def test_compute_capability_stands_for_its_sm(capsys: pytest.CaptureFixture[str]) -> None:
    data = answer(capsys, *words("occupancy sm_86 --threads 128 --registers 40"))
    assert (data["device"], rows(data)[0]["blocks_per_sm"]) == ("sm_86", 12)


@pytest.mark.parametrize("shared", ["0", "48K"])
def test_sweep_agrees_with_single_kernels(capsys: pytest.CaptureFixture[str], shared: str) -> None:
    kernel = ("--registers", "56", "--shared", shared)
    swept = rows(answer(capsys, "occupancy", "a100", "--threads", "96..352", *kernel))
    single = [
        rows(answer(capsys, "occupancy", "a100", "--threads", str(row["threads"]), *kernel))[0]
        for row in swept
    ]
    assert swept == single


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--threads 256", "a kernel needs registers; give --registers 32, or --registers 32,40,48"),
        ("--threads 0..1024:1 --registers 0..255:1", "262400 kernels; at most 10000"),
        ("--threads 0 --registers 32", "no kernel has 0 threads a block"),
        ("--barriers 2", "--barriers and --carve-out take a kernel"),
        ("--threads 64 --registers 8 --carve-out 101", "the carve-out is 101"),
        ("sm_86 --threads 64 --registers 8 --cluster 2", "clusters of 2 blocks lie in the GPCs"),
        ("sm_35 --threads 64 --registers 8", "unknown compute capability 'sm_35'"),
    ],
)
def test_impossible_sweeps_are_refused(
    capsys: pytest.CaptureFixture[str], options: str, message: str
) -> None:
    assert run("occupancy", "--device", "h100", *words(options)) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 1


# device


def test_name_stands_without_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "device", "rtx 3060") == device.find("rtx-3060").to_json()


def test_device_states_the_sources_of_its_values(capsys: pytest.CaptureFixture[str]) -> None:
    lines = printed(capsys, "device", "h200").splitlines()
    assert "memory bandwidth: NVIDIA H200 Datasheet" in lines


@pytest.mark.parametrize("verb", [("device",), ("device", "--list")])
def test_without_a_gpu_the_catalogue_is_listed(
    capsys: pytest.CaptureFixture[str], verb: tuple[str, ...]
) -> None:
    text = printed(capsys, *verb)
    keys = [line.split()[0] for line in text.splitlines()[2:]]
    assert keys == [*device.catalogue()]
    assert max(map(len, text.splitlines())) <= 80


def test_catalogue_has_sources_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    data: Any = answer(capsys, "device", "--list")
    assert data["h200"]["device"] == device.find("h200").to_json()
    assert data["h200"]["sources"]["memory_bandwidth"] == "NVIDIA H200 Datasheet"


def test_device_of_a_compute_capability_is_its_sm(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "device", "sm_87")["threads_per_sm"] == 1536
    assert "sm_87" in printed(capsys, "device", "--device", "sm_87")


def test_named_gpu_that_is_missing_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("device", "gpu:1") == 1
    assert "no CUDA driver" in capsys.readouterr().err


def test_two_devices_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("device", "h100", "--device", "t4") == 2
    assert capsys.readouterr().err == "error: one device at a time; give a name or --list\n"


# explore


def test_explore_writes_a_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    assert printed(capsys, "explore", "sm_86", "--out", str(path)) == (
        f"{path}: open it in a browser\n"
    )
    assert 'id="data-start">"sm_86"<' in path.read_text("utf-8")


def test_explore_without_a_gpu_starts_with_an_h100(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "page.html"
    printed(capsys, "explore", "--out", str(path))
    assert 'id="data-start">"h100-sxm"<' in path.read_text("utf-8")


def test_explore_needs_no_extra(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "plotly", None)
    plotly_js.cache_clear()
    assert run("explore", "h100", "--out", str(tmp_path / "page.html")) == 0


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        (("sm_99",), 2, "unknown compute capability 'sm_99'"),
        (("gpu",), 1, "no CUDA driver"),
        (("h100", "--device", "t4"), 2, "one device at a time"),
        (("h100", "--out", "/"), 1, "cannot write /: it is a directory"),
    ],
)
def test_explore_refuses_in_one_line(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], status: int, message: str
) -> None:
    assert run("explore", *arguments) == status
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["256"], (256,)),
        (["32", "40", "48"], (32, 40, 48)),
        (["32,40,32"], (32, 40)),
        (["48K"], (49152,)),
        (["1kb", "1KiB"], (1024,)),
        (["64..128"], (64, 96, 128)),
        (["50..100"], (50, 64, 96, 100)),
        (["0..2K:1K"], (0, 1024, 2048)),
        (["7..7"], (7,)),
        (["8..9", "16"], (8, 9, 16)),
    ],
)
def test_amounts_are_lists_ranges_and_units(texts: list[str], expected: tuple[int, ...]) -> None:
    assert amounts(texts, "--threads", 32) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("many", "--shared is 'many'; give an amount, such as 256 or 48K, or a range"),
        ("-5", "--shared is '-5'; give an amount"),
        ("4M", "--shared is '4M'; give an amount"),
        ("1..", "--shared is '1..'; give an amount"),
        ("1.5K", "--shared is '1.5K'; give an amount"),
        ("9..8", "--shared is '9..8'; give the smaller end first and a step above 0"),
        ("0..8:0", "--shared is '0..8:0'; give the smaller end first and a step above 0"),
        ("0..1000000:1", "--shared is '0..1000000:1': 1000000 amounts; at most 10000"),
        ("", "--shared names 0 amounts; give 1 to 10000"),
    ],
)
def test_other_amounts_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        amounts([text], "--shared", 1024)
    assert str(refused.value).startswith(message)


def test_lists_of_too_many_amounts_are_refused() -> None:
    with pytest.raises(UsageError, match=f"give 1 to {MOST}"):
        amounts([f"0..{MOST - 1}:1", f"{MOST}..{MOST + 5}:1"], "--shared", 1024)
