"""Tables of all verbs: no number is cut, on a narrow terminal or in a pipe."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from support.command_line import printed, run
from support.sample_recording import DEVICE, PROBLEM
from support.sample_records import H100, entry, record
from support.sample_subject import user_kernel

from autotune.problem import Problem
from autotune.records import Store

SHAPE = PROBLEM.shape
LONG = Problem(4096, 40960, 4096, "bf16", "nt", epilogue="bias_gelu")
HERE = ("--device", DEVICE)

VERBS: dict[str, tuple[str, ...]] = {
    "tune": ("tune", SHAPE, *HERE, "--trials", "12", "--quiet", "--explain"),
    "tune of shapes": ("tune", SHAPE, "64x64x64", *HERE, "--trials", "2", "--quiet"),
    "best": ("best", SHAPE, *HERE),
    "best of another": ("best", str(LONG), "--device", "h100"),
    "trials": ("best", SHAPE, *HERE, "--trials"),
    "ladder": ("ladder", "256", "--device", "h100"),
    "ladder why": ("ladder", "--why", "7"),
    "why": ("best", SHAPE, *HERE, "--why"),
    "rules": ("best", SHAPE, *HERE, "--rules"),
    "device": ("device", "h100"),
    "device list": ("device", "--list"),
    "SM": ("device", "sm_90"),
    "doctor": ("doctor",),
    "occupancy of tiles": ("occupancy", "h100", "--tile-width", "8,16,32"),
    "occupancy": ("occupancy", "h100", "--threads", "64..1024", "--registers", "40"),
    "occupancy of two": (
        "occupancy",
        "h100",
        "rtx 3090",
        "--threads",
        "64..512",
        "--registers",
        "40",
    ),
    "cache list": ("cache", "list"),
    "cache list of problems": ("cache", "list", "--problems"),
    "cache verify": ("cache", "verify"),
    "cache fingerprint": ("cache", "list", "--fingerprint", *HERE),
}


@pytest.fixture(autouse=True)
def _filled(cache: Path) -> None:
    """A cache with long problems, large numbers and stale records."""
    store = Store(cache)
    for number, problem in enumerate((LONG, PROBLEM)):
        entries = [entry(width, 10050.0 + width + number, 1.25) for width in (8, 16, 32)]
        store.save(record(*entries, problem=problem, device=H100, baseline_us=10123.0))
    store.save(user_kernel())


def words(text: str) -> set[str]:
    """The numbers and shapes, without the styles of a terminal, and without short ones: ages."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    numbers = re.findall(r"(?<!\S)(?:[-+(]?[\d,.]+[%);]?|\d+x\d+x\S+)(?!\S)", plain)
    return {word for word in numbers if len(word) > 4}


def settled(verb: str, capsys: pytest.CaptureFixture[str]) -> tuple[str, ...]:
    """The command, after what it needs to print the same twice."""
    if verb == "trials":
        run("tune", SHAPE, *HERE, "--trials", "12", "--quiet")
    if verb.startswith("tune"):
        run(*VERBS[verb])
    capsys.readouterr()
    return VERBS[verb]


@pytest.mark.parametrize("verb", VERBS)
def test_numbers_are_whole_on_every_terminal(
    verb: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = settled(verb, capsys)
    run(*command)
    piped = capsys.readouterr().out
    whole = words(piped)
    assert piped
    assert "…" not in piped
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    for width in (40, 60, 80):
        monkeypatch.setenv("COLUMNS", str(width))
        run(*command)
        shown = capsys.readouterr().out
        assert words(shown) - whole == set(), f"cut at {width} columns"
        assert "…" not in shown


def test_pipe_has_a_line_for_each_row(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    lines = printed(capsys, "cache", "list", "--problems").splitlines()
    (long,) = [line for line in lines if str(LONG) in line]
    assert "10,0" in long
    assert "kernel sources" in long
    (config,) = [
        line for line in printed(capsys, *VERBS["best"]).splitlines() if line.startswith("config")
    ]
    assert config.endswith("order=rows")


def test_narrow_terminal_keeps_the_first_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "40")
    heading = printed(capsys, "device", "--list").splitlines()[1]
    plain = re.sub(r"\x1b\[[\d;]*m", "", heading).split()
    assert plain[:2] == ["key", "sm"]
    assert "TFLOP/s" not in plain
