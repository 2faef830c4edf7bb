"""The picture of a record's leaders with their spreads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.report.analysis.trials import Leader
from autotune.report.figures.base import COLOURS, VENDOR, WINNER, Figure, axis, config_text, figure


def leader_figure(
    leaders: Sequence[Leader], vendor_us: float | None = None, vendor: str = "cuBLAS"
) -> Figure:
    """The times of the leaders with error bars of a spread to each side, fastest on top."""
    shown = leaders[::-1]
    ranks = [f"{len(leaders) - place}" for place in range(len(leaders))]
    points = {
        "type": "scatter",
        "mode": "markers",
        "name": "leaders",
        "showlegend": False,
        "x": [leader.time_us for leader in shown],
        "y": ranks,
        "error_x": {
            "type": "data",
            "array": [leader.spread_us for leader in shown],
            "color": COLOURS[5],
            "thickness": 1.5,
        },
        "text": [config_text(leader.config) for leader in shown],
        "customdata": [leader.spread_us for leader in shown],
        "marker": {
            "size": 10,
            "color": [WINNER if leader.differs == "the winner" else COLOURS[0] for leader in shown],
        },
        "hovertemplate": "%{x:.5g} ± %{customdata:.2g} µs<br>%{text}<extra></extra>",
    }
    lines = [] if vendor_us is None else [_vendor_line(vendor, vendor_us, ranks)]
    y = axis("rank") | {"type": "category"}
    return figure([points, *lines], axis("time in µs"), y)


def _vendor_line(name: str, time_us: float, ranks: Sequence[str]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [time_us, time_us],
        "y": [ranks[0], ranks[-1]],
        "line": {"color": VENDOR, "dash": "dash"},
        "hovertemplate": f"{name}: %{{x:.4g}} µs<extra></extra>",
    }
