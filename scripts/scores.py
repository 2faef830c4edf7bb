"""How well the cost model ranks shapes that it was not fitted to, as `fit_cost.py` shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from autotune.problem import Problem

FIRST = 10
"""So many of the model's first guesses are looked at."""


@dataclass(frozen=True)
class Score:
    """How the model ranks a shape that it was not fitted to.

    Attributes:
        problem: the shape.
        configs: how many ran.
        spearman: rank correlation of predicted and measured times.
        first: best of the first guesses over the best known time, less 1.
        error: median of the predicted over the measured times, less 1.
    """

    problem: Problem
    configs: int
    spearman: float
    first: float
    error: float


def table(scores: Sequence[Score]) -> Table:
    shown = Table("shape", "ran", "Spearman", f"best of {FIRST}", "median error")
    for one in scores:
        shown.add_row(
            str(one.problem),
            str(one.configs),
            f"{one.spearman:.2f}",
            f"{one.first:+.1%}",
            f"{one.error:+.1%}",
        )
    for part, values in summaries(scores).items():
        for name, value in values.items():
            numbers = f"{value['spearman']:.2f}", f"{value['first']:+.1%}"
            shown.add_row(f"{part}: {name}", "", *numbers, "")
    return shown


def summaries(scores: Sequence[Score]) -> dict[str, dict[str, dict[str, float]]]:
    """The summary of the shapes in each precision."""
    computes = dict.fromkeys(one.problem.compute for one in scores)
    return {
        compute: summary([one for one in scores if one.problem.compute == compute])
        for compute in computes
    }


def summary(scores: Sequence[Score]) -> dict[str, dict[str, float]]:
    """Median and 90th percentile (of the correlations the 10th) over the shapes."""
    correlations = np.array([one.spearman for one in scores])
    first = np.array([one.first for one in scores])
    return {
        "median": {"spearman": float(np.median(correlations)), "first": float(np.median(first))},
        "90 % of shapes": {
            "spearman": float(np.percentile(correlations, 10)),
            "first": float(np.percentile(first, 90)),
        },
    }
