"""Kernels with one planted fault each (`planted.cu`), in every precision."""

from __future__ import annotations

from pathlib import Path
from random import Random

from candidate_samples import candidate

from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import Argument, Launch, LaunchPlan, Template
from autotune.families.shared.arguments import each_type, operands, scale, words
from autotune.measure.runner import Candidate
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

FAULTS = (
    *("none", "a term of one element missing", "zeros", "a term missing everywhere"),
    *("a write before C", "a write past C", "a race in 1 % of launches"),
    *("a read of the unwritten workspace", "C read for beta 0", "gaps in A ignored"),
    "C ignored in one element for beta 1",
)
SCALE_FAULTS = "a scale of the next row in one element", "no scale of B in one element"
"""Faults of products with a scale a row."""
WARPS = 8


def planted(
    fault: str, problem: Problem, device: Device, programs: Path, random: Random
) -> Candidate:
    """A GEMM with a fault at a random element and a random place of K; `none` has no fault."""
    number = (*FAULTS, *SCALE_FAULTS).index(fault)
    arguments = (*each_type(problem), scale(problem), ("FAULT", number))
    template = Template("planted.cu", "planted", arguments)
    grid = (ceil_div(problem.m * problem.n, WARPS), 1, 1)
    sizes = (problem.m, problem.n, problem.k)
    places = tuple(Argument("i32", random.randrange(size)) for size in sizes)
    *before, stride_a, stride_b, stride_c = operands(problem)
    plain = *before, *words("scale_a", "scale_b"), stride_a, stride_b, stride_c
    values = (*plain, Argument("pointer", "workspace"), *places)
    launch = Launch(template, grid, (32 * WARPS, 1, 1), 0, values)
    plan = LaunchPlan(Config.of("planted", {"fault": fault}), (launch,), workspace=16)
    return candidate(plan, device, programs, Path(__file__).parent)
