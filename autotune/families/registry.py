"""The kernel families, by name, and the launches of a configuration of any of them.

A folder of `families/` whose package has `FAMILIES` is registered by being there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from autotune import families
from autotune.errors import ConfigError
from autotune.families import cublaslt
from autotune.families.config import Config
from autotune.families.family import Family
from autotune.families.plan import Alignment, LaunchPlan
from autotune.problem import Problem


def declared() -> Iterator[Family[Any]]:
    """The families that the folders beside this module declare."""
    for module in iter_modules(families.__path__, f"{families.__name__}."):
        if module.ispkg:
            yield from getattr(import_module(module.name), "FAMILIES", ())


AUTO = "auto"
"""The name of the default: every family that a search chooses from and that serves the compute."""

FAMILIES: Mapping[str, Family[Any]] = {
    family.name: family
    for family in sorted(declared(), key=lambda family: (family.order, family.name))
}
"""All families, from the plainest to the fastest."""


def find(name: str) -> Family[Any]:
    """The family of that name.

    Raises:
        ConfigError: if there is none; the message lists them.
    """
    if name not in FAMILIES:
        raise ConfigError(f"unknown family {name!r}; give one of {', '.join(FAMILIES)}")
    return FAMILIES[name]


def serving(name: str, problem: Problem) -> Family[Any]:
    """The family of that name, which has to serve the problem's precision.

    Raises:
        ConfigError: if there is none, or it does not; the message lists those that do.
    """
    family = find(name)
    if problem.compute not in family.precisions:
        able = [row.name for row in FAMILIES.values() if problem.compute in row.precisions]
        hint = f"give one of {', '.join(able)}" if able else "no kernel family does"
        raise ConfigError(f"{name} does not compute {problem.compute}; {hint}")
    return family


def searched() -> tuple[str, ...]:
    """The families that a search tries unless it is told otherwise, in its order."""
    ranked = sorted(
        (family.search_order, name)
        for name, family in FAMILIES.items()
        if family.search_order is not None
    )
    return tuple(name for _, name in ranked)


def tuned(problem: Problem) -> tuple[str, ...]:
    """The families that a search on the problem tries unless it is told otherwise."""
    return tuple(name for name in searched() if problem.compute in FAMILIES[name].precisions)


def families_of(family: str, problem: Problem) -> tuple[str, ...]:
    """The kernel families that a name given to a search stands for: itself, or those of `auto`.

    Raises:
        ConfigError: if there is no such family, or none that serves the problem's compute.
    """
    if family == AUTO:
        names = tuned(problem)
        if not names:
            raise ConfigError(f"no kernel family computes {problem.compute}; give another compute")
        return names
    return (serving(family, problem).name,)


def competing(family: str, problem: Problem) -> tuple[str, ...]:
    """The families whose configurations compete in a search: the result of `families_of`. With
    `auto` cuBLASLt's family joins them if it takes the problem.

    Raises:
        ConfigError: as `families_of`.
    """
    library = family == AUTO and cublaslt.fault(problem) is None
    return (*families_of(family, problem), *([cublaslt.NAME] if library else []))


def kernel_sources() -> tuple[str, ...]:
    """The CUDA files that launches of configurations are compiled from, in alphabetical order;
    kernels for reading are left out."""
    families = (family for family in FAMILIES.values() if not family.for_reading)
    return tuple(sorted({source for family in families for source in family.sources}))


def plan(config: Config, problem: Problem, alignment: Alignment | None = None) -> LaunchPlan:
    """The launches of a legal configuration; by default for operands without gaps.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's precision.
    """
    return serving(config.family, problem).plan(
        config, problem, alignment or Alignment.dense(problem)
    )
