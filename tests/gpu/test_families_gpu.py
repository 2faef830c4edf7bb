"""Every family computes right, and takes what we say it takes, on odd shapes of every kind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from gpu_cases import BATCHED, CASES, FINISHED, Case, candidate, compiled, configs, plan_of

from autotune.config import Config
from autotune.device import Device
from autotune.families import FAMILIES
from autotune.gpu.bench import Bench
from autotune.gpu.session import Session
from autotune.gpu.verify import Verdict
from autotune.occupancy import occupancy
from autotune.problem import Problem

ANY_SHAPE = {"naive", "tiled", "simt"}
"""Families that have a configuration for every problem."""

TILES = (
    "simt:bm=64,bn=64,wm=32,wn=32,tm=8,tn=4,slices=1,bk=16,copy=async,stages=3,fragments=2,"
    "min_blocks=1,split_k={split_k},reduction={reduction},workers={workers},chunks=1,pack=none,"
    "group=1,fence=0,order=rows"
)
SHARED = ("separate", "fused", "stream", "gemv")
"""Ways in which blocks share the sums of a C."""


def shared(way: str, batch: int, device: Device) -> tuple[Config, Problem]:
    """A configuration whose blocks share K that way, and a problem with edges for it."""
    if way == "gemv":
        text = "gemv:rows=8,columns=4,depth=8,across=32,ways=4,split_k=8,stages=3"
        return Config.parse(text), Problem(7, 4001, 4099, batch=batch)
    if way == "stream":
        if batch > 1:
            pytest.skip("workers share one matrix")
        text = TILES.format(split_k=1, reduction=way, workers=device.sms)
        return Config.parse(text), Problem(1001, 999, 1003)
    text = TILES.format(split_k=6, reduction=way, workers=0)
    return Config.parse(text), Problem(250, 190, 2050, batch=batch)


@pytest.fixture(scope="module")
def cache(session: Session, programs: Path) -> Path:
    """The program cache, with everything in it that this module runs."""
    plans = [
        plan_of(config, case)
        for case in (*CASES, *BATCHED, *FINISHED)
        for family in FAMILIES
        for config in configs(case, family, session.device)
    ]
    compiled(plans, session.device, programs)
    return programs


def test_there_are_sixty_shapes() -> None:
    assert len({case.problem.shape for case in CASES}) >= 60


@pytest.mark.parametrize("case", [*CASES, *BATCHED, *FINISHED], ids=str)
def test_every_family_computes_the_product(case: Case, session: Session, cache: Path) -> None:
    bench = Bench(
        session,
        case.problem,
        leading_dimensions=case.leading_dimensions,
        strides=case.strides,
        cache=cache,
    )
    outcomes = {
        config: bench.verify(candidate(plan_of(config, case), session.device, cache))
        for family in FAMILIES
        for config in configs(case, family, session.device)
    }
    wrong = {str(one): what for one, what in outcomes.items() if not isinstance(what, Verdict)}
    assert (wrong, {config.family for config in outcomes} >= ANY_SHAPE) == ({}, True)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("way", SHARED)
def test_the_same_inputs_give_the_same_bits(
    way: str, batch: int, session: Session, programs: Path
) -> None:
    config, problem = shared(way, batch, session.device)
    made = candidate(plan_of(config, Case(problem)), session.device, programs)
    bench = Bench(session, problem, cache=programs)
    # Matrices of a batch that shared counters or workspace would fail here.
    assert isinstance(bench.verify(made), Verdict)
    operands = bench.operands
    run, c = session.bind(made)(operands.values(1.0, 0.0)), np.empty(operands.c.words, np.float32)
    seen = set()
    for _ in range(50):
        run()
        session.synchronize()
        session.cuda.memcpy_dtoh(c, operands.c.address)
        seen.add(c.tobytes())
    assert len(seen) == 1


@pytest.mark.parametrize("case", CASES[::5], ids=str)
def test_occupancy_is_the_drivers(case: Case, session: Session, cache: Path) -> None:
    ours, drivers = {}, {}
    for family in FAMILIES:
        for config in configs(case, family, session.device):
            made = candidate(plan_of(config, case), session.device, cache)
            for launch, program in zip(made.plan.launches, made.programs, strict=True):
                key = f"{config} {launch.template.expression}"
                drivers[key] = session.resident_blocks(program, launch)
                ours[key] = occupancy(
                    session.device,
                    threads=launch.threads,
                    registers=program.registers,
                    shared=program.shared + launch.shared,
                    barriers=program.barriers,
                ).blocks_per_sm
    assert ours == drivers


@pytest.mark.parametrize("case", CASES[::5], ids=str)
def test_compiled_resources_are_the_drivers(case: Case, session: Session, cache: Path) -> None:
    made = [
        candidate(plan_of(config, case), session.device, cache)
        for family in FAMILIES
        for config in configs(case, family, session.device)
    ]
    drivers = [session.resources(one.programs[one.plan.product], one.plan.main) for one in made]
    assert [one.resources for one in made] == drivers
