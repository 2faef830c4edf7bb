"""The picture of a search: every trial, the best so far, the vendor's line and the failures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.report.analysis.search import SearchStep
from autotune.report.figures.base import (
    COLOURS,
    VENDOR,
    WINNER,
    Figure,
    axis,
    config_text,
    figure,
    text,
)


def search_figure(
    steps: Sequence[SearchStep], vendor_us: float | None = None, vendor: str = "cuBLAS"
) -> Figure:
    """The trials by their number: times by family, the best so far, failures by stage at the top,
    and the vendor's time as a line."""
    times = [step.time_us for step in steps if step.time_us is not None]
    families = list(dict.fromkeys(step.family for step in steps))
    data = [
        _trials(family, [step for step in steps if step.family == family], COLOURS[number % 6])
        for number, family in enumerate(families)
    ]
    data.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": "best so far",
            "x": [step.number for step in steps if step.best_us is not None],
            "y": [step.best_us for step in steps if step.best_us is not None],
            "line": {"color": WINNER, "width": 2, "shape": "hv"},
            "hoverinfo": "skip",
        }
    )
    if vendor_us is not None:
        data.append(_line(vendor, vendor_us, len(steps)))
    data += _failures(steps, max(times, default=1.0) * 1.1)
    return figure(data, axis("trial"), axis("time in µs", log=True))


def _trials(family: str, steps: Sequence[SearchStep], colour: str) -> dict[str, Any]:
    timed = [step for step in steps if step.time_us is not None]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": text(family),
        "x": [step.number for step in timed],
        "y": [step.time_us for step in timed],
        "text": [config_text(step.config) for step in timed],
        "marker": {"color": colour, "size": 6, "opacity": 0.75},
        "hovertemplate": "trial %{x}: %{y:.4g} µs<br>%{text}<extra></extra>",
    }


def _line(name: str, value: float, count: int) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": text(name),
        "x": [1, max(2, count)],
        "y": [value, value],
        "line": {"color": VENDOR, "dash": "dash"},
        "hovertemplate": f"{text(name)}: %{{y:.4g}} µs<extra></extra>",
    }


def _failures(steps: Sequence[SearchStep], height: float) -> list[dict[str, Any]]:
    failed = [step for step in steps if step.stage is not None]
    stages = dict.fromkeys(step.stage for step in failed)
    return [
        {
            "type": "scatter",
            "mode": "markers",
            "name": text(f"failed: {stage}"),
            "x": [step.number for step in failed if step.stage == stage],
            "y": [height for step in failed if step.stage == stage],
            "text": [config_text(step.config) for step in failed if step.stage == stage],
            "marker": {
                "symbol": "x",
                "size": 7,
                "color": COLOURS[(number + 3) % 6],
            },
            "hovertemplate": f"trial %{{x}}: {text(stage)}<br>%{{text}}<extra></extra>",
        }
        for number, stage in enumerate(stages)
    ]
