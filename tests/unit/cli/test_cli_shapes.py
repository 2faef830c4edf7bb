"""`autotune tune` with several shapes, or those of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.command_line import answer, own_machine, printed, run
from support.sample_recording import DEVICE, PROBLEM

from autotune.api import many, tuning
from autotune.api.shapes import Shapes
from autotune.errors import AutotuneError
from autotune.problem import Problem
from autotune.report.listing import ShapesReport
from autotune.tuning.options import Search

QUICK = ("--device", DEVICE, "--trials", "2", "--budget", "30")


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return own_machine(monkeypatch, tmp_path)


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The shapes and options of `tune_shapes`, which searches nothing."""
    calls: list[Any] = []

    def tune_shapes(shapes: Shapes, options: Search, *place: Any, **_: Any) -> ShapesReport:
        calls.append((dict(shapes), options, place))
        return ShapesReport()

    monkeypatch.setattr(many, "tune_shapes", tune_shapes)
    return calls


def test_shapes_share_the_budget(searched: list[Any]) -> None:
    arguments = ("tune", "64x64x64:bf16", "128x64x64:f16", "64x64x64:bf16", "--budget", "10m")
    assert run(*arguments, "--device", "h100") == 0
    ((shapes, options, place),) = searched
    small, other = Problem(64, 64, 64, "bf16"), Problem(128, 64, 64, "f16")
    assert shapes == {small: 2, other: 1}
    assert (options.seconds, place) == (600.0, ("h100", None, "auto"))


def test_file_of_shapes_joins_the_others(searched: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "shapes.json"
    Shapes({Problem(64, 64, 64): 5}).save(path)
    assert run("tune", str(path)) == 0
    assert run("tune", "64x64x64", str(path)) == 0
    assert [shapes for shapes, *_ in searched] == [{Problem(64, 64, 64): n} for n in (5, 6)]
    assert [options.seconds for _, options, _ in searched] == [None, None]


def test_file_of_shapes_stands_among_the_shapes(searched: list[Any], tmp_path: Path) -> None:
    path = tmp_path / "model"
    Shapes({Problem(64, 64, 64): 5}).save(path)
    assert run("tune", "64x64x64", str(path), "128x64x64") == 0
    ((shapes, *_),) = searched
    assert shapes == {Problem(64, 64, 64): 6, Problem(128, 64, 64): 1}


@pytest.mark.parametrize(
    ("device", "devices"), [("gpu:0,1", "0,1"), ("gpu:all", "all"), ("GPU:0,2,3", "0,2,3")]
)
def test_several_gpus_are_a_device(searched: list[Any], device: str, devices: str) -> None:
    assert run("tune", "64x64x64", "64x64x72", "--device", device) == 0
    assert [place for *_, place in searched] == [("gpu", devices, "auto")]


def test_table_has_a_row_for_each_shape(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "shapes.json"
    Shapes({PROBLEM: 32}).save(path)
    text = printed(capsys, "tune", str(path), *QUICK)
    assert f"{PROBLEM}" in text
    assert "1 shapes, 32 runs" in text
    data: Any = answer(capsys, "tune", str(path), *QUICK)
    assert [(row["shape"], row["count"]) for row in data["shapes"]] == [(str(PROBLEM), 32)]


def test_failed_search_is_status_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(*_: Any, **__: Any) -> None:
        raise AutotuneError("no configuration works")

    monkeypatch.setattr(tuning, "search_at", search)
    assert run("tune", "64x64x64", "128x64x64", "--device", "h100") == 1
    assert "no configuration works" in capsys.readouterr().out


def test_interrupt_says_what_is_kept(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def search(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tuning, "search_at", search)
    assert run("tune", "64x64x64", "128x64x64", "--device", "h100") == 130
    assert "what was measured is kept; run again to go on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "no shape to tune; give one, such as 4096x4096x4096, or a file of shapes"),
        (("64x64x64", "1..64x64x64"), "1..64x64x64 is a range, which is tuned alone"),
        (
            ("64x64x64", "64x64x72", "--explain"),
            "a list of shapes takes no --explain",
        ),
        (("absent.json",), "absent.json: cannot be read: No such file"),
    ],
)
def test_impossible_lists_are_usage_errors(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], message: str
) -> None:
    assert run("tune", *arguments, "--device", "h100") == 2
    assert message in capsys.readouterr().err


def test_budget_that_tunes_nothing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tune", "64x64x64", "64x64x72", "--budget", "1", "--device", "h100") == 1
    assert capsys.readouterr().err.splitlines()[-1] == (
        "error: budget is 1 s, which was over before a shape was tuned; give 40 s or more"
    )
