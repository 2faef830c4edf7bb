"""The progress that the public functions show unless they are told not to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from autotune.problem import Problem
from autotune.runners.objective import Objective
from autotune.tuning.options import Search
from autotune.tuning.trials import Observer


@contextmanager
def shown(
    problem: Problem | None, options: Search, progress: bool | Observer
) -> Iterator[Observer | None]:
    """The observer of a search: the caller's, or one that shows it on standard error or in a
    notebook.

    Args:
        problem: what is tuned; None for a user kernel.
        options: the search, with its limits.
        progress: whether to show anything, or the caller's observer.
    """
    if progress is not True:
        yield None if progress is False else progress
        return
    from autotune.report.console import PlainConsole
    from autotune.report.progress import Limits, observing

    limits, console = Limits(options.trials, options.seconds), PlainConsole(stderr=True)
    with observing(problem, limits, console, plain=False, objective=options.objective) as bar:
        yield bar


@contextmanager
def shown_each(
    options: Search, progress: bool | Observer
) -> Iterator[Callable[[Problem], Observer | None]]:
    """As `shown`, for one search after another: a function from a problem to its observer."""
    if progress is not True:
        yield lambda _: None if progress is False else progress
        return
    from autotune.report.console import PlainConsole
    from autotune.report.progress import Limits, observing_each

    limits, console = Limits(options.trials, options.seconds), PlainConsole(stderr=True)
    with observing_each(limits, console, plain=False, objective=options.objective) as observed:
        yield observed


@contextmanager
def shown_all(
    objective: Objective, progress: bool | Observer, count: int, budget_s: float
) -> Iterator[Callable[[Problem, float], Observer | None]]:
    """As `shown_each`, for up to `count` searches that share a budget."""
    if progress is not True:
        yield lambda _problem, _seconds: None if progress is False else progress
        return
    from autotune.report.console import PlainConsole
    from autotune.report.progress_all import observing_all

    console = PlainConsole(stderr=True)
    with observing_all(count, budget_s, console, plain=False, objective=objective) as observed:
        yield observed
