"""Candidates to run on a GPU: samples of every family, and kernels that are broken on purpose."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import islice, zip_longest
from pathlib import Path

from gpu_cases import Case

from autotune.candidates import space
from autotune.compiler import CompileFailure, Program, compile, ptxas
from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.families.plan import Alignment, Argument, Launch, LaunchPlan, Resources, Template
from autotune.families.shared.arguments import operands
from autotune.problem import Problem
from autotune.runners.base import Candidate

LARGE, SMALL, FLAT = Problem(1023, 1025, 1027), Problem(20, 24, 300), Problem(7, 4099, 4099)
A_FAMILY = {"f32": 4, "tf32": 2, "tf32x3": 2, "f16": 1, "bf16": 2}
"""Configurations of each family that a case runs."""
MANY, ATTEMPTS = 10, 6
"""Of so many legal configurations one must compile, and so many are tried for each that is to run:
the registers that ptxas needs are known only afterwards."""
KINDS = (
    *("swap", "schedule", "source", "low", "cluster", "reduction", "min_blocks", "store"),
    *("slices", "pack", "promote", "consumers"),
)
"""Parameters that decide which parts of a kernel there are."""

FAULTS = (
    *("none", "wrong element", "nan", "unwritten element", "reads C for beta 0", "ignores beta"),
    *("writes before C", "writes past C", "writes A", "writes between rows", "reads past A"),
    *("illegal access", "endless loop", "leaves a counter", "is not accurate", "forgets the bias"),
    "writes the bias",
)
COUNTERS = 4
"""What the broken kernels ask for; they have no use for them."""


@dataclass(frozen=True)
class Made:
    """What a family has for a case.

    Attributes:
        legal: legal configurations there were to choose from, counted up to `MANY` at least.
        candidates: what is to run.
        lost: configurations that no search would run, with what ptxas says that it spills or waits
            for.
        failed: those that do not compile for any other reason.
    """

    legal: int
    candidates: tuple[Candidate, ...]
    lost: Mapping[Config, str]
    failed: Mapping[Config, str]


def serving(problem: Problem) -> list[str]:
    """The families that serve the problem's compute."""
    return [one.name for one in registry.FAMILIES.values() if problem.compute in one.precisions]


def configs(case: Case, family: str, device: Device) -> Sequence[Config]:
    """Legal configurations of a case, those of other kinds first, and other ones for other cases.

    A family that serves fp32 has the same ones for all computes, which run the same kernels."""
    if "f32" in registry.find(family).precisions:
        case = replace(case, problem=replace(case.problem, compute="f32"))
    return _legal(case, family, device)


def made(case: Case, family: str, device: Device, programs: Path) -> Made:
    """Compiles configurations until there are as many candidates as a case is to run."""
    pool, wanted = configs(case, family, device), A_FAMILY[case.problem.compute]
    found, lost, failed = list[Candidate](), dict[Config, str](), dict[Config, str]()
    for config in pool[: ATTEMPTS * wanted]:
        if len(found) == wanted:
            break
        one = attempt(plan_of(config, case), device, programs)
        if isinstance(one, Candidate):
            spills = _spills(one)
            found += [] if spills else [one]
            lost |= {config: spills} if spills else {}
        elif (loss := ptxas.loss(one.log)) is not None:
            lost[config] = loss
        else:
            failed[config] = one.reason
    return Made(len(pool), tuple(found), lost, failed)


def library(cases: Iterable[Case], device: Device, programs: Path) -> dict[tuple[Case, str], Made]:
    """What every family has for every case, compiled on all cores."""

    def one(key: tuple[Case, str]) -> tuple[tuple[Case, str], Made]:
        return key, made(*key, device, programs)

    keys = [(case, family) for case in cases for family in serving(case.problem)]
    with ThreadPoolExecutor() as pool:
        return dict(pool.map(one, keys))


def with_values(
    case: Case, family: str, values: Mapping[str, Value], device: Device, programs: Path | None
) -> Candidate:
    """A candidate of the family whose parameters have these values.

    Raises:
        AssertionError: if there is none.
    """
    pool = [one for one in configs(case, family, device) if values.items() <= one.values.items()]
    assert pool, f"{family} has no legal configuration with {values} for {case}"
    attempts = (attempt(plan_of(one, case), device, programs) for one in pool[:ATTEMPTS])
    found = next((one for one in attempts if isinstance(one, Candidate) and not _spills(one)), None)
    assert found, f"none of {len(pool)} configurations with {values} compiles for {case}"
    return found


def plan_of(config: Config, case: Case) -> LaunchPlan:
    problem = case.problem
    strides = case.strides if problem.batch > 1 else (0, 0, 0)
    sizes = problem.element_bytes, problem.element_bytes, problem.output_bytes
    alignment = Alignment.of(case.leading_dimensions, (0, 0, 0), sizes, strides)
    return registry.find(config.family).plan(config, problem, alignment)


def attempt(
    plan: LaunchPlan, device: Device, programs: Path | None, sources: Path | None = None
) -> Candidate | CompileFailure:
    """The candidate with all its programs, or why one does not compile."""
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
    one = attempt(plan, device, programs, sources)
    assert isinstance(one, Candidate), f"{plan.config}: {one.reason}"
    return one


def broken(fault: str, problem: Problem, device: Device, programs: Path) -> Candidate:
    """A naive product that does what `fault` says besides; `none` is a correct one."""
    template = Template("broken.cu", "broken", (("FAULT", FAULTS.index(fault)),))
    grid = (-(-problem.n // 16), -(-problem.m // 16), problem.batch)
    arguments = (*operands(problem), Argument("pointer", "counters"))
    launch = Launch(template, grid, (16, 16, 1), 0, arguments)
    config = Config.of("broken", {"fault": fault})
    plan = LaunchPlan(config, (launch,), counters=COUNTERS)
    return candidate(plan, device, programs, Path(__file__).parent)


def _spills(one: Candidate) -> str:
    """What its kernels spill, which no search would run."""
    return " ".join(
        f"{program.template.kernel} spills {program.spills} bytes, {program.local} of local memory"
        for program in one.programs
        if program.spills or program.local
    )


def _varied(pool: Iterable[Config], draw: random.Random) -> Iterator[Config]:
    """The configurations at random, one of each kind by turns."""
    kinds: dict[tuple[Value | None, ...], list[Config]] = {}
    for config in pool:
        values = config.values
        kinds.setdefault(tuple(values.get(name) for name in KINDS), []).append(config)
    groups = list(kinds.values())
    draw.shuffle(groups)
    for group in groups:
        draw.shuffle(group)
    return (one for turn in zip_longest(*groups) for one in turn if one is not None)


@cache
def _legal(case: Case, family: str, device: Device) -> tuple[Config, ...]:
    draw = random.Random(str(case))
    if family != "simt":
        return tuple(_varied(space.feasible(case.problem, device, family).configs, draw))
    pool = list(_sample(family, device))
    draw.shuffle(pool)
    legal = (one for one in pool if space.rejection(one, case.problem, device) is None)
    return tuple(islice(legal, MANY))


@lru_cache
def _sample(family: str, device: Device) -> tuple[Config, ...]:
    """Configurations of a family whose whole space takes long to walk."""
    draw = random.Random(family)
    pools = (space.feasible(problem, device, family).configs for problem in (LARGE, SMALL, FLAT))
    return tuple(one for pool in pools for one in draw.sample(pool, min(300, len(pool))))
