"""The script that times a model in 8 bits, and quantising."""

from __future__ import annotations

from io import StringIO
from types import SimpleNamespace
from typing import Any

import model
import pytest
from rich.console import Console
from rich.table import Table


class Profiler:
    """A fake profile of two replays: a product, and an elementwise kernel beside its end."""

    def __enter__(self) -> Profiler:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def events(self) -> list[Any]:
        def event(name: str, start: float, end: float, device: str = "CUDA") -> Any:
            span = SimpleNamespace(start=start, end=end)
            return SimpleNamespace(name=name, device_type=device, time_range=span)

        kernels = ("quantize", 0, 6), ("wgmma", 4, 24), ("silu_elementwise_kernel", 20, 40)
        return [
            event("cudaGraphLaunch", 0, 900, "CPU"),
            *(event(name, 100 * n + a, 100 * n + b) for n in range(2) for name, a, b in kernels),
        ]


def test_linear_layers_are_what_is_not_elementwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "RUNS", 2)
    profiler = SimpleNamespace(
        profile=lambda **_: Profiler(), ProfilerActivity=SimpleNamespace(CUDA=1)
    )
    torch = SimpleNamespace(
        profiler=profiler,
        cuda=SimpleNamespace(synchronize=lambda: None),
        autograd=SimpleNamespace(DeviceType=SimpleNamespace(CUDA="CUDA")),
    )
    assert model.linear(torch, lambda: None) == 24.0


@pytest.mark.parametrize(
    ("spans", "covered"),
    [([], 0), ([(0, 2), (5, 6)], 3), ([(5, 9), (0, 6)], 9), ([(0, 9), (2, 3), (4, 10)], 10)],
)
def test_overlapping_spans_count_once(spans: list[tuple[float, float]], covered: float) -> None:
    assert model.union(spans) == covered


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
    times = model.timed(torch, {"few": [clock.run] * 3, "many": [clock.run] * 20}, 3)
    assert times == {"few": 2000.0, "many": 2000.0}
    assert model.captured(torch, [clock.run] * 3)[1] == 9


def test_table_shows_the_share_of_the_copy_bandwidth() -> None:
    row = {"shape": [4096, 4096], "source": "bf16", "target": "e4m3", "scale": "row"}
    figures = {"us": 12.34, "gb_s": 3600.0, "copy_gb_s": 4000.0, "share": 0.9}
    (line,) = (
        line
        for line in printed(model.bandwidth_table([{**row, **figures}])).splitlines()
        if "4096x4096" in line
    )
    assert [word for word in line.split() if word not in "│┃"] == [
        *("4096x4096", "bf16", "e4m3", "row", "12.3", "3600", "4000", "90.0%")
    ]


@pytest.mark.parametrize(("quantised", "cost"), [(11.0, "10.0%"), (20.0, "100.0%")])
def test_table_shows_what_quantising_adds(quantised: float, cost: str) -> None:
    times = {"product": 10.0, "quantised": quantised, "separate": 12.0, "torch": 30.0}
    text = printed(model.product_table([{"problem": "16x4096x14336:f8:nt", "us": times}]))
    assert cost in text
