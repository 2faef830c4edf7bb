"""Progress that is redrawn in place: a bar on a terminal, and an element of a notebook."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from time import monotonic
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task
from rich.progress import Progress as Display
from rich.text import Text

from autotune.problem import Problem
from autotune.records import TuningRecord
from autotune.report.progress_text import Limits, Speed, recorded, rematch_text, state, time_left
from autotune.runners.base import Measurement
from autotune.runners.objective import Objective
from autotune.tuning.trials import Progress, Trial

REDRAWN_S = 0.25
"""Shortest time between two drawings in a notebook."""


class Live:
    """An observer that knows what to draw now.

    Attributes:
        share: the share (0..1) of the run that is over.
        drawn: called when something has changed.
        said: called with a line that stays.
        ended: whether the run is over.
    """

    def __init__(self, problem: Problem | None, limits: Limits, objective: Objective) -> None:
        self._speed, self._limits = Speed(problem, objective), limits
        self._earlier, self._began = 0, monotonic()
        self._latest = Progress(0, 0, None, 0.0)
        self._activity: str | None = "looking for candidates"
        self.share, self.ended = 0.0, False
        self.drawn: Callable[[], None] = lambda: None
        self.said: Callable[[str], None] = lambda _: None

    @property
    def text(self) -> str:
        """The text beside the bar."""
        if self._activity is not None:
            return self._activity
        left = self._limits.left(self._latest.trials, self._earlier, monotonic() - self._began)
        return f"{state(self._latest, self._speed)}{time_left(left)}"

    def started(self, feasible: int, rejected: Mapping[str, int], progress: Progress) -> None:
        del rejected
        self._earlier, self._limits = progress.trials, self._limits.within(feasible)
        self._began = monotonic() - progress.seconds
        self._latest, self._activity = progress, None
        self.drawn()

    def baseline(self, measurement: Measurement | None) -> None:
        self._speed.compare(measurement)

    def trial(self, trial: Trial, progress: Progress) -> None:
        del trial
        self._latest = progress
        self.share = self._limits.share(progress.trials, progress.seconds)
        self.drawn()

    def enough(self, gain: float) -> None:
        self.said(f"stopping: further trials are expected to give {gain:.2%} at most")

    def rematch(self, leaders: Sequence[Trial]) -> None:
        self._activity = rematch_text(len(leaders), self._speed)
        self.share = 1.0
        self.drawn()

    def finished(self, record: TuningRecord, progress: Progress) -> None:
        self._activity, self.ended = recorded(record, progress, self._speed), True
        self.drawn()


class Drawn(Protocol):
    """The state that a bar draws: see `Live`."""

    drawn: Callable[[], None]
    said: Callable[[str], None]
    ended: bool

    @property
    def share(self) -> float: ...

    @property
    def text(self) -> str: ...


class Bar(ProgressColumn):
    """A bar with a line of text, on a terminal; it is gone when the run is over."""

    def __init__(self, live: Drawn, console: Console) -> None:
        super().__init__()
        self._live = live
        self.display = Display(BarColumn(10), self, console=console, transient=True)
        self._task = self.display.add_task("", total=1.0)
        live.drawn = self._draw
        live.said = lambda line: console.print(line, highlight=False)

    def render(self, task: Task) -> Text:
        """The text beside the bar."""
        del task
        return Text(self._live.text, no_wrap=True)

    def _draw(self) -> None:
        self.display.update(self._task, completed=self._live.share)


class NotebookBar:
    """A bar with a line of text in the output of a notebook's cell; the last line stays."""

    def __init__(self, live: Drawn) -> None:
        from IPython.display import display

        self._live, self._drawn = live, monotonic()
        self._handle = display(self._content(), raw=True, display_id=True)
        live.drawn = self._draw

    def _draw(self) -> None:
        now = monotonic()
        if self._live.ended or now - self._drawn >= REDRAWN_S:
            self._drawn = now
            self._handle.update(self._content(), raw=True)

    def _content(self) -> dict[str, str]:
        text = self._live.text
        bar = "" if self._live.ended else f'<progress value="{self._live.share:.3f}"></progress> '
        return {"text/plain": text, "text/html": f"<div>{bar}{escape(text)}</div>"}
