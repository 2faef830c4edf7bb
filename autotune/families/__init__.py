"""The kernel families, by name, and the launches of a configuration of any of them."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.config import Config
from autotune.errors import ConfigError
from autotune.families.base import Family
from autotune.families.gemv import GEMV
from autotune.families.naive import NAIVE
from autotune.families.simt import SIMT
from autotune.families.tiled import TILED
from autotune.plan import Alignment, LaunchPlan
from autotune.problem import Problem

FAMILIES: Mapping[str, Family] = {family.name: family for family in (NAIVE, TILED, SIMT, GEMV)}

TUNED = (SIMT.name, GEMV.name)
"""The families that a search chooses from unless it is told otherwise."""


def find(name: str) -> Family:
    """The family of that name.

    Raises:
        ConfigError: if there is none; the message lists them.
    """
    if name not in FAMILIES:
        raise ConfigError(f"unknown family {name!r}; give one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


def plan(config: Config, problem: Problem, alignment: Alignment | None = None) -> LaunchPlan:
    """The launches of a legal configuration; by default for operands without gaps.

    Raises:
        ConfigError: if there is no such family.
    """
    return find(config.family).plan(config, problem, alignment or Alignment.dense(problem))
