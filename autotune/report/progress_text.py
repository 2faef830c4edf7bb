"""How far a tuning run has come, as text: its limits, its speed, its state."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.problem import Problem
from autotune.records import TuningRecord
from autotune.report.entries import joules, us
from autotune.report.formatting import vendor
from autotune.runners.base import Measurement
from autotune.runners.objective import Objective
from autotune.tuning.trials import Progress


@dataclass(frozen=True)
class Limits:
    """The limits of a run: it ends at the first that is reached; None sets no limit."""

    trials: int | None
    budget_s: float | None

    def within(self, feasible: int) -> Limits:
        """The limits of a run with `feasible` configurations to try."""
        return Limits(min(feasible, self.trials or feasible), self.budget_s)

    def left(self, done: int, earlier: int, seconds: float) -> float | None:
        """Seconds until the first limit is reached; None if that cannot be estimated yet.

        Args:
            done: trials so far.
            earlier: those of them from earlier runs.
            seconds: since this run began.
        """
        ends = [] if self.budget_s is None else [self.budget_s - seconds]
        if self.trials is not None and done > earlier:
            ends.append((self.trials - done) * seconds / (done - earlier))
        return max(0.0, min(ends)) if ends else None

    def share(self, done: int, seconds: float) -> float:
        """The share (0..1) of the run that is over."""
        shares = [done / self.trials] if self.trials else []
        shares += [seconds / self.budget_s] if self.budget_s else []
        return min(1.0, max(shares, default=0.0))


class Speed:
    """Times of an objective as text: TFLOP/s, and the share of the vendor baseline once timed.

    Of a user kernel, whose operations are not known, it is microseconds.
    """

    def __init__(self, problem: Problem | None, objective: Objective) -> None:
        self._problem, self.objective = problem, objective
        self.vendor = vendor(problem.compute) if problem else ""
        self.vendor_us: float | None = None

    def compare(self, baseline: Measurement | None) -> None:
        """Compares with a vendor baseline from now on."""
        estimate = baseline.estimate(self.objective) if baseline else None
        self.vendor_us = estimate.time_us if estimate else None

    def of(self, time_us: float) -> str:
        """Such as `48.21 TFLOP/s, 93.5% of cuBLAS`, or `48.21 TFLOP/s cold`."""
        suffix = self.objective.time.suffix(" ")
        if self._problem is None:
            return f"{us(time_us)}{suffix}"
        text = f"{self._problem.speed(time_us) / 1e12:.2f} TFLOP/s{suffix}"
        return (
            f"{text}, {self.vendor_us / time_us:.1%} of {self.vendor}" if self.vendor_us else text
        )


def state(progress: Progress, speed: Speed) -> str:
    """Such as `41 trials, best 48.21 TFLOP/s, 93.5% of cuBLAS, 2 failed`."""
    leader = progress.best
    best = "none yet" if leader is None else speed.of(leader.time(speed.objective))
    return f"{progress.trials} trials, best {best}, {progress.failures} failed"


def time_left(seconds: float | None) -> str:
    """Such as `, 1:05 left`; empty if it is not known."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f", {minutes}:{rest:02} left" if minutes else f", {rest} s left"


def rematch_text(leaders: int, speed: Speed) -> str:
    """The announcement of the last round, for the leaders."""
    text = f"timing the best {leaders} against each other"
    return f"{text}, then their energy: 2 s each" if speed.objective.metered else text


def best_text(record: TuningRecord, speed: Speed) -> str:
    """The speed of the record's best, with its energy if that decides; beside the baseline of the
    last round, if it was timed there."""
    if record.baseline is not None:
        speed.compare(record.baseline)
    measurement = record.best_by(speed.objective).measurement
    estimate = measurement.estimate(speed.objective)
    text = speed.of(estimate.time_us) if estimate else f"no {speed.objective.time} time"
    if not speed.objective.metered or measurement.energy is None:
        return text
    return f"{text}, {joules(measurement.energy.joules)} a run"


def recorded(record: TuningRecord, progress: Progress, speed: Speed) -> str:
    """Such as `recorded 48.21 TFLOP/s after 41 trials in 6.5 s`."""
    best = best_text(record, speed)
    took = f"after {progress.trials} trials in {progress.seconds:.1f} s"
    live = record.evidence == "measured" and progress.seconds > 0
    return f"recorded {best} {took}" + (f", the device busy for {progress.busy:.0%}" * live)
