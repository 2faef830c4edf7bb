"""The kernel families that a name given to a search stands for."""

from __future__ import annotations

from autotune.errors import ConfigError
from autotune.families import registry
from autotune.problem import Problem

AUTO = "auto"
"""The name of the default: every family that a search chooses from and that serves the compute."""


def families_of(family: str, problem: Problem) -> tuple[str, ...]:
    """The kernel families that a name stands for: itself, or those of `auto`.

    Raises:
        ConfigError: if there is no such family, or none that serves the problem's compute.
    """
    if family == AUTO:
        names = registry.tuned(problem)
        if not names:
            raise ConfigError(f"no kernel family computes {problem.compute}; give another compute")
        return names
    return (registry.serving(family, problem).name,)
