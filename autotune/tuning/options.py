"""How long and how to search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, get_args

from autotune.errors import UsageError
from autotune.runners.base import Objective

Sampler = Literal["gp", "tpe", "random", "exhaustive"]
BUDGET_S = 60.0
"""Seconds of search if the caller sets no limit."""


@dataclass(frozen=True)
class Options:
    """How long and how to search.

    Attributes:
        trials: stop once so many configurations are evaluated, those of earlier runs included;
            None sets no limit.
        budget_s: stop after so many seconds of this run, or once the first guess works if that
            takes longer; None sets no limit. Without either limit every configuration is tried,
            unless the sampler is `gp`, which stops by itself.
        seed: of the sampler.
        sampler: `gp` models the times by a Gaussian process; without a number of `trials` it stops
            when further ones are not expected to give half a per cent. `tpe` learns from the times
            by Optuna's sampler, `random` draws evenly, `exhaustive` goes from the best predicted to
            the worst.
        jobs: threads that compile; None takes one for each core but one.
        objective: the kind of time that is to become small. The best of either kind is recorded.
        storage: URL of an Optuna storage for the trials, or the path of a journal file; None takes
            a file of the store.
    """

    trials: int | None = None
    budget_s: float | None = None
    seed: int = 0
    sampler: Sampler = "gp"
    jobs: int | None = None
    objective: Objective = "hot"
    storage: str | None = None


def options_of(
    trials: int | None,
    budget: float | None,
    seed: int,
    sampler: str,
    jobs: int | None,
    objective: str = "hot",
    storage: str | None = None,
) -> Options:
    """The options of a search, checked and with the default budget.

    Raises:
        UsageError: for an unknown sampler or objective, limits below 1 trial or 0 seconds, less
            than 1 job, and what is no number.
    """
    chosen = _named("sampler", sampler, Sampler)
    wanted = _named("objective", objective, Objective)
    for name, value in (("trials", trials), ("jobs", jobs), ("seed", seed)):
        if value is not None and not isinstance(value, int):
            raise UsageError(f"{name} is {value!r}; give a whole number")
    for name, value in (("trials", trials), ("jobs", jobs)):
        if value is not None and value < 1:
            raise UsageError(f"{name} is {value}; give at least 1")
    if budget is not None and not isinstance(budget, int | float):
        raise UsageError(f"budget is {budget!r}; give a number of seconds")
    if budget is not None and not budget > 0:
        raise UsageError(f"budget is {budget:g} s; give more than 0")
    if seed < 0:
        raise UsageError(f"seed is {seed}; give 0 or more")
    if trials is None and budget is None and chosen != "exhaustive":
        budget = BUDGET_S
    return Options(trials, budget, seed, chosen, jobs, wanted, storage)


def _named(what: str, name: str, kinds: Any) -> Any:
    """The literal of that name, of those that `kinds` has."""
    known = get_args(kinds)
    if name not in known:
        raise UsageError(f"unknown {what} {name!r}; give one of {', '.join(known)}")
    return name
