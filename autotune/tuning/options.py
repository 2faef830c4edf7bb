"""`Search`: the effort of a search, its limits, its sampler, its objective."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, get_args

from autotune.errors import UsageError, one_of
from autotune.families.config import Config
from autotune.measure.objective import (
    DEFAULT_OBJECTIVE,
    HOT,
    TIMES,
    ObjectiveField,
    objective_named,
)

Sampler = Literal["gp", "tpe", "random", "exhaustive"]

Effort = Literal["quick", "default", "long", "exhaustive"]

BUDGET_S = 60.0
"""Seconds of a search by default."""

SHAPE_BUDGET_S = 20.0
"""Seconds that are enough for a search of one shape: workers start, kernels compile, the leaders
are timed. Shapes that share a budget have as many each by default."""

LONG_TRIALS = 400
"""Trials of a long search, which does not stop by itself. The stop rule ends searches after 50 to
135 trials, 0.65 % behind the best on average and 17 % at worst (`docs/search.md`). On twelve
recorded spaces of up to 18,000 configurations the search was within 0.2 % after 200 trials; twice
as many leave room for spaces of up to 100,000."""

LONGER = 5.0
"""Factor on the default seconds of a long search: enough for most of `LONG_TRIALS` with a single
compiler thread, which compiles about one program a second."""

RACE_REACH = 1.05
"""The final round of a race has what takes at most this multiple of the best time: times that are
taken alone differ by less from those taken interleaved."""

_RACED = ("effort", "seconds", "jobs", "objective")
"""The fields that may be stated for a race."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """The options of a search: its effort, and stated fields that replace the effort's defaults.

        autotune.tune("4096x4096x4096:bf16", search=autotune.Search(effort="long", seed=3))

    Attributes:
        effort: sets the other fields' defaults. `quick` races the most promising
            configurations instead of searching, in seconds. `default` searches for at most 60 s and
            stops when further trials are expected to gain little. `long` makes 400 trials in at
            most 300 s and does not stop before. `exhaustive` tries every configuration, however
            long that takes.
        trials: limit on evaluated configurations of the study, those of earlier runs and of other
            processes included. A stated limit replaces the seconds of the effort.
        seconds: limit on the seconds of the call. `tune_kernel` uses stated seconds whole.
        seed: the sampler's random seed.
        sampler: `gp`, the default, models the times by a Gaussian process; without a limit on
            `trials` it stops when further trials are not expected to gain 0.75 %. `tpe` is Optuna's
            tree-structured Parzen estimator, `random` draws evenly, `exhaustive` tries every
            configuration from the best predicted to the worst.
        jobs: compiler threads; None takes one for each core but one.
        objective: what to minimise: `hot`, the time with inputs as the last run left them in L2,
            `cold`, the time with L2 flushed before each run, or `energy`, the joules of a run among
            the ten fastest hot (NVML, extra `energy`). The best by each is recorded.
        storage: URL of an Optuna storage that shares the trials with other hosts, such as
            `sqlite:////abs/trials.db`; they are in a log of the cache directory anyway.
        energy: whether energies are measured too: of the ten fastest, or with a `score` of every
            trial.
        score: a function that is minimised in place of the time; with `tune_kernel` a function of a
            `KernelResult` whose value is above 0.
        recording: a file, such as `mine.json.gz`, for the outcomes of all configurations that were
            tried on a GPU, of one problem or kernel; `device="replay:mine.json.gz"` searches among
            them without one.
        deadline: when the run has to end, by `time.monotonic`; None stands for `seconds` after it
            begins. Runs of one call share the call's.

    Raises:
        UsageError: for an unknown effort, sampler or objective, a limit below 1 trial or 0 seconds,
            fewer than 1 job, a seed below 0 or above 2^63 - 1, or a value that is not a number.
    """

    effort: Effort = "default"
    trials: int | None = None
    seconds: float | None = None
    seed: int = 0
    sampler: Sampler | None = None
    jobs: int | None = None
    objective: ObjectiveField = DEFAULT_OBJECTIVE
    storage: str | None = None
    energy: bool = False
    score: Callable[[Any], float] | None = None
    recording: str | Path | None = None
    deadline: float | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        one_of("effort", self.effort, get_args(Effort))
        if self.sampler is not None:
            one_of("sampler", self.sampler, get_args(Sampler))
        if callable(self.objective):
            raise UsageError("the objective is a function; give it as score")
        object.__setattr__(self, "objective", objective_named(self.objective))
        for name, value in (("trials", self.trials), ("jobs", self.jobs), ("seed", self.seed)):
            if value is not None and not isinstance(value, int):
                raise UsageError(f"{name} is {value!r}; give a whole number")
            if value is not None and value < 1 and name != "seed":
                raise UsageError(f"{name} is {value}; give at least 1")
        if not 0 <= self.seed < 2**63:  # as a record holds it
            raise UsageError(f"seed is {self.seed}; give 0 to 2^63 - 1")
        if self.seconds is not None and not isinstance(self.seconds, int | float):
            raise UsageError(f"seconds is {self.seconds!r}; give a number of seconds")
        if self.seconds is not None and not 0 < self.seconds < math.inf:
            raise UsageError(f"budget is {self.seconds:g} s; give more than 0")
        if self.score is not None and self.objective is not HOT:
            raise UsageError(f"a score and the objective {self.objective}; leave either out")

    def limited(self, family: str = "auto") -> Search:
        """The search of one problem, with the limits of its effort if it states none.

        Raises:
            UsageError: if a race states what it cannot take, or a kernel family.
        """
        if self.quick:
            stated = [name for name in self._stated if name not in _RACED]
            stated += ["family"] if family != "auto" else []
            if stated:
                raise UsageError(f"quick takes no {', '.join(stated)}; leave either out")
        if self.quick or "exhaustive" in (self.effort, self.sampler):
            return self
        long = self.effort == "long"
        seconds = self.seconds
        if self.trials is None and seconds is None:
            seconds = BUDGET_S * (LONGER if long else 1.0)
        return replace(
            self, seconds=seconds, trials=LONG_TRIALS if long and not self.trials else self.trials
        )

    def each_limited(self, family: str = "auto") -> Search:
        """The search as `limited` makes it, for problems that share the seconds: without default
        seconds.

        Raises:
            UsageError: as `limited`, and for a recording.
        """
        self.refuse_recording("several problems take")
        return replace(self.limited(family), seconds=self.seconds)

    def refuse_recording(self, taker: str) -> None:
        """Raises a `UsageError` for a recording where `a range takes`, or another taker, none."""
        if self.recording is not None:
            raise UsageError(f"{taker} no recording; leave it out, or give one problem")

    def shared_seconds(self, searches: int) -> float:
        """Seconds of problems that share them: by default `SHAPE_BUDGET_S` for each search, and
        more for a greater effort."""
        longer = LONGER if self.effort in ("long", "exhaustive") else 1.0
        return self.seconds or SHAPE_BUDGET_S * longer * max(1, searches)

    def race(self) -> Search:
        """The race of other problems of this call, with the same deadline."""
        return Search(
            effort="quick", jobs=self.jobs, objective=self.objective, deadline=self.deadline
        )

    def begun(self, now: float) -> Search:
        """The search with a deadline, if it has a limit of seconds: the call began at `now`."""
        if self.deadline is not None or self.seconds is None:
            return self
        return replace(self, deadline=now + self.seconds)

    @property
    def quick(self) -> bool:
        """Whether the most promising configurations are raced instead of searched."""
        return self.effort == "quick"

    @property
    def sampling(self) -> Sampler:
        """The sampler that runs."""
        if self.sampler is not None:
            return self.sampler
        return "exhaustive" if self.effort in ("quick", "exhaustive") else "gp"

    @property
    def modelled(self) -> bool:
        """Whether the search fits a Gaussian process."""
        return self.sampling == "gp" and not self.quick

    @property
    def guided(self) -> bool:
        """Whether the search begins with guesses."""
        return self.sampling in ("gp", "tpe")

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

    @property
    def _stated(self) -> tuple[str, ...]:
        """The fields that differ from their defaults."""
        return tuple(
            each.name
            for each in fields(self)
            if each.compare and getattr(self, each.name) != each.default
        )


RESERVE, MOST_RESERVE = 0.05, 0.1
"""Share of the time kept for the last round, and the largest share that it gets if it takes longer.
"""

LAST_TRIALS = 12
"""Trials that a last round takes as long as: ten leaders, and a winner by each time once more."""


@dataclass
class Budget:
    """The time of a run, with a part kept for its last round.

    Attributes:
        began, end: when the run began and has to end, by `time.monotonic`; `end` is infinite
            without a limit.
        punctual: whether the last round has to end in time too.
        kept: seconds kept for the last round.
    """

    began: float
    end: float
    punctual: bool
    kept: float = field(init=False)
    _seconds: dict[Config, float] = field(init=False, default_factory=dict)
    _total: float = field(init=False, default=0.0)

    def __post_init__(self) -> None:
        self.kept = RESERVE * self._limit

    @property
    def search_end(self) -> float:
        """The end of the search, by `time.monotonic`."""
        return self.end - self.kept

    def note(self, config: Config, seconds: float) -> None:
        """Notes how long a trial took."""
        self._seconds[config] = seconds
        self._total += seconds

    def keep(self, best: Config) -> None:
        """Keeps what a last round of trials like the best takes, and at least what a trial takes:
        one that begins in time then mostly ends in time."""
        if self.punctual:
            wanted = min(LAST_TRIALS * self._cost(best), MOST_RESERVE * self._limit)
            self.kept = max(RESERVE * self._limit, wanted, self._mean)

    def affordable(self, leaders: Sequence[Config], now: float) -> int:
        """The number of leaders, from the first on, that the last round has time for; the first is
        verified once more."""
        if not self.punctual:
            return len(leaders)
        costs = accumulate(self._cost(config) for config in leaders)
        left = self.end - now - sum(self._cost(config) for config in leaders[:1])
        return sum(cost <= left for cost in costs)

    @property
    def _limit(self) -> float:
        return 0.0 if self.end == math.inf else self.end - self.began

    @property
    def _mean(self) -> float:
        return self._total / len(self._seconds) if self._seconds else 0.0

    def _cost(self, config: Config) -> float:
        """Seconds of another trial of a configuration."""
        return self._seconds.get(config, self._mean)


def stated(search: Search | None, **values: object) -> Search:
    """The search with the values that are not None in place of its own."""
    changes: dict[str, Any] = {name: value for name, value in values.items() if value is not None}
    return replace(search or Search(), **changes)


def enough(budget_s: float | None, searches: int = 1) -> float:
    """Seconds to recommend for searches where a budget was too small."""
    return max(SHAPE_BUDGET_S * searches, 2 * (budget_s or 0.0))


def require_time(search: Search, tunable: str) -> None:
    """Refuses energies, as the objective or beside it, for tunables chosen by expected times.

    Raises:
        UsageError: for energy.
    """
    if not search.objective.is_time or search.energy:
        raise UsageError(
            f"{tunable} minimises {' or '.join(TIMES)} times; tune for energy one shape at a time"
        )
