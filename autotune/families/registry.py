"""The kernel families, by name, and the launches of a configuration of any of them."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.errors import ConfigError
from autotune.families.base import Family
from autotune.families.config import Config
from autotune.families.gemv.family import GEMV
from autotune.families.mma.family import MMA
from autotune.families.plan import Alignment, LaunchPlan
from autotune.families.simt.family import SIMT
from autotune.families.textbook.naive import NAIVE
from autotune.families.textbook.tiled import TILED
from autotune.families.wgmma.family import WGMMA
from autotune.problem import Problem

FAMILIES: Mapping[str, Family] = {
    family.name: family for family in (NAIVE, TILED, SIMT, GEMV, MMA, WGMMA)
}

SEARCHED = ("wgmma", "mma", "simt", "gemv")
"""The families that a search chooses from unless it is told otherwise, where they serve."""


def find(name: str) -> Family:
    """The family of that name.

    Raises:
        ConfigError: if there is none; the message lists them.
    """
    if name not in FAMILIES:
        raise ConfigError(f"unknown family {name!r}; give one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


def serving(name: str, problem: Problem) -> Family:
    """The family of that name, which has to serve the problem's compute.

    Raises:
        ConfigError: if there is none, or it does not; the message lists those that do.
    """
    family = find(name)
    if problem.compute not in family.computes:
        able = [one.name for one in FAMILIES.values() if problem.compute in one.computes]
        hint = f"give one of {', '.join(able)}" if able else "no kernel family does"
        raise ConfigError(f"{name} does not compute {problem.compute}; {hint}")
    return family


def tuned(problem: Problem) -> tuple[str, ...]:
    """The families that a search on the problem chooses from unless it is told otherwise."""
    return tuple(name for name in SEARCHED if problem.compute in FAMILIES[name].computes)


def plan(config: Config, problem: Problem, alignment: Alignment | None = None) -> LaunchPlan:
    """The launches of a legal configuration; by default for operands without gaps.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """
    return serving(config.family, problem).plan(
        config, problem, alignment or Alignment.dense(problem)
    )
