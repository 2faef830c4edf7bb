"""Completion in shells: recorded problems, devices and samplers, no file names."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.command_line import printed
from support.sample_records import SQUARE, record
from support.sample_subject import user_kernel

from autotune.records import Store


@pytest.fixture(autouse=True)
def _recorded(cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cache with a problem and a user kernel."""
    Store(cache).save(record())
    Store(cache).save(user_kernel())
    monkeypatch.chdir(tmp_path)
    (tmp_path / "512x512x512.txt").touch()


def completions(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, line: str
) -> list[str]:
    """What fish is told to put in the place of the last word of a line."""
    *_, word = line.split(" ")
    monkeypatch.setenv("_AUTOTUNE_COMPLETE", "fish_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", word)
    return [word.removeprefix("plain,") for word in printed(capsys).split()]


@pytest.mark.parametrize(
    ("line", "some"),
    [
        ("autotune be", ["best"]),
        ("autotune cache ex", ["export"]),
        ("autotune best --obj", ["--objective"]),
        ("autotune best --objective c", ["cold"]),
        ("autotune best --device replay:s", ["replay:synthetic"]),
        ("autotune tune --device=h10", ["h100-sxm", "h100-pcie"]),
        ("autotune tune --sampler ", ["gp", "tpe", "random", "exhaustive"]),
        ("autotune tune --effort ", ["quick", "default", "long", "exhaustive"]),
        ("autotune tune --family w", ["wgmma"]),
        ("autotune device rtx-30", ["rtx-3090"]),
        ("autotune best 40", [str(SQUARE)]),
        ("autotune best sax", ["saxpy"]),
        ("autotune help sh", ["shapes"]),
        ("autotune cache prune j", ["journals"]),
    ],
)
def test_words_are_completed(
    line: str,
    some: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert set(some) - set(completions(capsys, monkeypatch, line)) == set()


@pytest.mark.parametrize("line", ["autotune best 51", "autotune tune --sampler 4"])
def test_nothing_else_is_completed(
    line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completions(capsys, monkeypatch, line) == []


def test_files_are_completed_where_a_file_is_meant(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completions(capsys, monkeypatch, "autotune report --out ") == ["file,"]


def test_broken_cache_completes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AUTOTUNE_CACHE_DIR", __file__)
    assert completions(capsys, monkeypatch, "autotune best 1") == []
