"""`autotune tune` with several shapes, or those of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from support.command_line import answer, printed, run
from support.sample_recording import DEVICE, PROBLEM

from autotune.api import ranges, shapes, tuning
from autotune.api.shapes import Shapes
from autotune.device import find
from autotune.errors import AutotuneError
from autotune.problem import Problem
from autotune.records.ranges import Range, Segment
from autotune.report.listing import ShapesReport
from autotune.tuning.options import Search

QUICK = ("--device", DEVICE, "--trials", "2", "--budget", "30")


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The shapes and options of `tune_shapes`, which searches nothing."""
    calls: list[Any] = []

    def tune_shapes(shapes: Shapes, options: Search, *place: Any, **_: Any) -> ShapesReport:
        calls.append((dict(shapes), options, place))
        return ShapesReport()

    monkeypatch.setattr(shapes, "tune_shapes", tune_shapes)
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
    assert "the measurements are kept; run again to continue" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
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


@pytest.mark.parametrize("shape", ["64x64x64", "64x1..64x64"])
def test_only_ranges_of_m_are_taken(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tune", shape, "--batch-invariant", "--device", "h100") == 2
    assert "1..8192x4096x4096" in capsys.readouterr().err


def test_range_is_tuned_in_one_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    top = Problem(64, 256, 256, "bf16", "nt")
    tuned = Range(find("h100"), top, "m", (Segment(1, 64, 64),), order="mma bf16 swap=0 256")

    def tune(*arguments: Any, **options: Any) -> Range:
        assert arguments[0].problem == top
        assert options["batch_invariant"]
        return tuned

    monkeypatch.setattr(ranges, "tune", tune)
    shape = "1..64x256x256:bf16:nt"
    assert run("tune", shape, "--batch-invariant", "--device", "h100", "--quiet") == 0
    assert "in one order of summation: mma bf16 swap=0 256" in capsys.readouterr().out


def test_quick_record_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert "quick race, 14 trials" in printed(
        capsys, "tune", str(PROBLEM), "--effort", "quick", "--device", DEVICE
    )
    assert run("best", str(PROBLEM), "--device", DEVICE) == 0
    assert "autotune tune 256x256x256:f32:nn" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ("64x64x64", "--trials", "3"),
        ("64x64x64", "--family", "simt"),
        ("64x64x64", "128x64x64", "--seed", "1"),
    ],
)
def test_race_takes_shapes_and_no_limits(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("tune", *arguments, "--effort", "quick", "--device", DEVICE) == 2
    assert "quick takes" in capsys.readouterr().err


def test_shapes_of_a_file_are_raced_once(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    Shapes({PROBLEM: 32}).save(tmp_path / "shapes.json")
    arguments = ("tune", str(tmp_path / "shapes.json"), "--effort", "quick", "--device", DEVICE)
    first, again = (_only_shape(answer(capsys, *arguments)) for _ in range(2))
    assert (first["how"], first["why"]) == ("exact", None)
    assert (again["config"], again["why"]) == (first["config"], "tuned before")
    assert first["searched_s"] > 0 == again["searched_s"]
    assert "quick race" in printed(capsys, "best", str(PROBLEM), "--device", DEVICE)


def _only_shape(shown: dict[str, Any]) -> dict[str, Any]:
    (shape,) = shown["shapes"]
    return cast("dict[str, Any]", shape)
