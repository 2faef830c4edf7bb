"""The work of the blocks of a `gemv` configuration, for the cost model."""

from __future__ import annotations

from autotune.families.base import Work
from autotune.families.gemv.parameters import VECTOR, GemvParams, oriented
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

LANES = 32
SPLITS_AT_ONCE = 8
"""Partial sums along K that a thread loads together (`gemv.cu`)."""


def work(p: GemvParams, problem: Problem) -> Work:
    """The work of a block; an iteration is a batch: `depth` steps of each of the `ways`."""
    form, steps = oriented(problem), p.batch_steps
    warps = p.threads / LANES
    # Vectors of a thread: of the larger operand, which cp.async takes through shared memory, and of
    # the smaller one, which all lanes read.
    large, small = p.depth * p.columns / VECTOR, p.depth * p.rows / VECTOR
    through = 2 * large if p.stages > 1 else 0
    return Work(
        blocks=p.blocks(form),
        rows=p.rows,
        columns=p.width,
        warps=ceil_div(p.threads, LANES),
        iterations=ceil_div(p.steps(form), steps),
        issue=warps * (p.depth * p.rows * p.columns + small + through / 2),
        copies=warps * large + steps * p.rows / LANES,
        shared=warps * (small + VECTOR * (large + through)) + steps * p.rows / LANES,
        bytes=problem.element_bytes * steps * (form.m + p.width),
        ahead=p.stages - 1,
        end=2 * p.ways * p.tile / LANES,
        gathers=_gathers(p),
        traits=("gemv", f"gemv {'async' if p.stages > 1 else 'staged'}"),
    )


def _gathers(p: GemvParams) -> float:
    """Loads that a thread of the last block of a strip waits for, one after the other."""
    if p.split_k == 1:
        return 0
    together = SPLITS_AT_ONCE * p.threads / (p.tile / VECTOR)
    return max(1.0, p.split_k / together)
