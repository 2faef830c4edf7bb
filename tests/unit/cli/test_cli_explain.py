"""`autotune best --why`: the winner, other configurations, and what it refuses."""

from __future__ import annotations

import sys
from typing import Any

import pytest
from support.command_line import answer, printed, run
from support.sample_recording import DEVICE, PROBLEM

SHAPE = PROBLEM.shape


def test_winner_of_a_record_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    run("tune", SHAPE, "--device", DEVICE, "--sampler", "exhaustive", "--quiet")
    capsys.readouterr()
    text = printed(capsys, "best", "--why", SHAPE, "--device", DEVICE)
    assert text.startswith(f"{PROBLEM} on NVIDIA H100 80GB HBM3\nwinner, replayed: ")
    assert "of the roofline" in text
    assert "cuBLAS takes" in text
    data: Any = answer(capsys, "best", "--why", SHAPE, "--device", DEVICE)
    assert (data["evidence"], data["config"]) == ("replayed", None)
    assert data["winner"]["measured_us"] == data["time_us"]


def test_untuned_problem_is_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "best", "--why", "64x64x64", "--device", "t4")
    assert "64x64x64:f32:nn is not tuned on Tesla T4" in " ".join(text.split())


def test_other_configuration_is_compared(capsys: pytest.CaptureFixture[str]) -> None:
    data: Any = answer(capsys, "best", "--why", "64x64x64", "tiled:tile_width=16", "--device", "t4")
    assert data["config"]["config"] == "tiled:tile_width=16,specialized=1"
    assert "differs in the family: tiled, not simt" in data["compared"]
    assert data["config"]["fit"]["source"] == "estimated"
    assert data["config"]["fit"]["predicted_us"] >= data["least_us"]


def test_open_parameters_are_stated(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "best", "--why", "64x64x64", "tiled:tile_width=16", "--device", "t4")
    assert "  left open, so taken as: specialized=1\n" in text


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
    assert run("best", "--why", "64x64x64", config, "--device", "t4") == 2
    error = capsys.readouterr().err
    assert error.startswith(f"error: {message}")
    assert error.count("\n") == 1


def test_rejected_configuration_is_no_failure(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, "best", "--why", "64x64x64", "tiled:tile_width=99", "--device", "t4")
    assert "rejected: value: tile_width=99 is none of 4, 5" in text


def test_result_stands_first_and_rules_only_if_asked(capsys: pytest.CaptureFixture[str]) -> None:
    asked = "best", "64x64x64", "--why", "tiled:tile_width=16", "--device", "t4"
    text = printed(capsys, *asked)
    assert text.index("asked about: tiled:") < text.index("the cost model predicts")
    assert text.index("the cost model predicts") < text.index("winner, predicted: ")
    assert "finding" not in text
    assert "finding" in printed(capsys, *asked, "--rules")
    alone = "best", "64x64x64", "--device", "t4"
    assert "finding" not in printed(capsys, *alone, "--why")
    assert "finding" in printed(capsys, *alone, "--rules")


def test_printed_configuration_is_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    here = "64x64x64", "--device", "t4"
    (line,) = [row for row in printed(capsys, "best", *here).splitlines() if row[:6] == "config"]
    text = printed(capsys, "best", *here, "--why", line.split()[1])
    assert "  it is the winner\n" in text


def test_wrapped_configuration_is_accepted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("LINES", "25")  # rich takes 80 columns for a dumb terminal without both
    here = "64x64x64", "--device", "t4"
    shown = printed(capsys, "best", *here)
    assert max(map(len, shown.splitlines()[2:6])) <= 40
    wrapped = shown.partition("\nconfig")[2].partition("\nexpected loss")[0]
    assert wrapped.strip().count("\n") > 3
    data: Any = answer(capsys, "best", *here, "--why", wrapped.strip())
    assert data["compared"][0].startswith("the cost model predicts")
    assert "it is the winner" in data["compared"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--why", "--trials"), "give --why or --trials, not both"),
        (("--why", "--exact"), "--why takes no --exact; leave it out"),
        (("--why", "--family", "simt"), "--why takes no --family; leave it out"),
        (("--trials", "--batch-invariant"), "--trials takes no --batch-invariant; leave it out"),
    ],
)
def test_options_that_exclude_each_other(
    options: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("best", "64x64x64", "--device", "t4", *options) == 2
    assert capsys.readouterr().err == f"error: {message}\n"
