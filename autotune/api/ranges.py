"""Tune a range of sizes, such as `1..512x4096x4096`, at as few of them as it takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

from autotune.api import tuning
from autotune.api.coverage import LOSS, cover
from autotune.api.shown import shown_each
from autotune.errors import UsageError
from autotune.problem import Problem, ProblemDefaults
from autotune.problem.span import Span
from autotune.records import Record, Store
from autotune.records.ranges import Range
from autotune.runners.objective import HOT, Objective, ObjectiveText
from autotune.settings import cache_dir
from autotune.targets import targets
from autotune.targets.sources import DEFAULT, DeviceLike
from autotune.targets.workplace import Workplace
from autotune.tuning.events import Observer
from autotune.tuning.options import Options, options_of, race_options, require_time

if TYPE_CHECKING:
    from typing_extensions import Unpack


def tune_range(
    text: str,
    *,
    device: DeviceLike = DEFAULT,
    loss: float = LOSS,
    trials: int | None = None,
    budget: float | None = None,
    seed: int = 0,
    sampler: str = "gp",
    family: str = "auto",
    jobs: int | None = None,
    objective: ObjectiveText | Objective = HOT,
    observer: Observer | None = None,
    progress: bool = True,
    batch_invariant: bool = False,
    **arguments: Unpack[ProblemDefaults],
) -> Range:
    """Tunes as few sizes of a range as keep the expected loss small, and records which tuned size
    serves which others. The ends are searched; sizes between are raced, as `tune` with `quick`.

    Sizes with a record are not tuned again. The range is recorded after each size, so that an
    interrupt loses none and a second call continues.

    Args:
        text: a problem with one size as LOW..HIGH, such as `1..512x4096x4096:bf16`.
        loss: accepted loss against full tuning; 0.05 is 5 %.
        budget: seconds of the call, after which the range is as good as it is; by default 60 for
            each search. The other arguments are those of `tune`.
        objective: the time of the loss, and of each search: `hot` or `cold`.
        progress: whether to show a progress bar of each search, on standard error or in the
            notebook, if there is no observer.
        batch_invariant: whether all kernels of a range of M add up in one order of summation, so
            that the bits of a row of C do not depend on the rows beside it. Only calls with
            `batch_invariant` run these kernels. Takes no `family`.

    Raises:
        UsageError: for an impossible range or loss, an unknown device, or invalid limits; for batch
            invariance of a range that is not of M.
        NotFoundError: with `batch_invariant`, if no order of summation serves every M.
        BudgetError: if the budget was over before the ends of the range were tuned.
        AutotuneError: as `tune`.
    """
    began, span = monotonic(), Span.parse(text, **arguments)
    options = options_of(trials, budget, seed, sampler, jobs, objective)
    options = options if budget is None else options.begun(began)
    with shown_each(options, observer, progress) as observed:
        return tune(
            span,
            options,
            device=device,
            family=family,
            loss=loss,
            observed=observed,
            batch_invariant=batch_invariant,
        )


def tune(
    span: Span,
    options: Options,
    *,
    device: DeviceLike = DEFAULT,
    family: str = "auto",
    loss: float = LOSS,
    observed: Callable[[Problem], Observer | None] = lambda _: None,
    batch_invariant: bool = False,
) -> Range:
    """`tune_range` with its arguments decoded; `observed` returns the observer of each search."""
    if not 0 < loss < math.inf:
        raise UsageError(f"loss is {loss:g}; give more than 0, such as 0.05 for 5 %")
    require_time(options, "tuning a range")
    if batch_invariant:
        from autotune.api import invariant  # the loop, which others import when they tune

        return invariant.tune(
            span, options, device=device, family=family, loss=loss, observed=observed
        )
    resolved = targets.resolve(device)
    targets.check_memory(span.problem, resolved)
    store = Store(cache_dir())
    with Workplace(device, seed=options.seed) as workplace:

        def search(problem: Problem, until: float | None) -> Record:
            timed, observer = replace(options, deadline=until), observed(problem)
            return tuning.search_at(workplace, problem, timed, family=family, observer=observer)

        def race(problem: Problem, until: float | None) -> Record:
            quick = race_options(replace(options, deadline=until))
            return tuning.search_at(workplace, problem, quick, observer=observed(problem))

        between = race if family == "auto" else None  # a race takes all families
        limits = loss, options.objective, family, between
        return cover(span, resolved, store, search, *limits, deadline=options.deadline)
