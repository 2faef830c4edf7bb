"""The progress of a tuning run: a bar on a terminal and in a notebook, plain lines elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from rich.console import Console

from autotune.problem import Problem
from autotune.records import TuningRecord
from autotune.report.bars import Bar, Live, NotebookBar
from autotune.report.progress_text import Limits, Speed, best_text, rematch_text, state, time_left
from autotune.runners.base import Failure, Measurement
from autotune.runners.objective import HOT, Objective
from autotune.tuning.trials import Observer, Progress, Trial

__all__ = ["Limits", "PlainProgress", "Tally", "observing", "observing_each"]

SILENCE_S = 15.0
"""Longest time between plain lines: without a better kernel, a line shows that the run is alive."""


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

    def enough(self, gain: float) -> None:
        self._inner.enough(gain)

    def rematch(self, leaders: Sequence[Trial]) -> None:
        self._inner.rematch(leaders)

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        self._inner.finished(record, progress)


class PlainProgress:
    """Prints a line for each better kernel, and at least one every `SILENCE_S` seconds."""

    def __init__(
        self, problem: Problem | None, limits: Limits, console: Console, objective: Objective
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
            self._print(f"{state(progress, self._speed)}{time_left(left)}")

    def enough(self, gain: float) -> None:
        self._print(f"stopping: further trials are expected to give {gain:.2%} at most")

    def rematch(self, leaders: Sequence[Trial]) -> None:
        self._print(rematch_text(len(leaders), self._speed))

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        objective = self._speed.objective
        best = best_text(record, self._speed)
        took = f"after {progress.trials} trials in {progress.seconds:.1f} s"
        live = record.evidence == "measured" and progress.seconds > 0
        busy = f", the device busy for {progress.busy:.0%}" if live else ""
        ties = len(record.ties) if objective is HOT else 0
        tied = f", tied with {ties} more" if ties else ""
        self._print(f"recorded {best}{tied} {took}{busy}")

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, soft_wrap=True, markup=False)


@contextmanager
def observing(
    problem: Problem | None,
    limits: Limits,
    console: Console,
    *,
    plain: bool,
    objective: Objective = HOT,
) -> Iterator[Observer]:
    """The observer for a console: a bar on a terminal or in a notebook, else or if `plain` lines.

    `problem` is None for a user kernel.
    """
    live = Live(problem, limits, objective)
    if plain or not (console.is_terminal or console.is_jupyter):
        yield PlainProgress(problem, limits, console, objective)
    elif console.is_jupyter:
        NotebookBar(live)
        yield live
    else:
        with Bar(live, console).display:
            yield live


@contextmanager
def observing_each(
    limits: Limits, console: Console, *, plain: bool, objective: Objective = HOT
) -> Iterator[Callable[[Problem], Observer]]:
    """A function that names a problem and returns its observer, for one search after another."""
    with ExitStack() as bar:

        def observed(problem: Problem) -> Observer:
            bar.close()  # of the search before
            console.print(f"tuning {problem}", highlight=False)
            return bar.enter_context(
                observing(problem, limits, console, plain=plain, objective=objective)
            )

        yield observed
