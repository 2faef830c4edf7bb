"""A configuration to a candidate that can run, and to a trial; every failure is a value."""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache

from autotune import families
from autotune.compiler import CompileFailure, Program
from autotune.config import Config
from autotune.device import Device
from autotune.plan import Launch, Resources, Template
from autotune.problem import Problem
from autotune.runner import Candidate, Failure, Measurement, Runner
from autotune.store import Entry

Compile = Callable[[Template, str], Program | CompileFailure]
Prepared = Generator[tuple[Config, Candidate | Failure], None, None]


@dataclass(frozen=True)
class Trial:
    """What was found out about one configuration.

    `resources` are those of the launch that dominates, the first one; they, `occupancy` (0..1)
    and `limiter` are unknown for a configuration that fell before it could run.
    """

    config: Config
    outcome: Measurement | Failure
    resources: Resources | None = None
    occupancy: float | None = None
    limiter: str | None = None

    @classmethod
    def of(
        cls, config: Config, resources: Resources, outcome: Measurement | Failure, device: Device
    ) -> Trial:
        """The trial of a configuration that ran, or was refused by the runner."""
        resident = resources.occupancy(device)
        return cls(config, outcome, resources, resident.occupancy, resident.limiter)

    @property
    def time_us(self) -> float:
        """Median hot time in microseconds; infinite for a failure."""
        return self.outcome.time_us if isinstance(self.outcome, Measurement) else math.inf

    @property
    def entry(self) -> Entry | None:
        """What to record of it; None for a failure."""
        if (
            isinstance(self.outcome, Failure)
            or self.resources is None
            or self.occupancy is None
            or self.limiter is None
        ):
            return None
        return Entry(self.config, self.outcome, self.resources, self.occupancy, self.limiter)


def prepare(
    config: Config, problem: Problem, runner: Runner, compile: Compile
) -> Candidate | Failure:
    """The candidate of a legal configuration, for operands without gaps.

    Every launch is compiled unless the runner knows the resources already. The registers and
    spills that the compiler settled on decide here whether the candidate may run.
    """
    plan = families.plan(config, problem)
    known = runner.resources(config)
    if known is not None:
        failure = _over_budget(known, plan.launches[0], runner.device)
        return failure or Candidate(config, plan, (), known)
    programs: list[Program] = []
    for launch in plan.launches:
        program = compile(launch.template, runner.device.arch)
        if isinstance(program, CompileFailure):
            return Failure("compile", program.reason)
        failure = _spilled(program) or _over_budget(_taken(launch, program), launch, runner.device)
        if failure is not None:
            return failure
        programs.append(program)
    return Candidate(config, plan, tuple(programs), _taken(plan.launches[0], programs[0]))


def ahead(
    configs: Iterable[Config],
    problem: Problem,
    runner: Runner,
    compile: Compile,
    *,
    window: int,
    jobs: int | None = None,
) -> Prepared:
    """Prepares configurations in their order, with `window` of them compiling ahead.

    A configuration is taken from `configs` only when there is room for it, so what is taken
    depends on what the caller has done with the earlier ones and never on how fast compilation
    is. A template that several of those under way share is compiled once. Close the iterator to
    drop what is still queued; `jobs` threads compile, by default one for each core.
    """
    pool = ThreadPoolExecutor(jobs or os.cpu_count() or 1, thread_name_prefix="compile")

    @lru_cache(maxsize=8 * window)
    def compiling(template: Template, arch: str) -> Future[Program | CompileFailure]:
        return pool.submit(compile, template, arch)

    source = iter(configs)
    waiting: deque[Config] = deque()
    try:
        while True:
            while len(waiting) < window and (config := next(source, None)) is not None:
                if runner.resources(config) is None:
                    for launch in families.plan(config, problem).launches:
                        compiling(launch.template, runner.device.arch)
                waiting.append(config)
            if not waiting:
                return
            config = waiting.popleft()
            yield (
                config,
                prepare(config, problem, runner, lambda *what: compiling(*what).result()),
            )
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _taken(launch: Launch, program: Program) -> Resources:
    return Resources(
        threads=launch.threads,
        registers=program.registers,
        shared=program.shared + launch.shared,
        local=program.local,
        barriers=program.barriers,
    )


def _spilled(program: Program) -> Failure | None:
    if not (program.spills or program.local):
        return None
    return Failure(
        "resources",
        f"{program.template.kernel} spills: {program.spills} bytes of spills and {program.local} "
        f"bytes of local memory a thread, at {program.registers} registers",
    )


def _over_budget(resources: Resources, launch: Launch, device: Device) -> Failure | None:
    resident = resources.occupancy(device)
    if resident.blocks_per_sm:
        return None
    return Failure(
        "resources",
        f"{launch.template.kernel}: no block fits an SM of {device.name}: "
        f"{resources.threads} threads of {resources.registers} registers, "
        f"{resources.shared} bytes of shared memory (limited by {resident.limiter})",
    )
