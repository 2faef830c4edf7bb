"""The progress of a tuning run: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from time import monotonic

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task
from rich.progress import Progress as Display
from rich.text import Text

from autotune.measure.measurement import Failure, Measurement
from autotune.measure.objective import HOT, Objective
from autotune.problem import Problem
from autotune.records import TuningRecord
from autotune.report import joules, us, us_of, vendor
from autotune.tuning.trials import Observer, Progress, Trial

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
            earlier: trials of earlier runs, which `done` includes.
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


class Shown(Observer):
    """An observer that shows a run; it counts what the run rejects and what fails.

    Speeds are TFLOP/s, with the share of the vendor baseline once that is timed. A user kernel,
    whose operations are not known, is shown in microseconds.

    Attributes:
        feasible: configurations to choose from.
        rejected: configurations rejected before compilation, by reason.
        failed: configurations of this run that failed later, by stage.
    """

    def __init__(
        self,
        problem: Problem | None,
        limits: Limits,
        objective: Objective,
        say: Callable[[str], object],
    ) -> None:
        self._problem, self._limits, self._objective = problem, limits, objective
        self._say = say  # prints a line that stays
        self._earlier = 0
        self._vendor = vendor(problem.compute) if problem else ""
        self._vendor_us: float | None = None
        self.feasible = 0
        self.rejected: Mapping[str, int] = {}
        self.failed: Counter[str] = Counter()

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None:
        self.feasible, self.rejected = feasible, rejected
        self._earlier, self._limits = progress.trials, self._limits.within(feasible)

    def baseline(self, measurement: Measurement | None) -> None:
        self._vendor_us = us_of(measurement, self._objective)

    def trial(self, trial: Trial, progress: Progress) -> None:
        del progress
        if isinstance(trial.outcome, Failure):
            self.failed[trial.outcome.stage] += 1

    def enough(self, gain: float) -> None:
        self._say(f"stopping: further trials are expected to give {gain:.2%} at most")

    def rematch(self, leaders: Sequence[Trial]) -> None:
        self._say(self._announcement(len(leaders)))

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        self._say(self._outcome(record, progress))

    def _speed(self, time_us: float) -> str:
        """A speed as text, such as `48.21 TFLOP/s, 93.5% of cuBLAS`, or `48.21 TFLOP/s cold`."""
        suffix = self._objective.time.suffix(" ")
        if self._problem is None:
            return f"{us(time_us)}{suffix}"
        share = f", {self._vendor_us / time_us:.1%} of {self._vendor}" if self._vendor_us else ""
        return f"{self._problem.speed(time_us) / 1e12:.2f} TFLOP/s{suffix}{share}"

    def _state(self, progress: Progress, seconds: float) -> str:
        """The state of a search, such as `41 trials, best 48.21 TFLOP/s, 93.5% of cuBLAS, 2 failed,
        1:05 left`."""
        leader = progress.best
        best = "none yet" if leader is None else self._speed(leader.time(self._objective))
        text = f"{progress.trials} trials, best {best}, {progress.failures} failed"
        left = self._limits.left(progress.trials, self._earlier, seconds)
        if left is None:
            return text
        minutes, rest = divmod(round(left), 60)
        return f"{text}, {minutes}:{rest:02} left" if minutes else f"{text}, {rest} s left"

    def _announcement(self, leaders: int) -> str:
        text = f"timing the best {leaders} against each other"
        return f"{text}, then their energy: 2 s each" if self._objective.metered else text

    def _outcome(self, record: TuningRecord, progress: Progress) -> str:
        """The outcome of a search, such as `recorded 48.21 TFLOP/s, tied with 2 more after 41
        trials in 6.5 s`.

        The energy of the best follows if that decides. The baseline is that of the last round, if
        it was timed there.
        """
        if record.baseline is not None:
            self._vendor_us = us_of(record.baseline, self._objective)
        measurement = record.best_by(self._objective).measurement
        time_us = us_of(measurement, self._objective)
        best = f"no {self._objective.time} time" if time_us is None else self._speed(time_us)
        if self._objective.metered and measurement.energy is not None:
            best += f", {joules(measurement.energy.joules)} a run"
        ties = len(record.ties) if self._objective is HOT else 0
        tied = f", tied with {ties} more" if ties else ""
        live = record.evidence == "measured" and progress.seconds > 0
        busy = f", the device busy for {progress.busy:.0%}" if live else ""
        took = f"after {progress.trials} trials in {progress.seconds:.1f} s"
        return f"recorded {best}{tied} {took}{busy}"


class PlainProgress(Shown):
    """Prints a line for each better kernel, and at least one every `SILENCE_S` seconds."""

    def __init__(
        self, problem: Problem | None, limits: Limits, console: Console, objective: Objective
    ) -> None:
        say = partial(console.print, highlight=False, soft_wrap=True, markup=False)
        super().__init__(problem, limits, objective, say)
        self._best_us, self._printed_s = float("inf"), 0.0

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None:
        super().started(feasible, rejected, progress)
        earlier = f", {progress.trials} tried before" if progress.trials else ""
        self._say(f"{feasible:,} configurations, {sum(rejected.values()):,} rejected{earlier}")

    def baseline(self, measurement: Measurement | None) -> None:
        time_us = us_of(measurement, self._objective)
        if time_us is not None:
            self._say(f"{self._vendor}: {self._speed(time_us)}")
            self._vendor_us = time_us

    def trial(self, trial: Trial, progress: Progress) -> None:
        super().trial(trial, progress)
        time_us = trial.time(self._objective)
        if time_us < self._best_us or progress.seconds - self._printed_s >= SILENCE_S:
            self._best_us, self._printed_s = min(self._best_us, time_us), progress.seconds
            self._say(self._state(progress, progress.seconds))


class TerminalBar(ProgressColumn):
    """A bar with a line of text, on a terminal; it is gone when the run is over.

    Attributes:
        text: returns the line, which is drawn several times a second.
    """

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.text: Callable[[], str] = str
        self._console = console
        self.display = Display(BarColumn(10), self, console=console, transient=True)
        self._task = self.display.add_task("", total=1.0)

    def render(self, task: Task) -> Text:
        """The text beside the bar."""
        del task
        return Text(self.text(), no_wrap=True)

    def draw(self, share: float) -> None:
        """Draws the share (0..1) of the run that is over."""
        self.display.update(self._task, completed=share)

    def say(self, line: str) -> None:
        """Prints a line that stays."""
        self._console.print(line, highlight=False)


class LiveProgress(Shown):
    """Shows a run beside a bar; `title` stands before its text."""

    def __init__(
        self,
        problem: Problem | None,
        limits: Limits,
        bar: TerminalBar,
        objective: Objective,
        title: str = "",
    ) -> None:
        super().__init__(problem, limits, objective, bar.say)
        self._bar, self._title, self._began = bar, title, monotonic()
        self._latest = Progress(0, 0, None, 0.0)
        self._activity: str | None = "looking for candidates"
        bar.text = self._text
        bar.draw(0.0)

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None:
        super().started(feasible, rejected, progress)
        self._began = monotonic() - progress.seconds
        self._latest, self._activity = progress, None
        self._bar.draw(0.0)

    def trial(self, trial: Trial, progress: Progress) -> None:
        super().trial(trial, progress)
        self._latest = progress
        self._bar.draw(self._limits.share(progress.trials, progress.seconds))

    def rematch(self, leaders: Sequence[Trial]) -> None:
        self._activity = self._announcement(len(leaders))
        self._bar.draw(1.0)

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        self._activity = self._outcome(record, progress)
        self._bar.draw(1.0)

    def _text(self) -> str:
        text = self._activity or self._state(self._latest, monotonic() - self._began)
        return f"{self._title}{text}"


@contextmanager
def observing(
    console: Console, *, plain: bool, objective: Objective = HOT, count: int | None = None
) -> Iterator[Callable[[Problem | None, Limits], Shown]]:
    """A function to the observer of each search from its problem, None for a user kernel.

    Args:
        console: where a bar shows the searches on a terminal, and lines elsewhere.
        plain: whether to print lines on a terminal too.
        objective: of all the searches.
        count: problems at most, if the searches are of several, which are named then.
    """
    bar = None if plain or not console.is_terminal else TerminalBar(console)
    seen = set[Problem | None]()

    def observed(problem: Problem | None, limits: Limits) -> Shown:
        seen.add(problem)
        if bar is not None:
            title = f"{len(seen)}/{count} {problem}: " if count else ""
            return LiveProgress(problem, limits, bar, objective, title)
        if count:
            line = f"tuning {problem} for {limits.budget_s:.1f} s"
            console.print(line, highlight=False, soft_wrap=True)
        return PlainProgress(problem, limits, console, objective)

    with bar.display if bar else nullcontext():
        yield observed
