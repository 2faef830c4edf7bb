"""The best time with each value of a family's parameters, one by one and in pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.families.config import Value
from autotune.report.analysis.subject import Subject
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
    costs = [
        ParameterCost(name, values, max(losses) - min(losses))
        for name in _names(trials)
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


def _names(trials: Sequence[Trial]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for trial in trials for name in trial.config.values))


def _value_costs(name: str, trials: Sequence[Trial], best: float) -> tuple[ValueCost, ...]:
    times: dict[Value, list[float]] = {}
    for trial in trials:
        if name in (values := trial.config.values):
            times.setdefault(values[name], []).append(trial.time_us)
    return tuple(
        ValueCost(value, min(times[value]), min(times[value]) / best - 1, len(times[value]))
        for value in ordered(set(times))
    )
