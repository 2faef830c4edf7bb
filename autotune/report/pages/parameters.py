"""The cost of parameters: the best time with each value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.families.config import Value
from autotune.report.pages.figures import (
    COLOURS,
    Figure,
    axis,
    figure,
    scatter,
    text,
)
from autotune.report.pages.page import Section, paragraph, percent, plot
from autotune.report.trials import Subject
from autotune.tuning.trials import Trial


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


def parameter_costs(subject: Subject) -> tuple[ParameterCost, ...]:
    """The parameters that the trials of the winner's family vary, the largest range first."""
    family = subject.record.best.config.family
    of_family = (row.trial for row in subject.trials if row.trial.config.family == family)
    trials = [trial for trial in of_family if math.isfinite(trial.time_us)]
    best = min((trial.time_us for trial in trials), default=math.inf)
    names = dict.fromkeys(name for trial in trials for name in trial.config.values)
    costs = [
        ParameterCost(name, values, max(losses) - min(losses))
        for name in names
        if len(values := _value_costs(name, trials, best)) > 1
        for losses in [[value.loss for value in values]]
    ]
    return tuple(sorted(costs, key=lambda cost: (-cost.range, cost.name)))


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
            "categoryarray": [text(cost.name) for cost in shown],
        },
    )
    result["layout"]["height"] = 110 + 34 * len(shown)
    return result


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


def parameter_section(costs: Sequence[ParameterCost]) -> Section:
    """The picture of what parameters cost."""
    first = (
        f"{costs[0].name} matters most: its worst value is {percent(costs[0].range)} slower than "
        "its best. Each value counts with the fastest trial that had it, as timed in the search."
    )
    names = ", ".join(cost.name for cost in costs)
    description = f"Loss with each value of the parameters {names}."
    content = paragraph(first) + plot("parameters", description, "", "free")
    return Section("parameters", "What each parameter costs", content)
