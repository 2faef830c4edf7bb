"""The script that times quantising."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
import quantizing
from rich.console import Console
from rich.table import Table


class Clock:
    """A fake `torch.cuda`, in whose graphs a run takes 2 ms."""

    def __init__(self) -> None:
        self.captured: list[int] = []
        self.runs = 0
        self.now = 0.0
        self.CUDAGraph = lambda: SimpleNamespace(runs=0, replay=lambda: None)

    def synchronize(self) -> None:
        self.runs = 0

    def graph(self, graph: Any) -> Any:
        clock = self

        class Capture:
            def __enter__(self) -> None:
                clock.runs = 0

            def __exit__(self, *_: object) -> None:
                count = clock.runs
                graph.replay = lambda: setattr(clock, "now", clock.now + 2.0 * count)

        return Capture()

    def Event(self, enable_timing: bool) -> Any:
        assert enable_timing
        event = SimpleNamespace(at=0.0, synchronize=lambda: None)
        event.record = lambda: setattr(event, "at", self.now)
        event.elapsed_time = lambda end: end.at - event.at
        return event

    def run(self) -> None:
        self.runs += 1


def printed(table: Table) -> str:
    text = StringIO()
    Console(file=text, width=120).print(table)
    return text.getvalue()


def test_graphs_repeat_few_runs_and_count_them() -> None:
    clock = Clock()
    torch = SimpleNamespace(cuda=clock)
    times = quantizing.timed(torch, {"few": [clock.run] * 3, "many": [clock.run] * 20}, 3)
    assert times == {"few": 2000.0, "many": 2000.0}
    assert quantizing.captured(torch, [clock.run] * 3)[1] == 9


def test_table_shows_the_share_of_the_copy_bandwidth() -> None:
    row = {"shape": [4096, 4096], "source": "bf16", "target": "e4m3", "scale": "row"}
    figures = {"us": 12.34, "gb_s": 3600.0, "copy_gb_s": 4000.0, "share": 0.9}
    (line,) = (
        line
        for line in printed(quantizing.bandwidth_table([{**row, **figures}])).splitlines()
        if "4096x4096" in line
    )
    assert [word for word in line.split() if word not in "│┃"] == [
        *("4096x4096", "bf16", "e4m3", "row", "12.3", "3600", "4000", "90.0%")
    ]


@pytest.mark.parametrize(("quantised", "cost"), [(11.0, "10.0%"), (20.0, "100.0%")])
def test_table_shows_what_quantising_adds(quantised: float, cost: str) -> None:
    times = {"product": 10.0, "quantised": quantised, "separate": 12.0, "torch": 30.0}
    text = printed(quantizing.product_table([{"problem": "16x4096x14336:f8:nt", "us": times}]))
    assert cost in text
