"""A kernel of the user's with its arguments, as the loop sees it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from hashlib import sha256

from autotune.candidates import features
from autotune.candidates.features import Describe, Description
from autotune.candidates.space import Rejection
from autotune.device import Device
from autotune.errors import AutotuneError
from autotune.families.config import Config
from autotune.families.plan import Argument, Launch, LaunchPlan, Resources
from autotune.problem.call import Call
from autotune.records import Entry, KernelRecord, Provenance, Store
from autotune.runners.base import Evidence, Failure, Measurement, Runner, Stage
from autotune.tuning.tunable import Candidates
from autotune.user_kernels.definition import UserKernel
from autotune.user_kernels.geometry import Geometry, evaluate, geometry_of, rejection

# Registers of a kernel that is not compiled yet: a guess that fits any block.
UNKNOWN = 32

Combination = tuple[Config, Geometry | str]
"""A configuration with its geometry, or the reason of the constraint that it breaks."""


@dataclass(frozen=True)
class KernelTunable:
    """A kernel, what it is called with, and what its launches are given, as a `Tunable`.

    What a device cannot launch, and what breaks a constraint of the user's, is rejected under its
    reason. There is no model: nothing is ranked.
    """

    kernel: UserKernel
    call: Call
    arguments: tuple[Argument, ...] = ()

    def __str__(self) -> str:
        return str(self.call)

    @property
    def slug(self) -> str:
        """The call's."""
        return self.call.slug

    @property
    def kinds(self) -> str:
        """The kernel's name."""
        return self.kernel.family

    @cached_property
    def combinations(self) -> tuple[Combination, ...]:
        """Every combination of the parameters' values.

        Raises:
            UsageError: if a constraint, or what gives the geometry, fails.
        """
        return tuple(self._combinations())

    def digest(self, sources: str) -> str:
        """A hash of what times depend on besides the device: `sources`, a hash of the source with
        its headers, what is instantiated and called, and the geometry of every configuration."""
        geometry = [(str(one), astuple(held)) for one, held in self._launchable()]
        parts = (sources, self.kernel.form, str(self.call), geometry)
        return sha256(json.dumps(parts).encode()).hexdigest()

    def rejected(self, device: Device) -> Iterator[tuple[Config, Rejection | None]]:
        """Every combination, and why it cannot run on a device."""
        for config, held in self.combinations:
            if isinstance(held, str):
                yield config, Rejection(held, "a constraint is not fulfilled")
            else:
                yield config, rejection(held, device)

    def candidates(
        self, runner: Runner, unsafe: Callable[[Config], bool], *, survey: int | None
    ) -> Candidates:
        """What the device can launch, in order."""
        del survey
        counts, examples = Counter[str](), dict[str, str]()
        configs: list[Config] = []
        for config, why in self.rejected(runner.device):
            if why is None and unsafe(config):
                why = Rejection("quarantined", "it crashed or hung before")
            if why is None:
                configs.append(config)
            else:
                counts[why.reason] += 1
                examples.setdefault(why.reason, f"{config}: {why.detail}")
        if not configs:
            known = (f"{why} {count}, such as {examples[why]}" for why, count in counts.items())
            raise AutotuneError(
                f"no configuration of {self} can run on {runner.device.name}; rejected: "
                + "; ".join(known)
            )
        return Candidates((), tuple(configs), dict(counts.most_common()))

    def guesses(self, there: Candidates, device: Device, store: Store) -> tuple[Config, ...]:
        """None: nothing is known of the kernel."""
        del there, device, store
        return ()

    def describe(self, device: Device) -> Describe:
        """What a block takes, and how many there are; what they do is their own business."""

        def described(
            configs: Sequence[Config], resources: Sequence[Resources | None]
        ) -> Description:
            plans = [self.plan(config) for config in configs]
            taken = [
                given or Resources(plan.main.threads, UNKNOWN, plan.main.shared)
                for plan, given in zip(plans, resources, strict=True)
            ]
            return features.of_plans(plans, device, taken)

        return described

    def plan(self, config: Config) -> LaunchPlan:
        """The one launch. A stranger's kernel may use local memory on purpose."""
        held = geometry_of(self.kernel.grid, self.kernel.block, self.kernel.shared, config)
        template = self.kernel.template(config)
        launch = Launch(template, held.grid, held.block, held.shared, self.arguments)
        return LaunchPlan(config, (launch,), local_memory=True)

    def judged(self, measurement: Measurement, baseline: Measurement) -> Measurement | Failure:
        """The measurement: nobody else has this kernel, so its reference alone is the judge."""
        del baseline
        return measurement

    def stands(self, stage: Stage) -> bool:
        """All but wrong results: the reference may have been mended, or the tolerance widened."""
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
        return KernelRecord(device, evidence, tuple(entries), baseline, provenance, self.call)

    def _combinations(self) -> Iterator[Combination]:
        kernel = self.kernel
        for config in kernel.combinations():
            broken = (
                reason
                for reason, predicate in kernel.constraints.items()
                if not evaluate(f"constraint {reason!r}", predicate, config)
            )
            reason = next(broken, None)
            held = reason or geometry_of(kernel.grid, kernel.block, kernel.shared, config)
            yield config, held

    def _launchable(self) -> Iterator[tuple[Config, Geometry]]:
        return ((one, held) for one, held in self.combinations if not isinstance(held, str))
