"""The picture of a roofline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.report.analysis.roofline import Roofline, RooflinePoint
from autotune.report.figures.base import (
    BOUND,
    COLOURS,
    SCALE,
    VENDOR,
    WINNER,
    Figure,
    axis,
    colour_bar,
    config_text,
    figure,
    text,
)

TERA = 1e12


def roofline_figure(roofline: Roofline) -> Figure:
    """The roofs of device memory and L2, the textbook's kernels, the trials by occupancy, and the
    winner; TFLOP/s over FLOP per byte that the blocks load."""
    roofs, points = roofline.roofs, [*roofline.trials, *roofline.textbook]
    points += [roofline.winner] if roofline.winner else []
    values = [point.flop_per_byte for point in points] + [roofline.once]
    low, high = min(values) / 1.6, max(*values, roofs.peak / roofs.dram) * 1.6
    data = [
        _roof("device memory", roofs.dram, roofs.peak, low, high, COLOURS[0]),
        _roof("L2 (fitted)", roofs.l2, roofs.peak, low, high, COLOURS[2]),
        _textbook(roofline.textbook),
        _trials(roofline.trials),
        {
            "type": "scatter",
            "mode": "lines",
            "name": "each matrix moved once",
            "x": [roofline.once, roofline.once],
            "y": [
                min(point.flops for point in points) / TERA,
                min(roofs.peak, roofs.dram * roofline.once) / TERA,
            ],
            "line": {"color": VENDOR, "dash": "dot"},
            "hovertemplate": "each matrix moved once: %{x:.4g} FLOP/B<extra></extra>",
        },
    ]
    if roofline.winner is not None:
        data.append(_winner(roofline.winner))
    decades = {"dtick": 1, "minor": {"ticks": "outside", "ticklen": 3}}
    x, y = (
        axis(title, log=True) | decades for title in ("FLOP per byte that blocks load", "TFLOP/s")
    )
    return figure(data, x, y)


def _roof(
    name: str, bandwidth: float, peak: float, low: float, high: float, colour: str
) -> dict[str, Any]:
    ridge = peak / bandwidth
    xs = [low, ridge, high] if low < ridge < high else [low, high]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": xs,
        "y": [min(peak, bandwidth * value) / TERA for value in xs],
        "line": {"color": colour, "width": 2},
        "hovertemplate": f"{name}, {bandwidth / TERA:.3g} TB/s: %{{y:.4g}} TFLOP/s<extra></extra>",
    }


def _textbook(points: Sequence[RooflinePoint]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers+text",
        "name": "textbook kernels' bounds",
        "x": [point.flop_per_byte for point in points],
        "y": [point.flops / TERA for point in points],
        "text": [text(point.name.removeprefix("TILE_WIDTH ")) for point in points],
        "customdata": [text(point.name) for point in points],
        "textposition": "bottom right",
        "marker": {"symbol": "diamond-open", "size": 9, "color": BOUND},
        "hovertemplate": "%{customdata}: at most %{y:.4g} TFLOP/s at %{x:.3g} FLOP/B"
        "<extra></extra>",
    }


def _trials(points: Sequence[RooflinePoint]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "trials",
        "x": [point.flop_per_byte for point in points],
        "y": [point.flops / TERA for point in points],
        "text": [config_text(point.name) for point in points],
        "marker": {
            "size": 6,
            "opacity": 0.8,
            "color": [None if point.occupancy is None else point.occupancy for point in points],
            "colorscale": SCALE,
            "cmin": 0,
            "cmax": max((point.occupancy or 0 for point in points), default=1) or 1,
            "line": {"width": 0.5, "color": COLOURS[5]},
            "showscale": True,
            "colorbar": colour_bar("occupancy", ".0%"),
        },
        "hovertemplate": "%{y:.4g} TFLOP/s at %{x:.4g} FLOP/B, occupancy %{marker.color:.0%}"
        "<br>%{text}<extra></extra>",
    }


def _winner(point: RooflinePoint) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "winner",
        "x": [point.flop_per_byte],
        "y": [point.flops / TERA],
        "text": [config_text(point.name)],
        "marker": {"symbol": "star", "size": 15, "color": WINNER, "line": {"width": 1}},
        "hovertemplate": "winner: %{y:.4g} TFLOP/s at %{x:.4g} FLOP/B<br>%{text}<extra></extra>",
    }
