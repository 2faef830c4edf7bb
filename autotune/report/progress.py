"""The progress of a tuning run: a bar on a terminal and in a notebook, plain lines elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from html import escape
from time import monotonic
from typing import Any

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

REDRAWN_S = 0.25
"""Shortest time between two drawings in a notebook."""

Observed = Callable[[Problem, float], Observer]
"""Returns the observer of a search from its problem and its budget in seconds."""


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


class Speed:
    """Times of an objective as text: TFLOP/s, and the share of the vendor baseline once timed.

    A user kernel, whose operations are not known, is shown in microseconds.
    """

    def __init__(self, problem: Problem | None, objective: Objective) -> None:
        self._problem, self.objective = problem, objective
        self.vendor = vendor(problem.compute) if problem else ""
        self.vendor_us: float | None = None

    def compare(self, baseline: Measurement | None) -> None:
        """Compares with a vendor baseline from now on."""
        self.vendor_us = us_of(baseline, self.objective)

    def of(self, time_us: float) -> str:
        """A speed as text, such as `48.21 TFLOP/s, 93.5% of cuBLAS`, or `48.21 TFLOP/s cold`."""
        suffix = self.objective.time.suffix(" ")
        if self._problem is None:
            return f"{us(time_us)}{suffix}"
        text = f"{self._problem.speed(time_us) / 1e12:.2f} TFLOP/s{suffix}"
        return (
            f"{text}, {self.vendor_us / time_us:.1%} of {self.vendor}" if self.vendor_us else text
        )

    def state(self, progress: Progress, left: float | None) -> str:
        """The state of a search, such as `41 trials, best 48.21 TFLOP/s, 93.5% of cuBLAS, 2 failed,
        1:05 left`."""
        leader = progress.best
        best = "none yet" if leader is None else self.of(leader.time(self.objective))
        text = f"{progress.trials} trials, best {best}, {progress.failures} failed"
        if left is None:
            return text
        minutes, rest = divmod(round(left), 60)
        return f"{text}, {minutes}:{rest:02} left" if minutes else f"{text}, {rest} s left"

    def rematch(self, leaders: int) -> str:
        """The announcement of the last round, for the leaders."""
        text = f"timing the best {leaders} against each other"
        return f"{text}, then their energy: 2 s each" if self.objective.metered else text

    def recorded(self, record: TuningRecord, progress: Progress) -> str:
        """The outcome of a search, such as `recorded 48.21 TFLOP/s, tied with 2 more after 41
        trials in 6.5 s`.

        The energy of the best follows if that decides. The baseline is that of the last round, if
        it was timed there.
        """
        if record.baseline is not None:
            self.compare(record.baseline)
        measurement = record.best_by(self.objective).measurement
        time_us = us_of(measurement, self.objective)
        best = f"no {self.objective.time} time" if time_us is None else self.of(time_us)
        if self.objective.metered and measurement.energy is not None:
            best += f", {joules(measurement.energy.joules)} a run"
        ties = len(record.ties) if self.objective is HOT else 0
        tied = f", tied with {ties} more" if ties else ""
        live = record.evidence == "measured" and progress.seconds > 0
        busy = f", the device busy for {progress.busy:.0%}" if live else ""
        took = f"after {progress.trials} trials in {progress.seconds:.1f} s"
        return f"recorded {best}{tied} {took}{busy}"


class Shown:
    """An observer that shows a run; it counts what the run rejects and what fails.

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
        self._speed, self._limits, self._earlier = Speed(problem, objective), limits, 0
        self._say = say  # prints a line that stays
        self.feasible = 0
        self.rejected: Mapping[str, int] = {}
        self.failed: Counter[str] = Counter()

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None:
        self.feasible, self.rejected = feasible, rejected
        self._earlier, self._limits = progress.trials, self._limits.within(feasible)

    def baseline(self, measurement: Measurement | None) -> None:
        self._speed.compare(measurement)

    def trial(self, trial: Trial, progress: Progress) -> None:
        del progress
        if isinstance(trial.outcome, Failure):
            self.failed[trial.outcome.stage] += 1

    def enough(self, gain: float) -> None:
        self._say(f"stopping: further trials are expected to give {gain:.2%} at most")

    def rematch(self, leaders: Sequence[Trial]) -> None:
        self._say(self._speed.rematch(len(leaders)))

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        self._say(self._speed.recorded(record, progress))

    def _state(self, progress: Progress, seconds: float) -> str:
        """The state of the run, `seconds` after it began."""
        left = self._limits.left(progress.trials, self._earlier, seconds)
        return self._speed.state(progress, left)


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
        time_us = us_of(measurement, self._speed.objective)
        if time_us is not None:
            self._say(f"{self._speed.vendor}: {self._speed.of(time_us)}")
            self._speed.compare(measurement)

    def trial(self, trial: Trial, progress: Progress) -> None:
        super().trial(trial, progress)
        time_us = trial.time(self._speed.objective)
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

    def draw(self, share: float, *, last: bool = False) -> None:
        """Draws the share (0..1) of the run that is over."""
        del last
        self.display.update(self._task, completed=share)

    def say(self, line: str) -> None:
        """Prints a line that stays."""
        self._console.print(line, highlight=False)


class NotebookBar:
    """A bar with a line of text in the output of a notebook's cell; the last line stays.

    Attributes:
        text: returns the line.
    """

    def __init__(self) -> None:
        self.text: Callable[[], str] = str
        self._drawn = monotonic()
        self._handle: Any = None

    def draw(self, share: float, *, last: bool = False) -> None:
        """Draws the share (0..1) of the run that is over, if it is time or for the `last` time."""
        from IPython.display import display

        now = monotonic()
        if self._handle is not None and not last and now - self._drawn < REDRAWN_S:
            return
        self._drawn = now
        bar = "" if last else f'<progress value="{share:.3f}"></progress> '
        text = self.text()
        content = {"text/plain": text, "text/html": f"<div>{bar}{escape(text)}</div>"}
        if self._handle is None:
            self._handle = display(content, raw=True, display_id=True)
        else:
            self._handle.update(content, raw=True)

    def say(self, line: str) -> None:
        """Ignores a line, as a cell shows the last alone."""


class SharedBar:
    """The bar of several searches that share a budget, as the bar of each of them.

    Attributes:
        text: returns the line of the search at hand.
    """

    def __init__(self, bar: TerminalBar | NotebookBar, count: int, budget_s: float) -> None:
        self.text: Callable[[], str] = str
        self._bar, self._count, self._budget_s = bar, count, budget_s
        self._began, self._seen, self._ended = monotonic(), dict[Problem, None](), False
        bar.text = self._line
        self.draw(0.0)

    def observed(self, problem: Problem, seconds: float, objective: Objective) -> Observer:
        """The observer of the next search."""
        self._seen.pop(problem, None)
        self._seen[problem] = None
        return LiveProgress(problem, Limits(None, seconds), self, objective)

    def draw(self, share: float, *, last: bool = False) -> None:
        """Draws the share of the budget that is spent, also after the `last` trial of a search."""
        del share, last
        self._bar.draw(min(1.0, (monotonic() - self._began) / self._budget_s))

    def say(self, line: str) -> None:
        """Prints a line that stays."""
        self._bar.say(line)

    def finish(self) -> None:
        """Draws for the last time."""
        self._ended = True
        self._bar.draw(1.0, last=True)

    def _line(self) -> str:
        if self._ended or not self._seen:
            return f"{len(self._seen)} of {self._count} shapes searched"
        *_, problem = self._seen
        return f"{len(self._seen)}/{self._count} {problem}: {self.text()}"


class LiveProgress(Shown):
    """Shows a run beside a bar."""

    def __init__(
        self,
        problem: Problem | None,
        limits: Limits,
        bar: TerminalBar | NotebookBar | SharedBar,
        objective: Objective,
    ) -> None:
        super().__init__(problem, limits, objective, bar.say)
        self._bar, self._began = bar, monotonic()
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
        self._activity = self._speed.rematch(len(leaders))
        self._bar.draw(1.0)

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        self._activity = self._speed.recorded(record, progress)
        self._bar.draw(1.0, last=True)

    def _text(self) -> str:
        """The text beside the bar."""
        if self._activity is not None:
            return self._activity
        return self._state(self._latest, monotonic() - self._began)


@contextmanager
def _bar(console: Console, *, plain: bool) -> Iterator[TerminalBar | NotebookBar | None]:
    """The bar of a console; None if it is neither a terminal nor a notebook, or if `plain`."""
    if plain or not (console.is_terminal or console.is_jupyter):
        yield None
    elif console.is_jupyter:
        yield NotebookBar()
    else:
        bar = TerminalBar(console)
        with bar.display:
            yield bar


@contextmanager
def observing(
    problem: Problem | None,
    limits: Limits,
    console: Console,
    *,
    plain: bool,
    objective: Objective = HOT,
) -> Iterator[Shown]:
    """The observer for a console: a bar on a terminal or in a notebook, else or if `plain` lines.

    `problem` is None for a user kernel.
    """
    with _bar(console, plain=plain) as bar:
        if bar is None:
            yield PlainProgress(problem, limits, console, objective)
        else:
            yield LiveProgress(problem, limits, bar, objective)


@contextmanager
def observing_all(
    count: int, budget_s: float, console: Console, *, plain: bool, objective: Objective
) -> Iterator[Observed]:
    """The observers of up to `count` searches: one bar on a terminal or in a notebook, else or if
    `plain` lines."""

    def lines(problem: Problem, seconds: float) -> Observer:
        console.print(f"tuning {problem} for {seconds:.1f} s", highlight=False, soft_wrap=True)
        return PlainProgress(problem, Limits(None, seconds), console, objective)

    with _bar(console, plain=plain) as bar:
        if bar is None:
            yield lines
            return
        shared = SharedBar(bar, count, budget_s)
        yield lambda problem, seconds: shared.observed(problem, seconds, objective)
        shared.finish()
