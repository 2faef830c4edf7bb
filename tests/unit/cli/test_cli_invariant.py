"""`autotune tune --batch-invariant`: which ranges it takes, and what it passes on."""

from __future__ import annotations

from typing import Any

import pytest
from support.command_line import run

from autotune.api import invariant
from autotune.device import find
from autotune.problem import Problem
from autotune.records.ranges import Range, Segment


@pytest.mark.parametrize("shape", ["64x64x64", "64x1..64x64"])
def test_only_ranges_of_m_are_taken(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("tune", shape, "--batch-invariant", "--device", "h100") == 2
    assert "1..8192x4096x4096" in capsys.readouterr().err


def test_range_is_tuned_in_one_order(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    top = Problem(64, 256, 256, "bf16", "nt")
    tuned = Range(find("h100"), top, "m", (Segment(1, 64, 64),), 0.0, order="mma bf16 swap=0 256")

    def tune(*arguments: Any, **options: Any) -> Range:
        assert arguments[0].problem == top
        assert "batch_invariant" not in options
        return tuned

    monkeypatch.setattr(invariant, "tune", tune)
    shape = "1..64x256x256:bf16:nt"
    assert run("tune", shape, "--batch-invariant", "--device", "h100", "--quiet") == 0
    assert "in one order of summation: mma bf16 swap=0 256" in capsys.readouterr().out
