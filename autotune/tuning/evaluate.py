"""Configurations become candidates, and candidates trials; every failure is a value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from autotune.cuda.program import CompileFailure, Program
from autotune.device import CLUSTER_SIZES, Device
from autotune.families.config import Config
from autotune.families.plan import Launch, LaunchPlan, Resources, Template
from autotune.families.source_text import hash_of
from autotune.records import Entry, Store
from autotune.runners.base import Candidate, Evidence, Failure, Measurement, Runner
from autotune.runners.objective import Objective

Compile = Callable[[Template, str], Program | CompileFailure]

DANGEROUS = ("crash", "timeout")
"""Stages whose failures can also hit the next candidate, or the device."""

SPILL_LIMIT = 40
"""Bytes a thread that a kernel may spill, stores and loads together, and still be tried: a register
or two kept until a tile's end. Timing decides better about so little."""


@dataclass(frozen=True)
class Trial:
    """The outcome of one configuration.

    `resources` are those of the dominant launch. They, `occupancy` (0..1) and `limiter` are None
    for a configuration that failed before it could run.
    """

    config: Config
    outcome: Measurement | Failure
    resources: Resources | None = None
    occupancy: float | None = None
    limiter: str | None = None

    @classmethod
    def of(cls, candidate: Candidate, outcome: Measurement | Failure, device: Device) -> Trial:
        """The trial of a candidate that the runner ran or refused."""
        resources = candidate.resources
        resident = resources.occupancy(device, candidate.plan.main.cluster)
        return cls(candidate.config, outcome, resources, resident.occupancy, resident.limiter)

    @property
    def time_us(self) -> float:
        """Median hot time in microseconds; infinite for a failure."""
        return self.outcome.time_us if isinstance(self.outcome, Measurement) else math.inf

    def time(self, objective: Objective) -> float:
        """Median hot or cold time in microseconds; infinite if there is none."""
        if isinstance(self.outcome, Failure):
            return math.inf
        estimate = self.outcome.estimate(objective)
        return math.inf if estimate is None else estimate.time_us

    @property
    def entry(self) -> Entry | None:
        """The entry to record; None for a failure."""
        if (
            isinstance(self.outcome, Failure)
            or self.resources is None
            or self.occupancy is None
            or self.limiter is None
        ):
            return None
        return Entry(self.config, self.outcome, self.resources, self.occupancy, self.limiter)


def prepare(plan: LaunchPlan, runner: Runner, compile: Compile) -> Candidate | Failure:
    """The candidate that runs a plan's launches, or why it may not run.

    Every launch is compiled, unless the runner knows the resources already. The compiler's
    registers and spills, and the bounds that the kernel declares, decide whether the candidate may
    run; spills are accepted where the plan has local memory.
    """
    resources = runner.resources(plan.config)
    if resources is not None:
        failure = _over_budget(resources, plan.main, runner.device)
        return failure or Candidate(plan.config, plan, (), resources)
    programs: list[Program] = []
    launches: list[Launch] = []
    for launch in plan.launches:
        program = compile(launch.template, runner.device.arch)
        if isinstance(program, CompileFailure):
            return Failure("compile", program.reason)
        launch = with_cluster(launch, program)
        failure = None if plan.local_memory else _spilled(program)
        failure = failure or _refused(launch, program)
        failure = failure or _over_budget(resources_of(launch, program), launch, runner.device)
        if failure is not None:
            return failure
        programs.append(program)
        launches.append(launch)
    dominant = resources_of(plan.main, programs[plan.product])
    plan = replace(plan, launches=tuple(launches))
    return Candidate(plan.config, plan, tuple(programs), dominant)


def resources_of(launch: Launch, program: Program) -> Resources:
    """The SM resources of a compiled launch."""
    return Resources(
        threads=launch.threads,
        registers=program.registers,
        shared=program.shared + launch.shared,
        local=program.local,
        barriers=program.barriers,
    )


def with_cluster(launch: Launch, program: Program) -> Launch:
    """The launch with the cluster that its kernel declares, if devices state how many of that size
    are resident."""
    size = program.bounds.cluster_blocks
    return replace(launch, cluster=size) if size in CLUSTER_SIZES else launch


def _refused(launch: Launch, program: Program) -> Failure | None:
    refusal = program.bounds.refusal(launch)
    if refusal is None:
        return None
    return Failure("resources", f"{launch.template.kernel}: {': '.join(refusal)}")


def _spilled(program: Program) -> Failure | None:
    if program.local <= program.spills <= SPILL_LIMIT:
        return None
    return Failure(
        "resources",
        f"{program.template.kernel} spills: {program.spills} bytes of spills and {program.local} "
        f"bytes of local memory a thread, at {program.registers} registers",
    )


def _over_budget(resources: Resources, launch: Launch, device: Device) -> Failure | None:
    resident = resources.occupancy(device, launch.cluster)
    if resident.blocks_per_sm:
        return None
    return Failure(
        "resources",
        f"{launch.template.kernel}: no block fits an SM of {device.name}: "
        f"{resources.threads} threads of {resources.registers} registers, "
        f"{resources.shared} bytes of shared memory (limited by {resident.limiter})",
    )


class Quarantine:
    """The store's quarantine for kernels of some sources: other sources may have fixed a kernel.

    Only live devices have one: a recording or a model is in no danger.
    """

    def __init__(self, store: Store, device: Device, evidence: Evidence, source: str) -> None:
        self._store, self._device = store, device
        self._live = evidence == "measured"
        self._source = source

    def barred(self) -> Callable[[Config], bool]:
        """Whether a configuration is quarantined."""
        if not self._live:
            return lambda _: False
        barred = self._store.quarantined(self._device)
        # Usually the quarantine is empty, and no configuration needs its key.
        return (lambda config: self._key(config) in barred) if barred else (lambda _: False)

    def note(self, tunable: object, config: Config, failure: Failure) -> None:
        """Quarantines a configuration if its failure endangers the device.

        Raises:
            CacheError: if the quarantine cannot be written.
        """
        if self._live and failure.stage in DANGEROUS:
            reason = f"{tunable}: {failure.stage}: {failure.reason}"
            self._store.quarantine(self._device, self._key(config), reason)

    def _key(self, config: Config) -> str:
        return f"{config}@{hash_of(self._source, config.family)}"
