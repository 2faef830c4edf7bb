"""The progress of a tuning run: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task
from rich.progress import Progress as Display
from rich.text import Text

from autotune.problem import Problem
from autotune.records import TuningRecord
from autotune.report import vendor
from autotune.runners.base import Failure, Measurement, Objective
from autotune.tuning.evaluate import Trial
from autotune.tuning.events import Observer, Progress

SILENCE_S = 15.0
"""Longest time between plain lines: without a better kernel, a line shows that the run is alive."""


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


class Tally:
    """Counts rejections and failures by reason, and passes every event on to another observer.

    Attributes:
        feasible: configurations to choose from.
        rejected: configurations rejected before compilation, by reason.
        failed: configurations of this run that failed later, by stage.
    """

    def __init__(self, inner: Observer) -> None:
        self._inner = inner
        self.feasible = 0
        self.rejected: Mapping[str, int] = {}
        self.failed: Counter[str] = Counter()

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None:
        self.feasible, self.rejected = feasible, rejected
        self._inner.started(feasible, rejected, progress)

    def baseline(self, measurement: Measurement | None) -> None:
        self._inner.baseline(measurement)

    def trial(self, trial: Trial, progress: Progress) -> None:
        if isinstance(trial.outcome, Failure):
            self.failed[trial.outcome.stage] += 1
        self._inner.trial(trial, progress)

    def enough(self, outlook: float) -> None:
        self._inner.enough(outlook)

    def rematch(self, leaders: Sequence[Trial]) -> None:
        self._inner.rematch(leaders)

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        self._inner.finished(record, progress)


class Speed:
    """Times of an objective as text: TFLOP/s, and the share of the vendor baseline once timed."""

    def __init__(self, problem: Problem, objective: Objective) -> None:
        self._problem, self.objective = problem, objective
        self.vendor = vendor(problem.compute)
        self.vendor_us: float | None = None

    def compare(self, baseline: Measurement | None) -> None:
        """Compares with a vendor baseline from now on."""
        estimate = baseline.estimate(self.objective) if baseline else None
        self.vendor_us = estimate.time_us if estimate else None

    def of(self, time_us: float) -> str:
        """Such as `48.21 TFLOP/s, 93.5% of cuBLAS`, or `48.21 TFLOP/s cold`."""
        suffix = " cold" if self.objective == "cold" else ""
        text = f"{self._problem.speed(time_us) / 1e12:.2f} TFLOP/s{suffix}"
        return (
            f"{text}, {self.vendor_us / time_us:.1%} of {self.vendor}" if self.vendor_us else text
        )


class PlainProgress:
    """Prints a line for each better kernel, and at least one every `SILENCE_S` seconds."""

    def __init__(
        self, problem: Problem, limits: Limits, console: Console, objective: Objective
    ) -> None:
        self._speed, self._limits, self._console = Speed(problem, objective), limits, console
        self._earlier, self._best_us, self._printed_s = 0, float("inf"), 0.0

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None:
        self._earlier, self._limits = progress.trials, self._limits.within(feasible)
        earlier = f", {progress.trials} tried before" if progress.trials else ""
        self._print(f"{feasible:,} configurations, {sum(rejected.values()):,} rejected{earlier}")

    def baseline(self, measurement: Measurement | None) -> None:
        estimate = measurement.estimate(self._speed.objective) if measurement else None
        if estimate is not None:
            self._print(f"{self._speed.vendor}: {self._speed.of(estimate.time_us)}")
            self._speed.compare(measurement)

    def trial(self, trial: Trial, progress: Progress) -> None:
        time_us = trial.time(self._speed.objective)
        if time_us < self._best_us or progress.seconds - self._printed_s >= SILENCE_S:
            self._best_us, self._printed_s = min(self._best_us, time_us), progress.seconds
            left = self._limits.left(progress.trials, self._earlier, progress.seconds)
            self._print(f"{state(progress, self._speed)}{_left(left)}")

    def enough(self, outlook: float) -> None:
        self._print(f"stopping: further trials are expected to give {outlook:.2%} at most")

    def rematch(self, leaders: Sequence[Trial]) -> None:
        self._print(f"timing the best {len(leaders)} against each other")

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        objective = self._speed.objective
        estimate = record.best_by(objective).measurement.estimate(objective)
        best = self._speed.of(estimate.time_us) if estimate else "no cold time"
        took = f"after {progress.trials} trials in {progress.seconds:.1f} s"
        live = record.evidence == "measured" and progress.seconds > 0
        busy = f", the device busy for {progress.busy:.0%}" if live else ""
        ties = len(record.ties) if objective == "hot" else 0
        tied = f", tied with {ties} more" if ties else ""
        self._print(f"recorded {best}{tied} {took}{busy}")

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)


class Bar(ProgressColumn):
    """A bar with a line of text that is redrawn as time passes."""

    def __init__(
        self, problem: Problem, limits: Limits, console: Console, objective: Objective
    ) -> None:
        super().__init__()
        self._speed, self._limits = Speed(problem, objective), limits
        self._earlier, self._began = 0, monotonic()
        self._latest = Progress(0, 0, None, 0.0)
        self._activity: str | None = "looking for candidates"
        self.display = Display(BarColumn(10), self, console=console, transient=True)
        self._task = self.display.add_task("", total=1.0)

    def render(self, task: Task) -> Text:
        """The text beside the bar."""
        del task
        if self._activity is not None:
            return Text(self._activity)
        left = self._limits.left(self._latest.trials, self._earlier, monotonic() - self._began)
        return Text(f"{state(self._latest, self._speed)}{_left(left)}", no_wrap=True)

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None:
        del rejected
        self._earlier, self._limits = progress.trials, self._limits.within(feasible)
        self._began = monotonic() - progress.seconds
        self._latest, self._activity = progress, None

    def baseline(self, measurement: Measurement | None) -> None:
        self._speed.compare(measurement)

    def trial(self, trial: Trial, progress: Progress) -> None:
        del trial
        self._latest = progress
        share = self._limits.share(progress.trials, progress.seconds)
        self.display.update(self._task, completed=share)

    def enough(self, outlook: float) -> None:
        text = f"stopping: further trials are expected to give {outlook:.2%} at most"
        self.display.console.print(text, highlight=False)

    def rematch(self, leaders: Sequence[Trial]) -> None:
        self._activity = f"timing the best {len(leaders)} against each other"
        self.display.update(self._task, completed=1.0)

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        del record, progress


def state(progress: Progress, speed: Speed) -> str:
    """Such as `41 trials, best 48.21 TFLOP/s, 93.5% of cuBLAS, 2 failed`."""
    leader = progress.best
    best = "none yet" if leader is None else speed.of(leader.time(speed.objective))
    return f"{progress.trials} trials, best {best}, {progress.failures} failed"


@contextmanager
def observing(
    problem: Problem,
    limits: Limits,
    console: Console,
    *,
    plain: bool,
    objective: Objective = "hot",
) -> Iterator[Observer]:
    """The observer for a console: lines if `plain` or not a terminal, otherwise a bar."""
    if plain or not console.is_terminal:
        yield PlainProgress(problem, limits, console, objective)
        return
    bar = Bar(problem, limits, console, objective)
    with bar.display:
        yield bar


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f", {minutes}:{rest:02} left" if minutes else f", {rest} s left"
