"""The pictures of occupancy: three curves, and a map of registers by shared memory."""

from __future__ import annotations

import math
from typing import Any

from autotune.occupancy import STAIRS
from autotune.report.analysis.residency import KIB, OccupancyCurve, Residency
from autotune.report.figures.base import (
    COLOURS,
    SCALE,
    WINNER,
    Figure,
    axis,
    colour_bar,
    config_text,
    figure,
    text,
)

TITLES = {
    "threads": "threads a block",
    "registers": "registers a thread",
    "shared": "shared memory a block in KiB",
}


def curve_figure(curve: OccupancyCurve) -> Figure:
    """The occupancy over one resource, with the winner's mark."""
    unit = KIB if curve.resource == "shared" else 1
    index = curve.values.index(curve.winner)
    labels = [
        f"{blocks} blocks an SM, limited by {text(limiter)}"
        for blocks, limiter in zip(curve.blocks, curve.limiters, strict=True)
    ]
    line = {
        "type": "scatter",
        "mode": "lines",
        "name": "occupancy",
        "showlegend": False,
        "x": [value / unit for value in curve.values],
        "y": list(curve.occupancy),
        "text": labels,
        "line": {"color": COLOURS[0], "shape": STAIRS},
        "hovertemplate": "%{x}: %{y:.1%}, %{text}<extra></extra>",
    }
    mark = {
        "type": "scatter",
        "mode": "markers",
        "name": "winner",
        "showlegend": False,
        "x": [curve.winner / unit],
        "y": [curve.occupancy[index]],
        "text": [labels[index]],
        "marker": {"symbol": "star", "size": 14, "color": WINNER},
        "hovertemplate": "winner, %{x}: %{y:.1%}, %{text}<extra></extra>",
    }
    y = axis("occupancy") | {"tickformat": ".0%", "rangemode": "tozero"}
    return figure([line, mark], axis(TITLES[curve.resource]), y)


def map_figure(residency: Residency) -> Figure:
    """The occupancy with the winner's threads by registers and shared memory, with the trials.

    Trials with other numbers of threads are drawn hollow: their occupancy is not the map's.
    """
    threads = residency.resources.threads
    heat = {
        "type": "heatmap",
        # The sides of the cells: a cell has the occupancy of its upper right corner.
        "x": [0, *residency.registers],
        "y": [0, *(size / KIB for size in residency.shared)],
        "text": [
            [f"up to {count} registers, {size // KIB} KiB" for count in residency.registers]
            for size in residency.shared
        ],
        "z": [list(row) for row in residency.shares],
        "colorscale": SCALE,
        "zmin": 0,
        "zmax": 1,
        "colorbar": colour_bar("occupancy", ".0%"),
        "hovertemplate": "%{text}: %{z:.1%}<extra></extra>",
    }
    data = [
        heat,
        _points(residency, f"trials with {threads} threads", same=True),
        _points(residency, "trials with other numbers of threads", same=False),
        {
            "type": "scatter",
            "mode": "markers",
            "name": "winner",
            "x": [residency.resources.registers],
            "y": [residency.resources.shared / KIB],
            "marker": {
                "symbol": "star",
                "size": 16,
                "color": WINNER,
                "line": {"width": 1, "color": "#ffffff"},
            },
            "hovertemplate": "winner: %{x} registers, %{y} KiB<extra></extra>",
        },
    ]
    return figure(data, axis(TITLES["registers"]), axis(TITLES["shared"]))


def _points(residency: Residency, name: str, *, same: bool) -> dict[str, Any]:
    threads = residency.resources.threads
    points = [
        point
        for point in residency.points
        if (point.threads == threads) == same and math.isfinite(point.time_us)
    ]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [point.registers for point in points],
        "y": [point.shared / KIB for point in points],
        "text": [config_text(point.config) for point in points],
        "customdata": [[point.time_us, point.threads] for point in points],
        "marker": {
            "size": 7,
            "color": "#ffffff" if same else "rgba(0,0,0,0)",
            "line": {"width": 1.5, "color": "#101418" if same else "#ff9e4a"},
        },
        "hovertemplate": "%{customdata[0]:.4g} µs, %{customdata[1]} threads, %{x} registers, "
        "%{y} KiB<br>%{text}<extra></extra>",
    }
