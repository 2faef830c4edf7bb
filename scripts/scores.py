"""Scores of the cost model on shapes it was not fitted to, for `fit_cost.py`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.table import Table

from autotune.problem import Problem

FIRST = 10
"""Number of first choices of the model that `first` takes the best of."""


@dataclass(frozen=True)
class Score:
    """How well the model ranks a shape it was not fitted to.

    Attributes:
        problem: the shape.
        configs: number of configurations that ran.
        spearman: rank correlation of predicted and measured times.
        first: the best of the first choices over the best known time, less 1.
        error: median of the predicted over the measured times, less 1.
    """

    problem: Problem
    configs: int
    spearman: float
    first: float
    error: float


def table(scores: Sequence[Score]) -> Table:
    shown = Table("shape", "ran", "Spearman", f"best of {FIRST}", "median error")
    for score in scores:
        shown.add_row(
            str(score.problem),
            str(score.configs),
            f"{score.spearman:.2f}",
            f"{score.first:+.1%}",
            f"{score.error:+.1%}",
        )
    for part, values in summaries(scores).items():
        for name, value in values.items():
            numbers = f"{value['spearman']:.2f}", f"{value['first']:+.1%}"
            shown.add_row(f"{part}: {name}", "", *numbers, "")
    return shown


def summaries(scores: Sequence[Score]) -> dict[str, dict[str, dict[str, float]]]:
    """A summary for each precision."""
    computes = dict.fromkeys(score.problem.compute for score in scores)
    return {
        compute: summary([score for score in scores if score.problem.compute == compute])
        for compute in computes
    }


def summary(scores: Sequence[Score]) -> dict[str, dict[str, float]]:
    """Median and 90th percentile over the shapes (for correlations the 10th)."""
    correlations = np.array([score.spearman for score in scores])
    first = np.array([score.first for score in scores])
    return {
        "median": {"spearman": float(np.median(correlations)), "first": float(np.median(first))},
        "90 % of shapes": {
            "spearman": float(np.percentile(correlations, 10)),
            "first": float(np.percentile(first, 90)),
        },
    }
