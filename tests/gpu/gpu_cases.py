"""Candidates to run on a GPU: samples of every family, and kernels that are broken on purpose."""

from __future__ import annotations

import random
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from autotune import families, space
from autotune.compiler import CompileFailure, compile
from autotune.config import Config
from autotune.device import Device
from autotune.families.conventions import operands
from autotune.plan import Alignment, Launch, LaunchPlan, Resources, Template
from autotune.problem import LAYOUTS, Problem
from autotune.runner import Candidate

LARGE = Problem(1023, 1025, 1027)
A_FAMILY = 4
"""Configurations of each family that a case runs."""

FAULTS = (
    *("none", "wrong element", "nan", "unwritten element", "reads C for beta 0", "ignores beta"),
    *("writes before C", "writes past C", "writes A", "writes between rows", "reads past A"),
    *("illegal access", "endless loop"),
)


@dataclass(frozen=True)
class Case:
    """A problem and the gaps after the rows of A, B and C, in elements."""

    problem: Problem
    gaps: tuple[int, int, int]

    def __str__(self) -> str:
        return f"{self.problem.shape}-{self.problem.layout}-{''.join(map(str, self.gaps))}"

    @property
    def leading_dimensions(self) -> tuple[int, int, int]:
        lda, ldb, ldc = self.problem.leading_dimensions
        return lda + self.gaps[0], ldb + self.gaps[1], ldc + self.gaps[2]


_PRIMES = [(2, 3, 5), (7, 11, 13), (17, 19, 23), (31, 37, 41), (53, 61, 67), (71, 73, 79)]
_PRIMES += [(97, 101, 103), (127, 131, 137), (251, 257, 263), (509, 521, 523), (1021, 1031, 1033)]
_ONES = [(1, 1, 1), (1, 1, 97), (1, 97, 1), (97, 1, 1), (1, 89, 97), (89, 1, 97), (89, 97, 1)]
_ONES += [(1, 4096, 33), (4096, 1, 33), (1, 1, 65537)]
_TALL = [(4097, 3, 5), (8191, 16, 17), (10007, 31, 8), (2049, 64, 63), (3001, 129, 4)]
_FLAT = [(3, 4097, 5), (16, 8191, 17), (31, 10007, 8), (64, 2049, 63), (129, 3001, 4)]
_DEEP = [(3, 5, 4097), (16, 17, 8191), (31, 8, 10007), (64, 64, 16384), (63, 65, 30011)]
_EDGES = [(31, 31, 31), (32, 32, 32), (33, 33, 33), (63, 64, 65), (64, 64, 64), (65, 64, 63)]
_EDGES += [(127, 128, 129), (128, 128, 128), (129, 127, 128), (255, 256, 257), (256, 256, 256)]
_EDGES += [(257, 255, 256), (384, 192, 96), (512, 512, 512), (1023, 1025, 1027), (1024, 1024, 1024)]
_ROUND = [(100, 100, 100), (200, 300, 400), (1000, 1000, 1000), (250, 750, 50), (640, 480, 320)]
_ROUND += [(96, 1536, 384), (768, 768, 12), (333, 444, 555), (128, 4096, 144)]
SHAPES = (*_PRIMES, *_ONES, *_TALL, *_FLAT, *_DEEP, *_EDGES, *_ROUND)
_GAPS = ((0, 0, 0), (1, 2, 3), (4, 4, 4), (0, 0, 0), (8, 0, 1))

CASES = tuple(
    Case(Problem(*shape, layout=LAYOUTS[i % len(LAYOUTS)]), _GAPS[i % len(_GAPS)])
    for i, shape in enumerate(SHAPES)
)


def configs(case: Case, family: str, device: Device) -> list[Config]:
    """A few configurations that are legal for the case, other ones for other cases."""
    pool = list(_sample(family, device))
    random.Random(str(case)).shuffle(pool)
    legal = (one for one in pool if space.rejection(one, case.problem, device) is None)
    return [config for config, _ in zip(legal, range(A_FAMILY), strict=False)]


def compiled(plans: Iterable[LaunchPlan], device: Device, programs: Path) -> None:
    """Fills the cache on all cores."""
    templates = {launch.template for plan in plans for launch in plan.launches}
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda one: compile(one, device.arch, cache=programs), templates))


def plan_of(config: Config, case: Case) -> LaunchPlan:
    alignment = Alignment.of(case.leading_dimensions, (0, 0, 0))
    return families.find(config.family).plan(config, case.problem, alignment)


def candidate(
    plan: LaunchPlan, device: Device, programs: Path, sources: Path | None = None
) -> Candidate:
    """The candidate with all its programs.

    Raises:
        AssertionError: if one does not compile.
    """
    made = []
    for launch in plan.launches:
        program = compile(launch.template, device.arch, cache=programs, sources=sources)
        assert not isinstance(program, CompileFailure), f"{plan.config}: {program.reason}"
        made.append(program)
    first, launch = made[0], plan.launches[0]
    resources = Resources(
        launch.threads, first.registers, first.shared + launch.shared, first.local, first.barriers
    )
    return Candidate(plan.config, plan, tuple(made), resources)


def broken(fault: str, problem: Problem, device: Device, programs: Path) -> Candidate:
    """A naive product that does what `fault` says besides; `none` is a correct one."""
    template = Template("broken.cu", "broken", (("FAULT", FAULTS.index(fault)),))
    grid = (-(-problem.n // 16), -(-problem.m // 16), 1)
    launch = Launch(template, grid, (16, 16, 1), 0, operands(problem))
    config = Config.of("broken", {"fault": fault})
    plan = LaunchPlan(problem, config, Alignment(1, 1, 1), (launch,))
    return candidate(plan, device, programs, Path(__file__).parent)


@lru_cache
def _sample(family: str, device: Device) -> tuple[Config, ...]:
    legal = space.feasible(LARGE, device, family).configs
    return tuple(random.Random(family).sample(legal, min(400, len(legal))))
