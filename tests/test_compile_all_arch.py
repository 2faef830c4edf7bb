"""One configuration of each family compiles for every architecture that is supported."""

from __future__ import annotations

import pytest

from autotune import device, families, space
from autotune.compiler import Program, compile
from autotune.plan import Alignment
from autotune.problem import Problem

DEVICES = {
    "sm_75": "t4",
    "sm_80": "a100",
    "sm_86": "rtx 3090",
    "sm_89": "l4",
    "sm_90": "h100",
    "sm_100": "b200",
    "sm_120": "rtx 5090",
}
PROBLEM = Problem(64, 64, 64)


@pytest.mark.parametrize("arch", DEVICES)
@pytest.mark.parametrize("family", families.FAMILIES)
def test_compiles(family: str, arch: str) -> None:
    target = device.find(DEVICES[arch])
    config = space.feasible(PROBLEM, target, family).configs[0]
    plan = families.find(family).plan(config, PROBLEM, Alignment.dense(PROBLEM))
    programs = [compile(launch.template, target.arch, cache=None) for launch in plan.launches]
    assert [(type(program), program.arch) for program in programs] == [(Program, arch)]
