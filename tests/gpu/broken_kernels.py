"""Kernels that are broken on purpose (`broken.cu`)."""

from __future__ import annotations

from pathlib import Path

from candidate_samples import candidate

from autotune.device import Device
from autotune.families.config import Config
from autotune.families.plan import Argument, Launch, LaunchPlan, Template
from autotune.families.shared.arguments import operands
from autotune.measure.runner import Candidate
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

FAULTS = (
    *("none", "wrong element", "nan", "unwritten element", "reads C for beta 0", "ignores beta"),
    *("writes before C", "writes past C", "writes A", "writes between rows", "reads past A"),
    *("illegal access", "endless loop", "leaves a counter", "is not accurate", "forgets the bias"),
    "writes the bias",
)
COUNTERS = 4
"""Counters that the broken kernels reserve; only one of them uses them."""


def broken(fault: str, problem: Problem, device: Device, programs: Path) -> Candidate:
    """A naive GEMM with a fault; `none` is a correct one."""
    template = Template("broken.cu", "broken", (("FAULT", FAULTS.index(fault)),))
    grid = (ceil_div(problem.n, 16), ceil_div(problem.m, 16), problem.batch)
    arguments = (*operands(problem), Argument("pointer", "counters"))
    launch = Launch(template, grid, (16, 16, 1), 0, arguments)
    config = Config.of("broken", {"fault": fault})
    plan = LaunchPlan(config, (launch,), counters=COUNTERS)
    return candidate(plan, device, programs, Path(__file__).parent)
