"""The verb explain: the winner, other configurations, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.command_line import answer, own_machine, printed, run
from support.sample_recording import DEVICE, PROBLEM

SHAPE = PROBLEM.shape


@pytest.fixture(autouse=True)
def _own_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without a GPU, with an empty cache and one recording."""
    own_machine(monkeypatch, tmp_path)


def test_winner_of_a_record_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    run("tune", SHAPE, "--device", DEVICE, "--sampler", "exhaustive", "--quiet")
    capsys.readouterr()
    text = printed(capsys, "explain", SHAPE, "--device", DEVICE)
    assert text.startswith(f"{PROBLEM} on NVIDIA H100 80GB HBM3\nwinner, replayed: ")
    assert "of the roofline" in text
    assert "cuBLAS takes" in text
    data: Any = answer(capsys, "explain", SHAPE, "--device", DEVICE)
    assert (data["evidence"], data["config"]) == ("replayed", None)
    assert data["winner"]["measured_us"] == data["time_us"]


def test_untuned_problem_is_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "explain", "64x64x64", "--device", "t4")
    assert "64x64x64:f32:nn is not tuned on Tesla T4" in " ".join(text.split())


def test_other_configuration_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    data: Any = answer(capsys, "explain", "64x64x64", "tiled:tile_width=16", "--device", "t4")
    assert data["config"]["config"] == "tiled:tile_width=16,specialized=1"
    assert "differs in the family: tiled, not simt" in data["compared"]
    assert data["config"]["fit"]["source"] == "estimated"
    assert data["config"]["fit"]["predicted_us"] >= data["least_us"]


def test_open_parameters_are_stated(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "explain", "64x64x64", "tiled:tile_width=16", "--device", "t4")
    assert "  left open, so taken as: specialized=1\n" in text


def test_compile_counts_registers(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("explain", "64x64x64", "tiled:tile_width=16", "--device", "h100", "--compile")
    data: Any = answer(capsys, *words)
    assert data["config"]["fit"]["source"] == "compiled"


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("nosuch", "unknown family 'nosuch'; give one of"),
        ("simt:foo=1", "simt has no parameter foo; it has bm, bn"),
        ("a b", "malformed configuration 'a b'; give family:name=value"),
    ],
)
def test_malformed_configuration_is_refused(
    capsys: pytest.CaptureFixture[str], config: str, message: str
) -> None:
    assert run("explain", "64x64x64", config, "--device", "t4") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 1


def test_rejected_configuration_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "explain", "64x64x64", "tiled:tile_width=99", "--device", "t4")
    assert "rejected: value: tile_width=99 is none of 4, 5" in text
