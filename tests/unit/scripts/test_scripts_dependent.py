"""The script that times chains of dependent launches."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace

import dependent_launch
import pytest
from rich.console import Console

from autotune.problem import Problem

TORCH = SimpleNamespace(float32="float32", float16="float16", bfloat16="bfloat16")


def test_table_shows_what_dependent_launches_save() -> None:
    times = {"plain": 3.0, "dependent": 2.25, "torch.mm": 3.5}
    slow = {name: 2 * value for name, value in times.items()}
    text = StringIO()
    row = {"problem": "512x512x512:bf16:nn", "graph_us": times, "stream_us": slow}
    Console(file=text, width=120).print(dependent_launch.table([row]))
    figures = ["3.00", "2.25", "0.75", "3.50", "6.00", "4.50", "1.50", "7.00"]
    (line,) = (line for line in text.getvalue().splitlines() if "512x512x512" in line)
    assert [word for word in line.split() if word.replace(".", "").isdigit()] == figures


@pytest.mark.parametrize("text", ["512x256x512", "512x512x512:f16:nt", "64x64x64:batch=2"])
def test_problem_that_cannot_be_chained_is_refused(text: str) -> None:
    with pytest.raises(SystemExit, match="a chain needs N = K"):
        dependent_launch._operands(TORCH, Problem.parse(text))
