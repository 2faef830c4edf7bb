"""The options of a search: its limits, its sampler, its objective."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, get_args

from autotune.errors import UsageError
from autotune.runners.objective import HOT, TIMES, Objective, ObjectiveText, objective_named

Sampler = Literal["gp", "tpe", "random", "exhaustive"]
BUDGET_S = 60.0
"""Seconds of search where the caller sets no limit."""

SHAPE_BUDGET_S = 20.0
"""Seconds that are enough for a search of one shape: workers start, kernels compile, the leaders
are timed. Shapes that share a budget have as many each by default."""

RACE_REACH = 1.05
"""The final round of a race has what takes at most this multiple of the best time: times that are
taken alone differ by less from those taken interleaved."""


@dataclass(frozen=True)
class Options:
    """The options of a search.

    Attributes:
        trials: limit on evaluated configurations of the study, those of earlier runs and of other
            processes included; None sets none.
        budget_s: limit on the seconds of this run; None sets none. Without either limit every
            configuration is tried, unless the sampler is `gp`, which stops by itself.
        seed: the sampler's random seed.
        sampler: `gp` models the times by a Gaussian process; without a limit on `trials` it stops
            when further trials are not expected to gain 0.75 %. `tpe` is Optuna's
            tree-structured Parzen estimator, `random` draws evenly, `exhaustive` tries every
            configuration from the best predicted to the worst.
        jobs: compiler threads; None takes one for each core but one.
        objective: what to minimise: the `hot` or the `cold` time, or the `energy` of the ten
            fastest hot. The best by each is recorded.
        storage: where the trials are kept: URL of an Optuna storage, or path of a journal file;
            None takes a file of the store.
        quick: races the most promising configurations instead of searching.
        score: a function of a `Trial` that is minimised in place of its time; infinite for a
            failure.
        energy: whether energies are measured too: of the ten fastest, or with a `score` of every
            trial.
        deadline: when the run has to end, by `time.monotonic`; None stands for `budget_s` after it
            begins. Runs of one call share the call's.
    """

    trials: int | None = None
    budget_s: float | None = None
    seed: int = 0
    sampler: Sampler = "gp"
    jobs: int | None = None
    objective: Objective = HOT
    storage: str | None = None
    quick: bool = False
    score: Callable[[Any], float] | None = None
    energy: bool = False
    deadline: float | None = field(default=None, compare=False)

    def begun(self, now: float) -> Options:
        """The options with a deadline, if they have a budget: the call began at `now`."""
        if self.deadline is not None or self.budget_s is None:
            return self
        return replace(self, deadline=now + self.budget_s)

    @property
    def guided(self) -> bool:
        """Whether the search begins with guesses."""
        return self.sampler in ("gp", "tpe")

    @property
    def reach(self) -> float:
        """The multiple of the best value up to which trials get into the final round."""
        return RACE_REACH if self.quick else math.inf

    @property
    def meters(self) -> bool:
        """Whether the energies of the leaders are measured."""
        return self.energy or self.objective.metered

    @property
    def meters_trials(self) -> bool:
        """Whether the energy of every trial is measured."""
        return self.energy and self.score is not None


def options_of(
    trials: int | None,
    budget: float | None,
    seed: int,
    sampler: str,
    jobs: int | None,
    objective: ObjectiveText | Objective = HOT,
    storage: str | None = None,
) -> Options:
    """The options of a search, checked and with the default budget.

    Raises:
        UsageError: for an unknown sampler or objective, a limit below 1 trial or 0 seconds, fewer
            than 1 job, a seed below 0 or above 2^63 - 1, or a value that is not a number.
    """
    checked_sampler = _checked("sampler", sampler, Sampler)
    checked_objective = objective_named(objective)
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
    if not 0 <= seed < 2**63:  # as a record holds it
        raise UsageError(f"seed is {seed}; give 0 to 2^63 - 1")
    if trials is None and budget is None and checked_sampler != "exhaustive":
        budget = BUDGET_S
    return Options(trials, budget, seed, checked_sampler, jobs, checked_objective, storage)


def enough(budget_s: float | None, searches: int = 1) -> float:
    """Seconds to recommend for searches where a budget was too small."""
    return max(SHAPE_BUDGET_S * searches, 2 * (budget_s or 0.0))


def require_time(options: Options, tunable: str) -> None:
    """Refuses an objective that is no time, for what is tuned by expected times.

    Raises:
        UsageError: for energy.
    """
    if not options.objective.is_time:
        raise UsageError(
            f"{tunable} minimises {' or '.join(TIMES)} times; tune for {options.objective} one "
            "shape at a time"
        )


def quick_options(options: Options, family: str = "auto") -> Options:
    """The options of a quick race: it takes the objective and the jobs of a search.

    Raises:
        UsageError: if others are stated, which a race cannot take.
    """
    usual = Options(jobs=options.jobs, objective=options.objective)
    stated = [
        each.name
        for each in fields(Options)
        if each.compare
        and getattr(options, each.name) != getattr(usual, each.name)
        and (each.name, getattr(options, each.name)) != ("budget_s", BUDGET_S)
    ]
    stated += ["family"] if family != "auto" else []
    if stated:
        names = ", ".join(stated).replace("budget_s", "budget")
        raise UsageError(f"quick takes no {names}; leave either out")
    return replace(usual, sampler="exhaustive", quick=True)


def race_options(options: Options) -> Options:
    """The options of the races between the searches of these, with the same deadline."""
    quick = quick_options(Options(jobs=options.jobs, objective=options.objective))
    return replace(quick, deadline=options.deadline)


def _checked(option: str, value: str, literal: Any) -> Any:
    """The value, if it is one of the literal's."""
    allowed = get_args(literal)
    if value not in allowed:
        raise UsageError(f"unknown {option} {value!r}; give one of {', '.join(allowed)}")
    return value
