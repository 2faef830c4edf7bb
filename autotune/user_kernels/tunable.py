"""A user kernel and its call, as a `Tunable` of the tuning loop."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from hashlib import sha256

from autotune.candidates import features
from autotune.candidates.features import Describe, Description
from autotune.candidates.legality import Rejection
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.families.config import Config
from autotune.families.plan import Argument, Launch, LaunchPlan, Resources
from autotune.files import limits
from autotune.problem.call import KernelCall
from autotune.records import Entry, KernelRecord, Provenance, Store
from autotune.records.kernel_record import Geometry, KernelEntry, KernelLaunch
from autotune.runners.base import Evidence, Failure, Measurement, Runner, Stage
from autotune.runners.objective import Objective
from autotune.tuning.tunable import Candidates
from autotune.user_kernels.definition import UserKernel
from autotune.user_kernels.geometry import evaluate, geometry_of, rejection
from autotune.user_kernels.outcomes import Metric, Score, evaluated

# Assumed for a kernel that is not compiled yet; few enough for any block size.
ASSUMED_REGISTERS = 32

LARGEST_SOURCE = limits.RECORD // 2
"""Characters of a source, with its headers, that a record keeps."""

Combination = tuple[Config, Geometry | str]
"""A configuration with its geometry, or the reason of the constraint that it breaks."""


@dataclass(frozen=True)
class KernelTunable:
    """A user kernel, its call and the arguments of its launches, as a `Tunable`.

    A configuration that the device cannot launch, or that breaks a constraint of the user, is
    rejected under its reason. There is no cost model, so nothing is ranked.
    """

    kernel: UserKernel
    call: KernelCall
    arguments: tuple[Argument, ...] = ()
    verified: str = ""
    """The configuration whose results stand in for a reference; empty with a reference."""
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    score: Score | None = None
    metered: bool = False
    """Whether every trial has an energy."""

    def __str__(self) -> str:
        return str(self.call)

    @property
    def slug(self) -> str:
        """The call as part of a file name."""
        return self.call.slug

    @property
    def kinds(self) -> str:
        """The kernel's name."""
        return self.kernel.family

    @cached_property
    def combinations(self) -> tuple[Combination, ...]:
        """Every combination of the parameters' values.

        Raises:
            UsageError: if the function of a constraint or of the geometry fails.
        """
        return tuple(self._combinations())

    def digest(self, sources: str) -> str:
        """A hash of everything but the device that times depend on: the form of an instance, the
        call, the geometry of every configuration, and `sources`, a hash of the source with its
        headers."""
        geometries = [(str(config), astuple(geometry)) for config, geometry in self._launchable()]
        source = self.kernel.source
        parts: tuple[object, ...] = (sources, source.form, str(self.call), geometries)
        if source.defines or source.options:
            parts = (*parts, source.defines, source.options)
        if self.metered:
            parts = (*parts, "every trial with its energy")
        if self.verified:
            parts = (*parts, "verified against the first configuration")
        return sha256(json.dumps(parts).encode()).hexdigest()

    def rejected(self, device: Device) -> Iterator[tuple[Config, Rejection | None]]:
        """Every combination, with the reason why it cannot run on a device, or None if it can."""
        for config, geometry in self.combinations:
            if isinstance(geometry, str):
                yield config, Rejection(geometry, "a constraint is not fulfilled")
            else:
                yield config, rejection(geometry, device)

    def candidates(
        self, runner: Runner, unsafe: Callable[[Config], bool], *, survey: int | None
    ) -> Candidates:
        """The configurations that the device can launch, in order of enumeration."""
        del survey
        counts, examples = Counter[str](), dict[str, str]()
        configs: list[Config] = []
        configs_known = runner.known()
        recorded = None if configs_known is None else frozenset(configs_known)
        for config, rejected in self.rejected(runner.device):
            if rejected is None and recorded is not None and config not in recorded:
                rejected = Rejection("not recorded", "the recording does not have it")
            if rejected is None and unsafe(config):
                rejected = Rejection("quarantined", "it crashed or hung before")
            if rejected is None:
                configs.append(config)
            else:
                counts[rejected.reason] += 1
                examples.setdefault(rejected.reason, f"{config}: {rejected.detail}")
        if not configs:
            reasons = (
                f"{reason} {count}, such as {examples[reason]}" for reason, count in counts.items()
            )
            raise AutotuneError(
                f"no configuration of {self} can run on {runner.device.name}; rejected: "
                + "; ".join(reasons)
            )
        return Candidates((), tuple(configs), dict(counts.most_common()))

    def contenders(self, device: Device, store: Store, objective: Objective) -> None:
        """None, as `guesses`."""
        del device, store, objective

    def guesses(
        self, candidates: Candidates, device: Device, store: Store, objective: Objective
    ) -> tuple[Config, ...]:
        """No guesses: nothing is known about the kernel."""
        del candidates, device, store, objective
        return ()

    def describe(self, device: Device) -> Describe:
        """The resources of a block and the number of blocks; the kernel's work is unknown."""

        def describe_plans(
            configs: Sequence[Config], resources: Sequence[Resources | None]
        ) -> Description:
            plans = [self.plan(config) for config in configs]
            assumed = [
                compiled or Resources(plan.main.threads, ASSUMED_REGISTERS, plan.main.shared)
                for plan, compiled in zip(plans, resources, strict=True)
            ]
            return features.of_plans(plans, device, assumed)

        return describe_plans

    def plan(self, config: Config) -> LaunchPlan:
        """The single launch. Local memory is allowed: a user kernel may use it on purpose."""
        kernel = self.kernel
        geometry = geometry_of(kernel.grid, kernel.block, kernel.shared, config)
        template = kernel.source.template(config)
        launch = Launch(template, geometry.grid, geometry.block, geometry.shared, self.arguments)
        return LaunchPlan(config, (launch,), local_memory=True)

    def judged(self, measurement: Measurement, baseline: Measurement) -> Measurement | Failure:
        """The measurement: there is no vendor baseline, so only the reference decides."""
        del baseline
        return measurement

    def inaccurate(self, configs: Sequence[Config], baseline: Measurement) -> Sequence[int]:
        """None: there is no vendor baseline."""
        del configs, baseline
        return ()

    def stands(self, stage: Stage) -> bool:
        """All stages but "verify": the reference or the tolerance may have changed since."""
        return stage != "verify"

    def record(
        self,
        *,
        device: Device,
        evidence: Evidence,
        entries: Sequence[Entry],
        baseline: Measurement | None,
        provenance: Provenance,
    ) -> KernelRecord:
        """The record of the call."""
        launchable = tuple(map(self._entry, entries))
        made = device, evidence, launchable, baseline, provenance
        return KernelRecord(*made, self.call, self.verified)

    def _entry(self, entry: Entry) -> KernelEntry:
        """An entry with what launching it takes, and the user's numbers."""
        metrics = tuple(
            (name, evaluated(f"metric {name!r}", function, entry))
            for name, function in self.metrics.items()
        )
        score = None if self.score is None else self.score.of(entry)
        made = KernelEntry.of(entry, self._launch(entry.config))
        return replace(made, metrics=metrics, score=score)

    def _launch(self, config: Config) -> KernelLaunch | None:
        """The launch that a record keeps for a configuration; None if the source is too large."""
        kernel = self.kernel
        if kernel.source.size > LARGEST_SOURCE:
            return None
        geometry = geometry_of(kernel.grid, kernel.block, kernel.shared, config)
        return KernelLaunch(kernel.source, self.call, geometry)

    def _combinations(self) -> Iterator[Combination]:
        kernel = self.kernel
        for config in kernel.combinations():
            broken = (
                reason
                for reason, predicate in kernel.constraints.items()
                if not evaluate(f"constraint {reason!r}", predicate, config)
            )
            reason = next(broken, None)
            yield (
                config,
                reason or geometry_of(kernel.grid, kernel.block, kernel.shared, config),
            )

    def _launchable(self) -> Iterator[tuple[Config, Geometry]]:
        return (
            (config, geometry)
            for config, geometry in self.combinations
            if not isinstance(geometry, str)
        )
