"""The pictures of what parameters cost: one by one, and two at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.report.analysis.parameters import HeatMap, ParameterCost
from autotune.report.figures.base import (
    COLOURS,
    SCALE,
    Figure,
    axis,
    colour_bar,
    figure,
    text,
    texts,
)

LETTER = 0.02
"""Share of the width that a letter of a label takes in a narrow picture."""

SHOWN = 14
"""Parameters that the picture has room for; the others matter less."""


def cost_figure(costs: Sequence[ParameterCost]) -> Figure:
    """The loss with each value of each parameter, the parameter with the largest range on top."""
    shown = costs[:SHOWN][::-1]
    points = [(cost, value) for cost in shown for value in cost.values]
    letter = LETTER * max((cost.range for cost in costs), default=0.0)
    values = {
        "type": "scatter",
        "mode": "markers+text",
        "showlegend": False,
        "x": [100 * value.loss for _, value in points],
        "y": [text(cost.name) for cost, _ in points],
        "text": [label for cost in shown for label in _labels(cost, letter)],
        "textposition": "top right",
        "cliponaxis": False,
        "textfont": {"size": 10},
        "customdata": [
            [text(f"{cost.name}={value.value}"), value.best_us, value.trials]
            for cost, value in points
        ],
        "marker": {"size": 8, "color": COLOURS[0]},
        "hovertemplate": "%{customdata[0]}: best %{customdata[1]:.4g} µs, %{x:.1f}% slower"
        "<br>%{customdata[2]} trials<extra></extra>",
    }
    result = figure(
        [_ranges(shown), values],
        axis("slower than the best, in %"),
        {"type": "category", "categoryorder": "array", "categoryarray": texts(_names(shown))},
    )
    result["layout"]["height"] = 110 + 34 * len(shown)
    return result


def heat_figure(heat: HeatMap) -> Figure:
    """The best time with each pair of values; empty cells were not tried."""
    cells = [["" if time is None else f"{time:.4g}" for time in row] for row in heat.times_us]
    trace = {
        "type": "heatmap",
        "x": texts(heat.xs),
        "y": texts(heat.ys),
        "z": [list(row) for row in heat.times_us],
        "text": cells,
        "texttemplate": "%{text}",
        "colorscale": SCALE,
        "reversescale": True,
        "hoverongaps": False,
        "xgap": 1,
        "ygap": 1,
        "colorbar": colour_bar("µs"),
        "hovertemplate": f"{text(heat.x)}=%{{x}}, {text(heat.y)}=%{{y}}: %{{z:.4g}} µs"
        "<extra></extra>",
    }
    category = {"type": "category"}
    return figure([trace], axis(heat.x) | category, axis(heat.y) | category)


def _ranges(costs: Sequence[ParameterCost]) -> dict[str, Any]:
    """A line from the least to the largest loss of each parameter."""
    losses = [[100 * value.loss for value in cost.values] for cost in costs]
    names = [text(cost.name) for cost in costs]
    return {
        "type": "scatter",
        "mode": "lines",
        "showlegend": False,
        "hoverinfo": "skip",
        "x": [end for row in losses for end in (min(row), max(row), None)],
        "y": [label for name in names for label in (name, name, None)],
        "line": {"color": COLOURS[5], "width": 1},
    }


def _labels(cost: ParameterCost, letter: float) -> list[str]:
    """The values as labels; where they would overlap the fastest value has the labels of both.

    Args:
        cost: the values.
        letter: the loss that is as wide as a letter.
    """
    ranked = sorted(range(len(cost.values)), key=lambda index: cost.values[index].loss)
    labels, first = [""] * len(ranked), ranked[0]
    for index in ranked:
        reach = letter * (len(labels[first]) + 1)
        if cost.values[index].loss - cost.values[first].loss > reach:
            first = index
        value = text(cost.values[index].value)
        labels[first] = f"{labels[first]}, {value}" if labels[first] else value
    return labels


def _names(costs: Sequence[ParameterCost]) -> list[str]:
    return [cost.name for cost in costs]
