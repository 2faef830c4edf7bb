"""Every family computes right, and takes what we say it takes, on odd shapes of every kind."""

from __future__ import annotations

from pathlib import Path

import pytest
from gpu_cases import CASES, Case, candidate, compiled, configs, plan_of

from autotune.families import FAMILIES
from autotune.gpu.bench import Bench
from autotune.gpu.session import Session
from autotune.gpu.verify import Verdict
from autotune.occupancy import occupancy


@pytest.fixture(scope="module")
def cache(session: Session, programs: Path) -> Path:
    """The program cache, with everything in it that this module runs."""
    plans = [
        plan_of(config, case)
        for case in CASES
        for family in FAMILIES
        for config in configs(case, family, session.device)
    ]
    compiled(plans, session.device, programs)
    return programs


def test_there_are_sixty_shapes() -> None:
    assert len({case.problem.shape for case in CASES}) >= 60


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_family_computes_the_product(case: Case, session: Session, cache: Path) -> None:
    bench = Bench(session, case.problem, leading_dimensions=case.leading_dimensions, cache=cache)
    outcomes = {
        config: bench.verify(candidate(plan_of(config, case), session.device, cache))
        for family in FAMILIES
        for config in configs(case, family, session.device)
    }
    wrong = {str(one): what for one, what in outcomes.items() if not isinstance(what, Verdict)}
    assert (wrong, {config.family for config in outcomes}) == ({}, set(FAMILIES))


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
    drivers = [session.resources(one.programs[0], one.plan.launches[0]) for one in made]
    assert [one.resources for one in made] == drivers
