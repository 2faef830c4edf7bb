"""A user kernel and its call, as a `Tunable` of the tuning loop.

Metrics and scores are the user's functions of a measured configuration. Where there is no
reference, the first configuration that runs stands in for it.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from hashlib import sha256
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from autotune.device import Device
from autotune.errors import AutotuneError, UsageError
from autotune.families.config import Config, Value
from autotune.families.plan import Argument, LaunchPlan
from autotune.files import limits
from autotune.measure.measurement import Energy, Failure, Stage
from autotune.measure.runner import Candidate, Runner
from autotune.model.legality import Rejection
from autotune.problem.call import KernelCall
from autotune.records import Entry, KernelRecord
from autotune.records.kernel_record import (
    NOT_VERIFIED,
    Geometry,
    KernelEntry,
    KernelLaunch,
    OwnValue,
)
from autotune.tuning.pipeline import Compile, prepare
from autotune.tuning.trials import Trial
from autotune.tuning.tunable import Candidates, SearchResult, Tunable
from autotune.user_kernels.arguments import launch_arguments
from autotune.user_kernels.definition import UserKernel
from autotune.user_kernels.expressions import Expression
from autotune.user_kernels.geometry import evaluate, rejection
from autotune.user_kernels.space import IN_ORDER, results_of
from autotune.user_kernels.steps import Computed, Scratch, Varying


@dataclass(frozen=True)
class KernelResult:
    """A measured configuration, as metrics and objectives see it; `result["TILE"]` is the value of
    a parameter, and `result["time_us"]` that of an attribute.

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
        return getattr(self, name) if name in MEASURED - {*self.params} else self.params[name]

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


MEASURED = {
    *("time_us", "spread_us", "cold_us", "threads", "registers", "shared", "local", "occupancy"),
    *("joules", "power_w", "clock_mhz"),
}
"""Attributes of a result that the text of a metric can name."""

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


def check_metrics(
    metrics: Mapping[str, Metric | str] | None, parameters: Collection[str] = ()
) -> dict[str, Metric]:
    """Metrics as functions, by their names. A text names attributes of a result and parameters.

    Raises:
        UsageError: for an empty name, or a value that is neither a function nor an expression.
    """
    checked = {}
    for name, metric in (metrics or {}).items():
        if isinstance(metric, str):
            metric = Expression(f"metric {name!r}", metric, (*parameters, *sorted(MEASURED)))
        if not isinstance(name, str) or not name.strip() or not callable(metric):
            raise UsageError(
                f"metric {name!r} is {metric!r}; give a name, and a function of a result or a text"
            )
        checked[name] = metric
    return checked


LARGEST_SOURCE = limits.RECORD // 2
"""Characters of a source, with its headers, that a record keeps."""

BROKEN = "a constraint is not fulfilled"

NOT_RECORDED = Rejection("not recorded", "the recording does not have it")

QUARANTINED = Rejection("quarantined", "it crashed or hung before")


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
    varying: Mapping[int, Varying] = field(default_factory=dict)
    """The arguments that depend on the configuration, by their positions."""
    verified: str = ""
    """The configuration or the kernel whose results stand in for a reference; empty with a
    reference; `NOT_VERIFIED` if nothing is compared."""
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

    def digest(self, sources: str) -> str:
        """A hash of everything but the device that times depend on: the form of an instance, the
        call, the geometry of every configuration, and `sources`, a hash of the source with its
        headers."""
        (places, geometries), configs = self.kernel.geometries, self.kernel.space.configs
        plain = [tuple(tuple(vars(each).values()) for each in own) for own in geometries]
        varied, values = results_of(self._own, configs)
        hashed: object
        if self.kernel.size <= IN_ORDER:
            rows = zip(configs, places.tolist(), varied.tolist(), strict=True)
            hashed = [(str(config), *plain[at], *values[own]) for config, at, own in rows]
        else:
            codes = sha256(configs.codes.tobytes()).hexdigest()
            hashed = self.kernel.parameters, codes, _ranked(plain, places), _ranked(values, varied)
        source = self.kernel.source
        parts: list[object] = [sources, source.form, str(self.call), hashed]
        if source.defines or source.options:
            parts += source.defines, source.options
        parts += map(astuple, self.kernel.recorded)
        if self.metered:
            parts.append("every trial with its energy")
        if self.verified == NOT_VERIFIED:
            parts.append(NOT_VERIFIED)
        elif self.verified:
            first = self.verified.startswith(f"{self.kinds}:") or not self.kernel.parameters
            parts.append(
                f"verified against {'the first configuration' if first else self.verified}"
            )
        return sha256(json.dumps(parts).encode()).hexdigest()

    def rejected(self, device: Device) -> Iterator[tuple[Config, Rejection | None]]:
        """Every combination, with the reason why it cannot run on a device, or None if it can.

        Raises:
            UsageError: for more than `IN_ORDER` combinations, or if a constraint or a function of
                the geometry fails.
        """
        kernel = self.kernel
        if kernel.size > IN_ORDER:
            raise UsageError(
                f"{kernel.name} has {kernel.size:,} combinations of parameters; give values that "
                f"have at most {IN_ORDER:,}"
            )
        for config in kernel.combinations():
            broken = (
                reason
                for reason, predicate in kernel.constraints.items()
                if not evaluate(f"constraint {reason!r}", predicate, config)
            )
            if reason := next(broken, None):
                yield config, Rejection(reason, BROKEN)
            else:
                yield config, _refused(kernel.geometry(config), device)

    def candidates(
        self, runner: Runner, barred: Collection[Config], *, ranked: int | None
    ) -> Candidates:
        """The configurations that the device can launch, in order of enumeration."""
        del ranked
        space, (places, geometries) = self.kernel.space, self.kernel.geometries
        refused = [_refused(own, runner.device) for own in geometries]
        why = [refused[place] for place in places.tolist()]
        if (configs := runner.known()) is not None:
            recorded = {*space.configs.rows(configs).tolist()}
            why = [
                each if row in recorded else each or NOT_RECORDED for row, each in enumerate(why)
            ]
        for row in space.configs.rows(barred):
            why[row] = why[row] or QUARANTINED
        counts = Counter(each.reason for each in why if each) + Counter(space.rejected)
        if not (left := space.configs.taken([each is None for each in why])):
            examples = {reason: f"{config}: {BROKEN}" for reason, config in space.examples.items()}
            for config, rejected in zip(space.configs, why, strict=True):
                if rejected and rejected.reason not in examples:
                    examples[rejected.reason] = f"{config}: {rejected.detail}"
            reasons = (
                f"{reason} {counts[reason]}, such as {text}" for reason, text in examples.items()
            )
            raise AutotuneError(
                f"no configuration of {self} can run on {runner.device.name}; rejected: "
                + "; ".join(reasons)
            )
        return Candidates((), left, dict(counts.most_common()))

    def plan(self, config: Config) -> LaunchPlan:
        """The launches in their order, with the arguments of the call."""
        return self._whole(config).plan(config, self.arguments)

    def _own(self, config: Config) -> tuple[tuple[int, OwnValue], ...]:
        """The arguments that the configuration determines, as `KernelLaunch` has them."""
        return tuple(
            (
                place,
                varying.size(config) if isinstance(varying, Scratch) else _value(varying, config),
            )
            for place, varying in self.varying.items()
        )

    def stands(self, stage: Stage) -> bool:
        """All stages but "verify": the reference or the tolerance may have changed since."""
        return stage != "verify"

    def record(self, result: SearchResult) -> KernelRecord:
        """The record of the call."""
        device, evidence, entries, baseline, provenance = result
        made = device, evidence, tuple(map(self._entry, entries)), baseline, provenance
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
        launch = self._whole(config)
        return None if launch.source.size > LARGEST_SOURCE else launch

    def _whole(self, config: Config) -> KernelLaunch:
        kernel = self.kernel
        source, geometries = kernel.at(config).source, kernel.geometry(config)
        return KernelLaunch(source, self.call, geometries, kernel.recorded, self._own(config))


def _refused(geometries: Sequence[Geometry], device: Device) -> Rejection | None:
    return next(filter(None, (rejection(each, device) for each in geometries)), None)


def _ranked(values: Sequence[Any], places: NDArray[np.intp]) -> tuple[object, str]:
    """The distinct values, and a hash of which each configuration has."""
    ordered = sorted({*values})
    ranks = {value: rank for rank, value in enumerate(ordered)}
    which = np.array([ranks[value] for value in values], np.int32)[places]
    return ordered, sha256(which.tobytes()).hexdigest()


def _value(number: Computed, config: Config) -> OwnValue:
    """A number in a configuration, as the driver takes it."""
    (argument,) = launch_arguments([number.value(config)])
    assert isinstance(argument.value, int | float)
    return argument.value


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
    reason = ""
    for config in tunable.candidates(runner, (), ranked=None).configs:
        candidate = prepare(tunable.plan(config), runner, compile)
        outcome = candidate if isinstance(candidate, Failure) else runner.results(candidate)
        if not isinstance(outcome, Failure):
            return config, outcome
        reason = reason or f"{config}: {outcome.stage}: {outcome.reason}"
    raise AutotuneError(
        f"no configuration of {tunable} runs, so that none can stand in for a reference: {reason}"
    )
