"""Measures again: records of another driver, compiler or kernel sources, and what runs today.

`retime` neither trusts nor throws away such records: their best few entries go through the same
verification and the same final round as after a search. Entries that are not timed again are not in
the new record, because their times could not be compared. The old record stays beside it as
`.superseded-<n>`. `check` measures what would run today beside the times of a bundle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from time import monotonic

from autotune import settings
from autotune.device import Device, same_model
from autotune.errors import (
    AutotuneError,
    ConfigError,
    DeviceError,
    NotFoundError,
    ProblemError,
    RunnerError,
)
from autotune.families import registry
from autotune.families.config import Config
from autotune.lookup.answer import Answer
from autotune.measure.measurement import Evidence, Failure, Measurement
from autotune.measure.objective import COLD, Objective
from autotune.measure.oracle import checked_accuracy
from autotune.measure.recording import Origin
from autotune.measure.runner import Candidate, Runner
from autotune.measure.targets import Target
from autotune.model import space
from autotune.model.legality import as_tuned
from autotune.problem import Problem
from autotune.records import Record, Store
from autotune.records.record import BEST_FIRST
from autotune.tuning.loop import provenance_of
from autotune.tuning.pipeline import Compile, Compiler, ahead, prepare
from autotune.tuning.trials import Quarantine, Trial

TOP = 3
"""The number of a record's entries that are timed again by default."""

Opened = Callable[[Problem], AbstractContextManager[Target]]


@dataclass(frozen=True)
class Retimed:
    """The result of measuring a record again.

    Attributes:
        old: the record.
        new: the record that replaces it; None if no entry works, or it could not be measured.
        failed: configurations that fail now, with the failure.
        trouble: why it could not be measured at all and stays unchanged; else empty.
    """

    old: Record
    new: Record | None
    failed: tuple[tuple[Config, Failure], ...] = ()
    trouble: str = ""


def retime(
    records: Iterable[Record], opened: Opened, store: Store, compile: Compile, *, top: int = TOP
) -> Iterator[Retimed]:
    """Measures the best `top` entries of each record again and saves those that work.

    If the first entries fail, the next ones are tried. A record with no working entry is set aside,
    so that nobody runs it. A record that cannot be measured, for lack of memory, stays unchanged.

    Args:
        records: measured records of one device.
        opened: opens the target that measures a problem there.
        store: the store of the records.
        compile: compiles a template for an architecture.
        top: number of entries.

    Raises:
        MissingError: without a GPU, a driver or a compiler.
        DeviceError: if the opened target does not measure, or is another device.
        CacheError: if the store cannot be written.
    """
    settings.refuse_frozen("cannot measure records again")
    for record in records:
        try:
            with opened(record.problem) as target:
                _require_same_model(record, target.runner)
                again = _Round(record, target.runner, target.origin, store, compile).retimed(top)
        except (RunnerError, ProblemError) as error:  # such as too little memory for this problem
            again = Retimed(record, None, trouble=str(error))
        yield again


class _Round:
    """Measures one record again on its device."""

    def __init__(
        self, record: Record, runner: Runner, origin: Origin, store: Store, compile: Compile
    ) -> None:
        self._began = monotonic()
        self._record, self._runner, self._origin = record, runner, origin
        self._store, self._compile = store, compile
        self._quarantine = Quarantine(store, runner.device, runner.evidence, origin.source)
        self._failed: dict[Config, Failure] = {}

    def retimed(self, top: int) -> Retimed:
        standing = self._standing(top)
        baseline = self._runner.baseline()  # first, as the final round compares errors with it
        outcomes = self._runner.rematch(standing) if standing else []
        baseline = self._runner.baseline()
        vendor = baseline.relative_error if baseline else None
        trials = []
        for candidate, outcome in zip(standing, outcomes, strict=True):
            outcome = checked_accuracy(self._record.problem, outcome, vendor)
            if isinstance(outcome, Failure):
                self._fail(candidate.config, outcome)
            device = self._runner.device
            trials.append(Trial.of(candidate, outcome, device))
        entries = tuple(entry for trial in trials if (entry := trial.entry))
        failed = tuple(self._failed.items())
        if not entries:
            self._store.withdraw(self._record)
            return Retimed(self._record, None, failed)
        made = self._record.provenance
        provenance = provenance_of(
            self._origin,
            self._runner,
            self._began,
            seed=made.seed,
            trials=len(standing) + len(failed),
            interrupted=made.interrupted,
            quick=made.quick,
        )
        new = replace(
            self._record,
            device=self._runner.device,
            entries=entries,
            baseline=baseline,
            provenance=provenance,
        )
        earlier = [entry.config for entry in self._record.entries]
        return Retimed(self._record, self._store.save(new, earlier), failed)

    def _standing(self, top: int) -> list[Candidate]:
        """The first `top` candidates that work; the others are noted as failed."""
        standing: list[Candidate] = []
        plan = partial(registry.plan, problem=self._record.problem)
        legal = self._legal()
        with closing(Compiler(self._compile, plan, self._runner)) as compiler:
            # Compile no more than are needed: needless compilation would disturb the final round.
            while batch := tuple(islice(legal, top - len(standing))):
                for config, candidate in ahead(batch, compiler, ordered=True, window=len(batch)):
                    if (failure := self._failure(candidate)) is not None:
                        self._fail(config, failure)
                    elif isinstance(candidate, Candidate):
                        standing.append(candidate)
        return standing

    def _failure(self, candidate: Candidate | Failure) -> Failure | None:
        """Why a candidate does not work, after verifying and timing it; None if it works."""
        if isinstance(candidate, Failure):
            return candidate
        outcome = self._runner.measure(candidate, None)
        return outcome if isinstance(outcome, Failure) else None

    def _legal(self) -> Iterator[Config]:
        """The record's configurations that can run today, the best hot and the best cold first."""
        barred = self._quarantine.barred()
        for config in best_first(self._record):
            why = _illegal(config, self._record, self._runner)
            if why is not None:
                self._failed[config] = Failure("resources", why)
            elif config in barred:
                self._failed[config] = Failure("quarantined", "it crashed or hung before")
            else:
                yield config

    def _fail(self, config: Config, failure: Failure) -> None:
        self._quarantine.note(self._record.problem, config, failure)
        self._failed[config] = failure


def best_first(record: Record) -> list[Config]:
    """The configurations of a record: the best hot, the best of our kernels, which has to serve
    beside another cuBLAS, the best cold, then the others."""
    own = record.without_library or record
    entries = (record.best, own.best, record.best_by(COLD), *record.entries)
    return [*dict.fromkeys(entry.config for entry in entries)]


def _require_same_model(record: Record, runner: Runner) -> None:
    if runner.evidence != "measured":
        raise DeviceError(
            f"{runner.device.name} answers {runner.evidence} times here; give a GPU of this "
            "machine, such as `gpu`, to measure records again"
        )
    if runner.device.slug != record.device.slug:
        raise DeviceError(
            f"{record.title} was measured on {record.device.name}, this is {runner.device.name}; "
            "records are measured again on GPUs of their model"
        )


def _illegal(config: Config, record: Record, runner: Runner) -> str | None:
    """Why this version's families cannot run a configuration; None if they can."""
    try:
        card = as_tuned(runner.device, record.device)
        rejection = space.rejection(config, record.problem, card, recorded=True)
    except ConfigError as error:
        return str(error)
    return None if rejection is None else str(rejection)


@dataclass(frozen=True)
class TimeCheck:
    """The time of a problem today, beside that of a bundle.

    Attributes:
        problem: the problem.
        bundle_us: microseconds of the bundle's best kernel.
        now_us: microseconds of what runs today; None if nothing does.
        runs: a configuration, or the vendor's library.
        why: why nothing does; None if something does.
        evidence: evidence of `now_us`.
    """

    problem: Problem
    bundle_us: float
    now_us: float | None
    runs: str
    why: str | None = None
    evidence: Evidence = "measured"

    @property
    def ratio(self) -> float:
        """The bundle's time over today's, 1.05 if it is 5 % faster now; 0 if nothing runs."""
        return self.bundle_us / self.now_us if self.now_us else 0.0


def references(
    records: Iterable[Record],
    problems: Iterable[Problem],
    device: Device,
    objective: Objective,
) -> dict[Problem, float]:
    """The bundle's time of each problem, or of all that it has for the device's model: the one of
    the best evidence. Predicted times are not a reference.

    Raises:
        NotFoundError: if it has none of a problem.
    """
    times = {
        record.problem: estimate.time_us
        for record in sorted(
            records, key=lambda record: BEST_FIRST.index(record.evidence), reverse=True
        )
        if same_model(record.device, device)
        and record.evidence != "predicted"
        and (estimate := objective.estimate(record.best_by(objective).measurement)) is not None
    }
    wanted = [*problems] or [*times]
    missing = [str(problem) for problem in wanted if problem not in times]
    if missing or not wanted:
        listed = ", ".join(missing) or "anything"
        raise NotFoundError(f"the bundle has no {objective} time of {listed} on {device.name}")
    return {problem: times[problem] for problem in wanted}


def check(
    bundle_us: dict[Problem, float],
    opened: Opened,
    chosen: Callable[[Problem], Answer],
    compile: Compile,
    objective: Objective,
) -> Iterator[TimeCheck]:
    """Measures what would run for each problem.

    Args:
        bundle_us: the bundle's time of each problem.
        opened: opens the target that measures a problem.
        chosen: answer that would run a problem.
        compile: compiles a template for an architecture.
        objective: objective whose time is compared.

    Raises:
        DeviceError: if its times are predicted.
        AutotuneError: if the device cannot measure.
    """
    for problem, before_us in bundle_us.items():
        answer = chosen(problem)
        runs = "cuBLAS" if answer.vendor else str(answer.config)
        with opened(problem) as target:
            evidence = target.runner.evidence
            if evidence == "predicted":
                raise DeviceError(
                    f"{target.runner.device.name} is not in this machine, and predicted times "
                    "check nothing; give a GPU of this machine, such as `gpu`"
                )
            outcome = _measured(target, answer, compile, objective)
        if isinstance(outcome, Failure):
            why = f"{outcome.stage}: {outcome.reason}"
            yield TimeCheck(problem, before_us, None, runs, why, evidence)
            continue
        estimate = objective.estimate(outcome)
        if estimate is None:
            raise AutotuneError(f"{problem} has no {objective} time here; check the other time")
        yield TimeCheck(problem, before_us, estimate.time_us, runs, evidence=evidence)


def _measured(
    target: Target, answer: Answer, compile: Compile, objective: Objective
) -> Measurement | Failure:
    """The time of what would run; a kernel is verified first."""
    runner = target.runner
    baseline = runner.baseline()
    if answer.vendor and baseline is not None:
        return baseline
    if answer.vendor and runner.baseline_fault:
        return Failure("verify", runner.baseline_fault)
    candidate = prepare(registry.plan(answer.config, answer.problem), runner, compile)
    if isinstance(candidate, Failure):
        return candidate
    outcome = runner.measure(candidate, None, objective)
    return outcome if isinstance(outcome, Failure) else runner.rematch([candidate])[0]
