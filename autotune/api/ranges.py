"""Tune a range of sizes, such as `1..512x4096x4096`, at as few of them as it takes."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from autotune.api import tuning
from autotune.api.coverage import LOSS, cover
from autotune.errors import UsageError
from autotune.problem import Problem
from autotune.problem.arguments import Span
from autotune.records import Record, Store
from autotune.records.ranges import Range
from autotune.settings import cache_dir
from autotune.targets import targets
from autotune.targets.sources import DEFAULT, DeviceLike
from autotune.targets.workplace import Workplace
from autotune.tuning.events import Observer
from autotune.tuning.options import Search, require_time


def tune(
    span: Span,
    options: Search,
    *,
    device: DeviceLike = DEFAULT,
    family: str = "auto",
    loss: float = LOSS,
    observed: Callable[[Problem], Observer | None] = lambda _: None,
    batch_invariant: bool = False,
) -> Range:
    """Tunes as few sizes of a range as keep the expected loss small, and records which tuned size
    serves which others: `autotune.tune` of a range with its arguments decoded. The ends are
    searched; sizes between are raced.

    Sizes with a record are not tuned again. The range is recorded after each size, so that an
    interrupt loses none and a second call continues.

    Args:
        span: the range.
        options: the search of each end.
        device: as for `autotune.tune`.
        family: kernel family; another than `auto` searches the sizes between the ends too.
        loss: accepted loss against full tuning; 0.05 is 5 %.
        observed: returns the observer of each search.
        batch_invariant: whether all kernels add up in one order of summation.

    Raises:
        UsageError: for an impossible loss, an energy, or batch invariance of a range not of M.
        NotFoundError: with `batch_invariant`, if no order of summation serves every M.
        BudgetError: if the budget was over before the ends of the range were tuned.
        AutotuneError: as `autotune.tune`.
    """
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
            quick = replace(options, deadline=until).race()
            return tuning.search_at(workplace, problem, quick, observer=observed(problem))

        between = race if family == "auto" else None  # a race takes all families
        limits = loss, options.objective, family, between
        return cover(span, resolved, store, search, *limits, deadline=options.deadline)
