"""A sample of all legal configurations, small enough to predict at once."""

from __future__ import annotations

from autotune.candidates import space
from autotune.candidates.family_names import AUTO, families_of
from autotune.device import Device
from autotune.families.config import Config
from autotune.problem import Problem

SURVEY = 3000
"""Configurations of a family that the cost model chooses among: all would keep the first GEMM
waiting for seconds."""


def survey(
    problem: Problem, device: Device, family: str = AUTO, order: str | None = None
) -> list[Config]:
    """Legal configurations of each family that the name stands for, evenly spread; with an `order`
    of summation, those of that order.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """
    spaces = (space.feasible(problem, device, name, order) for name in families_of(family, problem))
    return [config for legal in spaces for config in space.spread(legal.configs, SURVEY)]
