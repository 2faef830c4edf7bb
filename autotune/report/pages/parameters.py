"""The cost of parameters: the best time with each value, one by one and in pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.families.config import Value
from autotune.report.pages.figures import (
    COLOURS,
    SCALE,
    Figure,
    axis,
    colour_bar,
    figure,
    scatter,
    text,
    texts,
)
from autotune.report.pages.page import Section, paragraph, percent, plot
from autotune.report.trials import Subject
from autotune.tuning.trials import Trial

TILE_SIDES = ("bm", "bn", "tile_width", "bk")
"""Parameters that a heat map shows first, where a family has them."""


@dataclass(frozen=True)
class ValueCost:
    """A value of a parameter: the best time with it, the loss against the best of all (0.05 is 5 %
    longer), and the number of trials with a time."""

    value: Value
    best_us: float
    loss: float
    trials: int


@dataclass(frozen=True)
class ParameterCost:
    """A parameter with its values; `range` is the difference between their largest and smallest
    loss."""

    name: str
    values: tuple[ValueCost, ...]
    range: float


@dataclass(frozen=True)
class HeatMap:
    """The best times over two parameters: `times_us[row][column]` for `ys[row]` and `xs[column]`,
    None where no trial has both values."""

    x: str
    y: str
    xs: tuple[Value, ...]
    ys: tuple[Value, ...]
    times_us: tuple[tuple[float | None, ...], ...]


def timed_trials(subject: Subject) -> list[Trial]:
    """The trials of the winner's family that have a time."""
    family = subject.record.best.config.family
    trials = (row.trial for row in subject.trials)
    return [
        trial for trial in trials if trial.config.family == family and math.isfinite(trial.time_us)
    ]


def parameter_costs(subject: Subject) -> tuple[ParameterCost, ...]:
    """The parameters that the trials of the winner's family vary, the largest range first."""
    trials = timed_trials(subject)
    best = min((trial.time_us for trial in trials), default=math.inf)
    names = dict.fromkeys(name for trial in trials for name in trial.config.values)
    costs = [
        ParameterCost(name, values, max(losses) - min(losses))
        for name in names
        if len(values := _value_costs(name, trials, best)) > 1
        for losses in [[value.loss for value in values]]
    ]
    return tuple(sorted(costs, key=lambda cost: (-cost.range, cost.name)))


def varied(subject: Subject) -> tuple[str, ...]:
    """The parameters with several values among the trials, tile sides first, then by range."""
    names = [cost.name for cost in parameter_costs(subject)]
    sides = [name for name in TILE_SIDES if name in names]
    return (*sides, *(name for name in names if name not in sides))


def heat_map(subject: Subject, x: str, y: str) -> HeatMap:
    """The best time with each pair of values of two parameters."""
    best: dict[tuple[Value, Value], float] = {}
    for trial in timed_trials(subject):
        values = trial.config.values
        if x in values and y in values:
            pair = values[x], values[y]
            best[pair] = min(best.get(pair, math.inf), trial.time_us)
    xs = ordered({pair[0] for pair in best})
    ys = ordered({pair[1] for pair in best})
    rows = tuple(tuple(best.get((column, row)) for column in xs) for row in ys)
    return HeatMap(x, y, xs, ys, rows)


def ordered(values: set[Value]) -> tuple[Value, ...]:
    """Numbers ascending, then words."""
    return tuple(sorted(values, key=lambda value: (isinstance(value, str), value)))


def _value_costs(name: str, trials: Sequence[Trial], best: float) -> tuple[ValueCost, ...]:
    times: dict[Value, list[float]] = {}
    for trial in trials:
        if name in (values := trial.config.values):
            times.setdefault(values[name], []).append(trial.time_us)
    return tuple(
        ValueCost(value, min(times[value]), min(times[value]) / best - 1, len(times[value]))
        for value in ordered(set(times))
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
    values = scatter(
        "values",
        (100 * value.loss for _, value in points),
        (text(cost.name) for cost, _ in points),
        "%{customdata[0]}: best %{customdata[1]:.4g} µs, %{x:.1f}% slower"
        "<br>%{customdata[2]} trials<extra></extra>",
        mode="markers+text",
        showlegend=False,
        text=[label for cost in shown for label in _labels(cost, letter)],
        textposition="top right",
        cliponaxis=False,
        textfont={"size": 10},
        customdata=[
            [text(f"{cost.name}={value.value}"), value.best_us, value.trials]
            for cost, value in points
        ],
        marker={"size": 8, "color": COLOURS[0]},
    )
    result = figure(
        [_ranges(shown), values],
        axis("slower than the best, in %"),
        {
            "type": "category",
            "categoryorder": "array",
            "categoryarray": texts([cost.name for cost in shown]),
        },
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
    losses = [[100 * value.loss for value in cost.values] for cost in costs]
    names = [text(cost.name) for cost in costs]
    return scatter(
        "ranges",
        (end for row in losses for end in (min(row), max(row), None)),
        (label for name in names for label in (name, name, None)),
        "",
        mode="lines",
        showlegend=False,
        hoverinfo="skip",
        line={"color": COLOURS[5], "width": 1},
    )


def _labels(cost: ParameterCost, letter: float) -> list[str]:
    """The values as labels; where they would overlap the fastest value has the labels of both."""
    ranked = sorted(range(len(cost.values)), key=lambda index: cost.values[index].loss)
    labels, first = [""] * len(ranked), ranked[0]
    for index in ranked:
        reach = letter * (len(labels[first]) + 1)
        if cost.values[index].loss - cost.values[first].loss > reach:
            first = index
        value = text(cost.values[index].value)
        labels[first] = f"{labels[first]}, {value}" if labels[first] else value
    return labels


def parameter_section(costs: Sequence[ParameterCost], heat: HeatMap | None) -> Section:
    """The pictures of what parameters cost."""
    first = (
        f"{costs[0].name} matters most: between its best and its worst value lie "
        f"{percent(costs[0].range)}. A value counts with the best time that any trial had with it."
    )
    names = ", ".join(cost.name for cost in costs)
    description = f"Loss with each value of the parameters {names}."
    content = paragraph(first) + plot("parameters", description, "", "free")
    if heat is not None:
        description = f"Best time with each pair of values of {heat.x} and {heat.y}"
        caption = "The best time in µs with each pair of values; empty cells were not tried."
        content += "<h3>Two parameters at a time</h3>" + plot("heat", description, caption)
    return Section("parameters", "What each parameter costs", content)
