"""Samples of every family: configurations of a problem case, compiled to candidates."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import islice, zip_longest
from pathlib import Path

from problem_cases import Case

from autotune.cuda import program
from autotune.cuda.compiler import compile
from autotune.cuda.program import CompileFailure, Program
from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.families.plan import Alignment, LaunchPlan, Resources
from autotune.measure.runner import Candidate
from autotune.model import space
from autotune.problem import Problem

LARGE, SMALL, THIN = Problem(1023, 1025, 1027), Problem(20, 24, 300), Problem(7, 4099, 4099)


A_FAMILY = {"f32": 4, "tf32": 2, "tf32x3": 2, "f16": 1, "bf16": 2, "f8": 2, "f8e5": 1, "i8": 2}
"""Configurations of each family that run for a case."""


MANY, ATTEMPTS = 10, 6
"""A family with `MANY` legal configurations must have one that compiles. Up to `ATTEMPTS` are
compiled for each that runs, because only ptxas knows the registers a kernel needs."""


KINDS = (
    *("swap", "schedule", "source", "low", "cluster", "reduction", "min_blocks", "store"),
    *("slices", "pack", "promote", "consumers"),
)
"""Parameters that select parts of a kernel."""


@dataclass(frozen=True)
class FamilySample:
    """The sample of one family for one case.

    Attributes:
        legal: number of legal configurations, counted up to `MANY` at least.
        candidates: the candidates that run.
        lost: configurations that a search rejects for spills or waits that ptxas reports.
        failed: configurations that do not compile for any other reason.
    """

    legal: int
    candidates: tuple[Candidate, ...]
    lost: Mapping[Config, str]
    failed: Mapping[Config, str]


def serving(problem: Problem) -> list[str]:
    """Names of the families whose kernels serve the problem's precision; kernels for reading have a
    test of their own."""
    families = (
        family for family in registry.FAMILIES.values() if family.sources and not family.for_reading
    )
    return [family.name for family in families if problem.compute in family.precisions]


def configs(case: Case, family: str, device: Device) -> Sequence[Config]:
    """Legal configurations of a case, alternating kinds, in an order that depends on the case.

    A family that serves fp32 has the same for all precisions, which run the same kernels.
    """
    if "f32" in registry.find(family).precisions:
        case = replace(case, problem=replace(case.problem, compute="f32"))
    return _legal(case, family, device)


def sample_of(case: Case, family: str, device: Device, programs: Path) -> FamilySample:
    """Compiles configurations until a case has its number of candidates."""
    pool, count = configs(case, family, device), A_FAMILY[case.problem.compute]
    candidates, lost, failed = list[Candidate](), dict[Config, str](), dict[Config, str]()
    for config in pool[: ATTEMPTS * count]:
        if len(candidates) == count:
            break
        outcome = attempt(plan_of(config, case), device, programs)
        if isinstance(outcome, Candidate):
            spills = _spills(outcome)
            candidates += [] if spills else [outcome]
            lost |= {config: spills} if spills else {}
        elif (loss := program.loss(outcome.log)) is not None:
            lost[config] = loss
        else:
            failed[config] = outcome.reason
    return FamilySample(len(pool), tuple(candidates), lost, failed)


def with_values(
    case: Case, family: str, values: Mapping[str, Value], device: Device, programs: Path | None
) -> Candidate:
    """A candidate of the family with these parameter values.

    Raises:
        AssertionError: if there is none.
    """
    legal = configs(case, family, device)
    pool = [config for config in legal if values.items() <= config.values.items()]
    assert pool, f"{family} has no legal configuration with {values} for {case}"
    outcomes = (attempt(plan_of(config, case), device, programs) for config in pool[:ATTEMPTS])
    candidates = (item for item in outcomes if isinstance(item, Candidate) and not _spills(item))
    first = next(candidates, None)
    assert first, f"none of {len(pool)} configurations with {values} compiles for {case}"
    return first


def plan_of(config: Config, case: Case) -> LaunchPlan:
    problem = case.problem
    strides = case.strides if problem.batch > 1 else (0, 0, 0)
    sizes = problem.element_bytes, problem.element_bytes, problem.output_bytes
    alignment = Alignment.of(case.leading_dimensions, (0, 0, 0), sizes, strides)
    return registry.find(config.family).plan(config, problem, alignment)


def attempt(
    plan: LaunchPlan, device: Device, programs: Path | None, sources: Path | None = None
) -> Candidate | CompileFailure:
    """The candidate with all its programs, or the failure to compile one."""
    compiled: list[Program] = []
    for launch in plan.launches:
        program = compile(launch.template, device.arch, cache=programs, sources=sources)
        if isinstance(program, CompileFailure):
            return program
        compiled.append(program)
    first, launch = compiled[plan.product], plan.main
    resources = Resources(
        launch.threads, first.registers, first.shared + launch.shared, first.local, first.barriers
    )
    return Candidate(plan.config, plan, tuple(compiled), resources)


def candidate(
    plan: LaunchPlan, device: Device, programs: Path, sources: Path | None = None
) -> Candidate:
    """The candidate with all its programs.

    Raises:
        AssertionError: if one does not compile.
    """
    outcome = attempt(plan, device, programs, sources)
    assert isinstance(outcome, Candidate), f"{plan.config}: {outcome.reason}"
    return outcome


def _spills(candidate: Candidate) -> str:
    """The spills of its kernels, which a search rejects; empty if there are none."""
    return " ".join(
        f"{program.template.kernel} spills {program.spills} bytes, {program.local} of local memory"
        for program in candidate.programs
        if program.spills or program.local
    )


def _varied(pool: Iterable[Config], draw: random.Random) -> Iterator[Config]:
    """The configurations at random, alternating between kinds."""
    kinds: dict[tuple[Value | None, ...], list[Config]] = {}
    for config in pool:
        values = config.values
        kinds.setdefault(tuple(values.get(name) for name in KINDS), []).append(config)
    groups = list(kinds.values())
    draw.shuffle(groups)
    for group in groups:
        draw.shuffle(group)
    rounds = zip_longest(*groups)
    return (config for round in rounds for config in round if config is not None)


@cache
def _legal(case: Case, family: str, device: Device) -> tuple[Config, ...]:
    draw = random.Random(str(case))
    if family != "simt":
        return tuple(_varied(space.feasible(case.problem, device, family).configs, draw))
    pool = list(_sample(family, device))
    draw.shuffle(pool)
    legal = (item for item in pool if space.rejection(item, case.problem, device) is None)
    return tuple(islice(legal, MANY))


@lru_cache
def _sample(family: str, device: Device) -> tuple[Config, ...]:
    """Sampled configurations of a family whose whole space takes long to enumerate."""
    draw = random.Random(family)
    pools = (space.feasible(problem, device, family).configs for problem in (LARGE, SMALL, THIN))
    return tuple(item for pool in pools for item in draw.sample(pool, min(300, len(pool))))
