"""General kernels in Python, as the exported C chooses and launches them."""

from __future__ import annotations

from dataclasses import replace

from autotune.export.library import General
from autotune.families.plan import LaunchPlan
from autotune.families.shared.limits import LARGEST_GRID_X
from autotune.families.shared.tiling import tile_count
from autotune.problem import Problem


def serves(general: General, problem: Problem) -> bool:
    """Whether the problem is of this kind, has rows of whole vectors and fits a grid."""
    kind = replace(general.problem, m=problem.m, n=problem.n, k=problem.k, batch=problem.batch)
    wanted = general.alignment.a, general.alignment.b, general.alignment.c
    rows = zip(problem.leading_dimensions, wanted, strict=True)
    whole = all(length % width == 0 for length, width in rows)
    return kind == problem and whole and tile_count(problem, *general.tile) <= LARGEST_GRID_X


def plan_of(general: General, problem: Problem) -> LaunchPlan:
    """The launches of a problem that it serves."""
    sizes = {"m": problem.m, "n": problem.n, "k": problem.k}
    arguments = (
        replace(argument, value=sizes.get(str(argument.value), argument.value))
        for argument in general.launch.arguments
    )
    grid = tile_count(problem, *general.tile), 1, problem.batch
    launch = replace(general.launch, grid=grid, arguments=tuple(arguments))
    return LaunchPlan(general.config, (launch,))
