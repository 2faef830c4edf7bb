"""A tuning run as it goes on: a bar on a terminal, plain lines elsewhere."""

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
from autotune.runners.base import Failure, Measurement
from autotune.tuning.evaluate import Trial
from autotune.tuning.events import Observer, Progress

# Between plain lines that bring no better kernel, so that a log shows that the run is alive.
SILENCE_S = 15.0


@dataclass(frozen=True)
class Limits:
    """Where a run ends: at so many trials or seconds, whichever is first; None sets no limit."""

    trials: int | None
    budget_s: float | None

    def within(self, feasible: int) -> Limits:
        """The limits of a run that has only so many configurations to try."""
        return Limits(min(feasible, self.trials or feasible), self.budget_s)

    def left(self, done: int, earlier: int, seconds: float) -> float | None:
        """Seconds until the first limit is reached; None if nothing is known of it yet.

        Args:
            done: trials so far.
            earlier: those of them that earlier runs made.
            seconds: since this run began.
        """
        ends = [] if self.budget_s is None else [self.budget_s - seconds]
        if self.trials is not None and done > earlier:
            ends.append((self.trials - done) * seconds / (done - earlier))
        return max(0.0, min(ends)) if ends else None

    def share(self, done: int, seconds: float) -> float:
        """How much (0..1) of the run is over."""
        shares = [done / self.trials] if self.trials else []
        shares += [seconds / self.budget_s] if self.budget_s else []
        return min(1.0, max(shares, default=0.0))


class Tally:
    """Counts what fell to which reason, and passes everything on to another observer.

    Attributes:
        feasible: configurations to choose from.
        rejected: configurations rejected before compilation, by reason.
        failed: configurations of this run that fell later, by stage.
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
    """What times of a problem mean: TFLOP/s, and against the vendor library once that is timed."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self.vendor = vendor(problem.compute)
        self.vendor_us: float | None = None

    def of(self, time_us: float) -> str:
        """Such as `48.21 TFLOP/s, 93.5% of cuBLAS`."""
        text = f"{self._problem.speed(time_us) / 1e12:.2f} TFLOP/s"
        return (
            f"{text}, {self.vendor_us / time_us:.1%} of {self.vendor}" if self.vendor_us else text
        )


class PlainProgress:
    """Prints a line when something is found, and one now and then when nothing is."""

    def __init__(self, problem: Problem, limits: Limits, console: Console) -> None:
        self._speed, self._limits, self._console = Speed(problem), limits, console
        self._earlier, self._best_us, self._told_s = 0, float("inf"), 0.0

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None:
        self._earlier, self._limits = progress.trials, self._limits.within(feasible)
        earlier = f", {progress.trials} tried before" if progress.trials else ""
        self._say(f"{feasible:,} configurations, {sum(rejected.values()):,} rejected{earlier}")

    def baseline(self, measurement: Measurement | None) -> None:
        if measurement is not None:
            self._say(f"{self._speed.vendor}: {self._speed.of(measurement.time_us)}")
            self._speed.vendor_us = measurement.time_us

    def trial(self, trial: Trial, progress: Progress) -> None:
        better = trial.time_us < self._best_us
        if better or progress.seconds - self._told_s >= SILENCE_S:
            self._best_us, self._told_s = min(self._best_us, trial.time_us), progress.seconds
            left = self._limits.left(progress.trials, self._earlier, progress.seconds)
            self._say(f"{state(progress, self._speed)}{_left(left)}")

    def enough(self, outlook: float) -> None:
        self._say(f"stopping: further trials are expected to give {outlook:.2%} at most")

    def rematch(self, leaders: Sequence[Trial]) -> None:
        self._say(f"timing the best {len(leaders)} against each other")

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        best = self._speed.of(record.best.measurement.time_us)
        took = f"after {progress.trials} trials in {progress.seconds:.1f} s"
        live = record.evidence == "measured" and progress.seconds > 0
        busy = f", the device busy for {progress.busy:.0%}" if live else ""
        self._say(f"recorded {best} {took}{busy}")

    def _say(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)


class Bar(ProgressColumn):
    """Shows one line with a bar; its text is redrawn as the time passes."""

    def __init__(self, problem: Problem, limits: Limits, console: Console) -> None:
        super().__init__()
        self._speed, self._limits = Speed(problem), limits
        self._earlier, self._began = 0, monotonic()
        self._told = Progress(0, 0, None, 0.0)
        self._doing: str | None = "looking for candidates"
        self.display = Display(BarColumn(10), self, console=console, transient=True)
        self._task = self.display.add_task("", total=1.0)

    def render(self, task: Task) -> Text:
        """The text beside the bar."""
        del task
        if self._doing is not None:
            return Text(self._doing)
        left = self._limits.left(self._told.trials, self._earlier, monotonic() - self._began)
        return Text(f"{state(self._told, self._speed)}{_left(left)}", no_wrap=True)

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None:
        del rejected
        self._earlier, self._limits = progress.trials, self._limits.within(feasible)
        self._began = monotonic() - progress.seconds
        self._told, self._doing = progress, None

    def baseline(self, measurement: Measurement | None) -> None:
        self._speed.vendor_us = measurement.time_us if measurement else None

    def trial(self, trial: Trial, progress: Progress) -> None:
        del trial
        self._told = progress
        share = self._limits.share(progress.trials, progress.seconds)
        self.display.update(self._task, completed=share)

    def enough(self, outlook: float) -> None:
        text = f"stopping: further trials are expected to give {outlook:.2%} at most"
        self.display.console.print(text, highlight=False)

    def rematch(self, leaders: Sequence[Trial]) -> None:
        self._doing = f"timing the best {len(leaders)} against each other"
        self.display.update(self._task, completed=1.0)

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        del record, progress


def state(progress: Progress, speed: Speed) -> str:
    """Such as `41 trials, best 48.21 TFLOP/s, 93.5% of cuBLAS, 2 failed`."""
    best = "none yet" if progress.best is None else speed.of(progress.best.time_us)
    return f"{progress.trials} trials, best {best}, {progress.failures} failed"


@contextmanager
def observing(
    problem: Problem, limits: Limits, console: Console, *, plain: bool
) -> Iterator[Observer]:
    """What shows a run on the console; `plain`, or a console that is no terminal, gets lines."""
    if plain or not console.is_terminal:
        yield PlainProgress(problem, limits, console)
        return
    bar = Bar(problem, limits, console)
    with bar.display:
        yield bar


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f", {minutes}:{rest:02} left" if minutes else f", {rest} s left"
