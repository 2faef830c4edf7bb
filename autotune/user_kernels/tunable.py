"""A user kernel and its call, as a `Tunable` of the tuning loop.

Metrics and scores are the user's functions of a measured configuration. Where there is no
reference, the first configuration that runs stands in for it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from typing import Any, ClassVar, Protocol

from numpy.typing import NDArray

from autotune.device import Device
from autotune.errors import AutotuneError, UsageError
from autotune.families.config import Config, Value
from autotune.families.plan import Argument, Launch, LaunchPlan
from autotune.files import limits
from autotune.measure.measurement import Energy, Evidence, Failure, Measurement, Stage
from autotune.measure.runner import Candidate, Runner
from autotune.model.legality import Rejection
from autotune.problem.call import KernelCall
from autotune.records import Entry, KernelRecord, Provenance
from autotune.records.kernel_record import Geometry, KernelEntry, KernelLaunch
from autotune.tuning.pipeline import Compile, prepare
from autotune.tuning.trials import Trial
from autotune.tuning.tunable import Candidates, Tunable
from autotune.user_kernels.definition import UserKernel
from autotune.user_kernels.geometry import evaluate, rejection


@dataclass(frozen=True)
class KernelResult:
    """A measured configuration, as metrics and objectives see it; `result["TILE"]` is the value of
    a parameter.

    Attributes:
        params: the value of each parameter.
        time_us: median time in microseconds, hot.
        spread_us: its spread.
        cold_us: median time with L2 flushed; None if not measured.
        threads: threads a block.
        registers: registers a thread.
        shared: bytes of shared memory a block.
        local: bytes of local memory a thread.
        occupancy: share (0..1) of the SM's warps that can be resident.
        energy: energy of a run; None if not measured (see `energy` of `Search`).
    """

    params: Mapping[str, Value]
    time_us: float
    spread_us: float
    cold_us: float | None
    threads: int
    registers: int
    shared: int
    local: int
    occupancy: float
    energy: Energy | None = None

    @classmethod
    def of(cls, entry: Entry) -> KernelResult:
        """The result in an entry."""
        measured, resources = entry.measurement, entry.resources
        return cls(
            entry.config.values,
            *(measured.time_us, measured.spread_us, measured.cold_us),
            *(resources.threads, resources.registers, resources.shared, resources.local),
            entry.occupancy,
            measured.energy,
        )

    def __getitem__(self, name: str) -> Any:
        return self.params[name]

    @property
    def joules(self) -> float:
        """The energy of a run in joules."""
        return self._metered.joules

    @property
    def power_w(self) -> float:
        """The mean power in watts."""
        return self._metered.power_w

    @property
    def clock_mhz(self) -> float:
        """The mean clock of the SMs in MHz."""
        return self._metered.clock_mhz

    @property
    def _metered(self) -> Energy:
        if self.energy is None:
            raise UsageError("energies were not measured; give search=autotune.Search(energy=True)")
        return self.energy


Metric = Callable[[KernelResult], float]
"""A number that follows from a result."""


@dataclass(frozen=True)
class Score:
    """The user's objective: a function whose value is minimised."""

    function: Metric

    def __call__(self, trial: Trial) -> float:
        """The value of a trial; infinite for a failure.

        Raises:
            UsageError: if the function fails, or its value is not a positive number.
        """
        entry = trial.entry
        return math.inf if entry is None else self.of(entry)

    def of(self, entry: Entry) -> float:
        """The value of an entry; raises as for a trial."""
        value = evaluated("objective", self.function, entry)
        if not value > 0:
            raise UsageError(
                f"the objective of {entry.config} is {value!r}; return a number above 0; the "
                "least is best, so return 1 / x to maximise x"
            )
        return value


def evaluated(name: str, function: Metric, entry: Entry) -> float:
    """The value of a metric for an entry.

    Raises:
        UsageError: if the function fails, or its value is not a finite number.
    """
    try:
        value = float(function(KernelResult.of(entry)))
    except Exception as error:
        raise UsageError(
            f"{name} fails for {entry.config}: {type(error).__name__}: {error}; it is called with "
            "a result that has time_us, cold_us, registers, shared, occupancy and the parameters"
        ) from error
    if not math.isfinite(value):
        raise UsageError(f"{name} of {entry.config} is {value!r}; return a finite number")
    return value


def check_metrics(metrics: Mapping[str, Metric] | None) -> dict[str, Metric]:
    """Metrics by their names.

    Raises:
        UsageError: for an empty name, or a value that is not a function.
    """
    for name, function in (metrics or {}).items():
        if not isinstance(name, str) or not name.strip() or not callable(function):
            raise UsageError(
                f"metric {name!r} is {function!r}; give a name and a function of a result"
            )
    return dict(metrics or {})


LARGEST_SOURCE = limits.RECORD // 2
"""Characters of a source, with its headers, that a record keeps."""

Combination = tuple[Config, Geometry | str]
"""A configuration with its geometry, or the reason of the constraint that it breaks."""


@dataclass(frozen=True)
class KernelTunable(Tunable[KernelRecord]):
    """A user kernel, its call and the arguments of its launches, as a `Tunable`.

    A configuration that the device cannot launch, or that breaks a constraint of the user, is
    rejected under its reason. There is no cost model, so nothing is ranked or guessed, and no
    vendor baseline, so only the reference decides.
    """

    punctual: ClassVar[bool] = True
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

        def combination(config: Config) -> Combination:
            broken = (
                reason
                for reason, predicate in self.kernel.constraints.items()
                if not evaluate(f"constraint {reason!r}", predicate, config)
            )
            return config, next(broken, None) or self.kernel.geometry(config)

        return tuple(map(combination, self.kernel.combinations()))

    def digest(self, sources: str) -> str:
        """A hash of everything but the device that times depend on: the form of an instance, the
        call, the geometry of every configuration, and `sources`, a hash of the source with its
        headers."""
        geometries = [
            (str(config), astuple(geometry))
            for config, geometry in self.combinations
            if not isinstance(geometry, str)
        ]
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
        self, runner: Runner, unsafe: Callable[[Config], bool], *, ranked: int | None
    ) -> Candidates:
        """The configurations that the device can launch, in order of enumeration."""
        del ranked
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

    def plan(self, config: Config) -> LaunchPlan:
        """The single launch. Local memory is allowed: a user kernel may use it on purpose."""
        geometry, template = self.kernel.geometry(config), self.kernel.source.template(config)
        launch = Launch(template, geometry.grid, geometry.block, geometry.shared, self.arguments)
        return LaunchPlan(config, (launch,), local_memory=True)

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
        source = self.kernel.source
        if source.size > LARGEST_SOURCE:
            return None
        return KernelLaunch(source, self.call, self.kernel.geometry(config))


class ResultRunner(Runner, Protocol):
    """A runner that hands the arrays of a run back."""

    def results(self, candidate: Candidate) -> Sequence[NDArray[Any]] | Failure:
        """The contents that a run leaves in each array argument, in order."""
        ...


def first_results(
    tunable: KernelTunable, runner: ResultRunner, compile: Compile
) -> tuple[Config, Sequence[NDArray[Any]]]:
    """The first configuration that runs, in the order of the parameters, and what it leaves in the
    array arguments.

    Raises:
        AutotuneError: if none runs; with the first reason.
    """
    reason = "the device can launch none"
    for config, rejected in tunable.rejected(runner.device):
        if rejected is not None:
            continue
        candidate = prepare(tunable.plan(config), runner, compile)
        outcome = candidate if isinstance(candidate, Failure) else runner.results(candidate)
        if not isinstance(outcome, Failure):
            return config, outcome
        if reason.startswith("the device"):
            reason = f"{config}: {outcome.stage}: {outcome.reason}"
    raise AutotuneError(
        f"no configuration of {tunable} runs, so that none can stand in for a reference: {reason}"
    )
