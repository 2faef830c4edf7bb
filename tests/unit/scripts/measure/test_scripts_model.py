"""The script that times a model in 8 bits."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import model
import pytest


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
