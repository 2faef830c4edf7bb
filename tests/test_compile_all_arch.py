"""Every kernel, and every way to share a product, compiles for every supported architecture."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from autotune import device, families, space
from autotune.compiler import Program, compile
from autotune.config import Config, Value
from autotune.plan import Launch
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
# What these have beyond `PLAIN`.
SHARED: dict[str, dict[str, Value]] = {
    "separate, packed": {"split_k": 2, "reduction": "separate", "pack": "ab"},
    "fused, sliced": {"split_k": 2, "reduction": "fused", "slices": 2},
    "stream, in chunks": {"reduction": "stream", "chunks": 2},
}
PLAIN = Config.parse(
    "simt:bm=64,bn=64,wm=32,wn=64,tm=8,tn=8,slices=1,bk=8,copy=staged,stages=2,fragments=2,"
    "min_blocks=1,split_k=1,reduction=none,workers=0,chunks=1,pack=none,group=1,fence=1,order=snake"
)


def check(launches: Iterable[Launch], arch: str) -> None:
    programs = [compile(launch.template, arch, cache=None) for launch in launches]
    assert {(type(program), program.arch) for program in programs} == {(Program, arch)}


@pytest.mark.parametrize("arch", DEVICES)
@pytest.mark.parametrize("family", families.FAMILIES)
def test_compiles(family: str, arch: str) -> None:
    problem, target = Problem(16, 64, 4096), device.find(DEVICES[arch])
    config = space.feasible(problem, target, family).configs[0]
    check(families.plan(config, problem).launches, target.arch)


@pytest.mark.parametrize("arch", DEVICES)
@pytest.mark.parametrize("way", SHARED)
def test_every_way_to_share_compiles(way: str, arch: str) -> None:
    target = device.find(DEVICES[arch])
    workers = target.sms if SHARED[way]["reduction"] == "stream" else 0
    # 90 tiles with edges, which fill no whole waves; rows of A run along K, those of B are odd.
    problem = Problem(513, 577, 8192)
    config = Config.of("simt", {**PLAIN.values, **SHARED[way], "workers": workers})
    assert space.rejection(config, problem, target) is None
    check(families.plan(config, problem).launches, target.arch)
