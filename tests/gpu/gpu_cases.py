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
from autotune.plan import Alignment, Argument, Launch, LaunchPlan, Resources, Template
from autotune.problem import EPILOGUES, LAYOUTS, Problem
from autotune.runner import Candidate

LARGE, SMALL, FLAT = Problem(1023, 1025, 1027), Problem(20, 24, 300), Problem(7, 4099, 4099)
A_FAMILY = 4
"""Configurations of each family that a case runs."""

FAULTS = (
    *("none", "wrong element", "nan", "unwritten element", "reads C for beta 0", "ignores beta"),
    *("writes before C", "writes past C", "writes A", "writes between rows", "reads past A"),
    *("illegal access", "endless loop", "leaves a counter", "is not accurate", "forgets the bias"),
    "writes the bias",
)
COUNTERS = 4
"""What the broken kernels ask for; they have no use for them."""


@dataclass(frozen=True)
class Case:
    """A problem and how its operands lie: elements after the rows of A, B and C, and between the
    matrices of a batch; the batch has one of each operand named in `shared`."""

    problem: Problem
    gaps: tuple[int, int, int] = (0, 0, 0)
    between: tuple[int, int, int] = (0, 0, 0)
    shared: str = ""

    def __str__(self) -> str:
        laid = "".join(map(str, (*self.gaps, *self.between))) + self.shared
        return f"{self.problem.slug}-{laid}"

    @property
    def leading_dimensions(self) -> tuple[int, int, int]:
        lda, ldb, ldc = self.problem.leading_dimensions
        return lda + self.gaps[0], ldb + self.gaps[1], ldc + self.gaps[2]

    @property
    def strides(self) -> tuple[int, int, int]:
        stored = zip(
            *("abc", self.problem.stored_rows, self.leading_dimensions, self.between),
            strict=True,
        )
        a, b, c = (0 if name in self.shared else rows * ld + gap for name, rows, ld, gap in stored)
        return a, b, c


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

_BATCHES = [(1, 1, 1, 2), (33, 65, 17, 3), (64, 64, 64, 7), (128, 96, 256, 5), (1, 129, 100, 64)]
_BATCHES += [(5, 3, 2, 65535), (257, 255, 8, 2), (16, 16, 4099, 4), (200, 100, 50, 11)]
_BATCHES += [(127, 129, 131, 3), (96, 1536, 384, 2), (333, 444, 55, 2)]
_APART = [((0, 0, 0), (0, 0, 0), ""), ((4, 4, 4), (8, 4, 12), ""), ((1, 2, 3), (5, 0, 7), "")]
_APART += [((0, 0, 0), (0, 0, 0), "b"), ((0, 1, 0), (0, 0, 1), "a")]

BATCHED = tuple(
    Case(
        Problem(
            *(m, n, k, "f32", LAYOUTS[i % len(LAYOUTS)], batch, EPILOGUES[i % len(EPILOGUES)]),
        ),
        *_APART[i % len(_APART)],
    )
    for i, (m, n, k, batch) in enumerate(_BATCHES)
)
FINISHED = tuple(
    Case(Problem(*shape, layout=layout, epilogue=epilogue), gaps)
    for epilogue in EPILOGUES[1:]
    for shape, layout, gaps in (
        ((129, 257, 65), "nn", (0, 0, 0)),
        ((64, 128, 4096), "tn", (0, 0, 0)),
        ((31, 33, 512), "nt", (1, 2, 3)),
    )
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
    strides = case.strides if case.problem.batch > 1 else (0, 0, 0)
    alignment = Alignment.of(case.leading_dimensions, (0, 0, 0), strides=strides)
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
    first, launch = made[plan.product], plan.main
    resources = Resources(
        launch.threads, first.registers, first.shared + launch.shared, first.local, first.barriers
    )
    return Candidate(plan.config, plan, tuple(made), resources)


def broken(fault: str, problem: Problem, device: Device, programs: Path) -> Candidate:
    """A naive product that does what `fault` says besides; `none` is a correct one."""
    template = Template("broken.cu", "broken", (("FAULT", FAULTS.index(fault)),))
    grid = (-(-problem.n // 16), -(-problem.m // 16), problem.batch)
    arguments = (*operands(problem), Argument("pointer", "counters"))
    launch = Launch(template, grid, (16, 16, 1), 0, arguments)
    config = Config.of("broken", {"fault": fault})
    plan = LaunchPlan(problem, config, Alignment(1, 1, 1), (launch,), counters=COUNTERS)
    return candidate(plan, device, programs, Path(__file__).parent)


@lru_cache
def _sample(family: str, device: Device) -> tuple[Config, ...]:
    draw = random.Random(family)
    pools = (space.feasible(problem, device, family).configs for problem in (LARGE, SMALL, FLAT))
    return tuple(one for pool in pools for one in draw.sample(pool, min(300, len(pool))))
