"""The progress of searches that share one budget: one bar, or plain lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic

from rich.console import Console

from autotune.problem import Problem
from autotune.report.bars import Bar, Live, NotebookBar
from autotune.report.progress import PlainProgress
from autotune.report.progress_text import Limits
from autotune.runners.objective import Objective
from autotune.tuning.trials import Observer

Observed = Callable[[Problem, float], Observer]
"""Returns the observer of a search of a problem for so many seconds."""


class SharedLive:
    """The state of one bar over many searches.

    Attributes:
        drawn: called when something has changed.
        said: called with a line that stays.
        ended: whether all searches are over.
    """

    def __init__(self, count: int, budget_s: float, objective: Objective) -> None:
        self._count, self._budget_s, self._objective = count, budget_s, objective
        self._began, self._seen = monotonic(), dict[Problem, None]()
        self._current: Live | None = None
        self.drawn: Callable[[], None] = lambda: None
        self.said: Callable[[str], None] = lambda _: None
        self.ended = False

    @property
    def share(self) -> float:
        """The share (0..1) of the budget that is spent."""
        return min(1.0, (monotonic() - self._began) / self._budget_s)

    @property
    def text(self) -> str:
        """The text beside the bar."""
        if self._current is None or self.ended:
            return f"{len(self._seen)} of {self._count} shapes searched"
        *_, problem = self._seen
        return f"{len(self._seen)}/{self._count} {problem}: {self._current.text}"

    def observed(self, problem: Problem, seconds: float) -> Observer:
        """The observer of the next search."""
        self._seen.pop(problem, None)
        self._seen[problem] = None
        self._current = live = Live(problem, Limits(None, seconds), self._objective)
        live.drawn = lambda: self.drawn()
        return live

    def finish(self) -> None:
        """Draws for the last time."""
        self.ended = True
        self.drawn()


@contextmanager
def observing_all(
    count: int, budget_s: float, console: Console, *, plain: bool, objective: Objective
) -> Iterator[Observed]:
    """The observers of up to `count` searches: one bar on a terminal or in a notebook, else or if
    `plain` lines."""
    if plain or not (console.is_terminal or console.is_jupyter):
        yield lambda problem, seconds: _lines(problem, seconds, console, objective)
        return
    live = SharedLive(count, budget_s, objective)
    if console.is_jupyter:
        NotebookBar(live)
        yield live.observed
        live.finish()
    else:
        with Bar(live, console).display:
            yield live.observed


def _lines(problem: Problem, seconds: float, console: Console, objective: Objective) -> Observer:
    console.print(f"tuning {problem} for {seconds:.1f} s", highlight=False, soft_wrap=True)
    return PlainProgress(problem, Limits(None, seconds), console, objective)
