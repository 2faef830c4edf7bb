"""Measures what would run today, beside the times of a bundle."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass

from autotune.device import Device, same_model
from autotune.errors import AutotuneError, DeviceError, NotFoundError
from autotune.families import registry
from autotune.lookup.answer import Answer
from autotune.problem import Problem
from autotune.records import Record
from autotune.records.standing import BEST_FIRST
from autotune.runners.base import Evidence, Failure, Measurement
from autotune.runners.objective import Objective
from autotune.targets.targets import Target
from autotune.tuning.pipeline import Compile, prepare


@dataclass(frozen=True)
class TimeCheck:
    """The time of a problem today, beside that of a bundle.

    Attributes:
        problem: the problem.
        bundle_us: microseconds of the bundle's best kernel.
        now_us: microseconds of what runs today; None if nothing does.
        runs: a configuration, or the vendor's library.
        why: why nothing does; None if something does.
        evidence: what `now_us` rests on.
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
    *,
    allow_predicted: bool = False,
) -> dict[Problem, float]:
    """The bundle's time of each problem, or of all that it has for the device's model: the one of
    the best evidence, a predicted one only if that is allowed.

    Raises:
        NotFoundError: if it has none of a problem.
    """
    times = {
        record.problem: estimate.time_us
        for record in sorted(
            records, key=lambda record: BEST_FIRST.index(record.evidence), reverse=True
        )
        if same_model(record.device, device)
        and (allow_predicted or record.evidence != "predicted")
        and (estimate := record.best_by(objective).measurement.estimate(objective)) is not None
    }
    wanted = [*problems] or [*times]
    missing = [str(problem) for problem in wanted if problem not in times]
    if missing or not wanted:
        listed = ", ".join(missing) or "anything"
        raise NotFoundError(f"the bundle has no {objective} time of {listed} on {device.name}")
    return {problem: times[problem] for problem in wanted}


def check(
    bundle_us: dict[Problem, float],
    opened: Callable[[Problem], AbstractContextManager[Target]],
    chosen: Callable[[Problem], Answer],
    compile: Compile,
    objective: Objective,
    *,
    allow_predicted: bool = False,
) -> Iterator[TimeCheck]:
    """Measures what would run for each problem.

    Args:
        bundle_us: the bundle's time of each problem.
        opened: opens the target that measures a problem.
        chosen: what would run a problem.
        compile: compiles a template for an architecture.
        objective: which time.
        allow_predicted: whether a device whose times are predicted may be checked.

    Raises:
        DeviceError: if its times are predicted and that is not allowed.
        AutotuneError: if the device cannot measure.
    """
    for problem, before_us in bundle_us.items():
        answer = chosen(problem)
        runs = "cuBLAS" if answer.vendor else str(answer.config)
        with opened(problem) as target:
            evidence = target.runner.evidence
            if evidence == "predicted" and not allow_predicted:
                raise DeviceError(
                    f"{target.runner.device.name} is not in this machine, and predicted times "
                    "check nothing; give a GPU of this machine, such as `gpu`, or "
                    "--allow-predicted"
                )
            outcome = _measured(target, answer, compile, objective)
        if isinstance(outcome, Failure):
            why = f"{outcome.stage}: {outcome.reason}"
            yield TimeCheck(problem, before_us, None, runs, why, evidence)
            continue
        estimate = outcome.estimate(objective)
        if estimate is None:
            raise AutotuneError(f"{problem} has no {objective} time here; check the other one")
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
