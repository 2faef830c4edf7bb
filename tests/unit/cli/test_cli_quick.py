"""`autotune tune --effort quick`: a race of a few configurations."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from support.command_line import answer, own_machine, printed, run
from support.sample_recording import DEVICE, PROBLEM

from autotune.api.shapes import Shapes


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    return own_machine(monkeypatch, tmp_path)


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
