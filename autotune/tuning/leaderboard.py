"""The leaderboard of a tuning run: all trials, and the fastest of them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable

from autotune.families.config import Config
from autotune.records.winners import fastest_cold, least_energy
from autotune.runners.base import BestTimes, Failure, Objective, other_objective
from autotune.runners.estimates import winner
from autotune.tuning.evaluate import Trial

LEADERS = 10
"""Trials that are timed interleaved at the end, and recorded."""

BY_OTHER_OBJECTIVE = 2
"""Leaders by the time that is not the objective."""

NEAR = 1.1
"""The best of a family is a leader up to this multiple of the best time: it may owe its place to
how little of that family was searched."""


class Leaderboard:
    """The trials of this run and of earlier ones.

    Attributes:
        trials: in the order in which they finished.
        failures: how many of them failed.
        best: the fastest by the objective; None if none has such a time.

    Args:
        objective: the time to minimise.
        score: a function that is minimised in place of the time.
        reach: the multiple of the best value up to which trials are leaders. The best of near
            families and by the other objective are leaders beyond it.
    """

    def __init__(
        self,
        objective: Objective = "hot",
        score: Callable[[Trial], float] | None = None,
        reach: float = math.inf,
    ) -> None:
        self._objective: Objective = objective
        self._score, self._reach = score, reach
        self.trials: list[Trial] = []
        self.failures = 0
        self.best: Trial | None = None
        self._best_us = _no_times()
        self._timed: set[Config] = set()
        self._rematched: list[Trial] | None = None

    def add(self, trial: Trial) -> None:
        """Adds a trial; a failure replaces earlier trials of its configuration."""
        if isinstance(trial.outcome, Failure) and trial.config in self._timed:
            self._replace(entry for entry in [*self.trials] if entry.config != trial.config)
        self.trials.append(trial)
        if isinstance(trial.outcome, Failure):
            self.failures += 1
            return
        self._timed.add(trial.config)
        for objective, time_us in self._best_us.items():
            self._best_us[objective] = min(time_us, trial.time(objective))
        if self._time(trial) < (math.inf if self.best is None else self._time(self.best)):
            self.best = trial

    def rejudge(self, judge: Callable[[Trial], Trial]) -> None:
        """Replaces every trial by what `judge` makes of it."""
        self._replace([judge(trial) for trial in self.trials])

    def rematch(self, trials: Iterable[Trial]) -> bool:
        """From now on only these trials, which were timed interleaved, can lead.

        If none of them has a time, they replace the earlier ones of their configurations instead,
        and it returns False.
        """
        rematched = {trial.config: trial for trial in trials}
        if any(self._time(trial) < math.inf for trial in rematched.values()):
            self._rematched = [*rematched.values()]
            return True
        self.rejudge(lambda trial: rematched.get(trial.config, trial))
        return False

    def disqualify(self, trial: Trial) -> None:
        """Adds the failure of a configuration that was rematched."""
        self.add(trial)
        rest = [entry for entry in self._rematched or () if entry.config != trial.config]
        self._rematched = [*rest, trial]

    @property
    def best_times(self) -> BestTimes:
        """The best hot and the best cold time of any trial."""
        return BestTimes(self._best_us["hot"], self._best_us["cold"])

    @property
    def winners(self) -> list[Config]:
        """The configurations that the record of the leaders names as its best: hot, cold, by energy
        and by the score."""
        leaders = self.leaders
        entries = [entry for trial in leaders if (entry := trial.entry)]
        first = leaders[0].entry if leaders and self._score else None
        kinds = winner, fastest_cold, least_energy
        best = (first, *(kind(entries) for kind in kinds)) if entries else ()
        return [*dict.fromkeys(entry.config for entry in best if entry is not None)]

    @property
    def leaders(self) -> list[Trial]:
        """At most ten of the fastest: the best of each family that is near, and the best two by
        the other objective, are among them.

        After a rematch only its trials count: times taken alone and times taken interleaved cannot
        be compared.
        """
        pool = self.trials if self._rematched is None else self._rematched
        timed = sorted((trial for trial in pool if self._time(trial) < math.inf), key=self._time)
        if not timed:
            return []
        best_of = {trial.config.family: trial for trial in reversed(timed)}
        best, second = self._time(timed[0]), self._best_by_other(timed)
        near = [trial for trial in best_of.values() if self._time(trial) <= NEAR * best]
        within = [trial for trial in timed if self._time(trial) <= self._reach * best]
        fastest = within[: LEADERS - BY_OTHER_OBJECTIVE]
        chosen = dict.fromkeys(trial.config for trial in (*near, *fastest, *second, *within))
        by_config = {trial.config: trial for trial in timed}
        return sorted((by_config[config] for config in [*chosen][:LEADERS]), key=self._time)

    def _replace(self, trials: Iterable[Trial]) -> None:
        self.trials, self.failures, self.best = [], 0, None
        self._best_us = _no_times()
        self._timed.clear()
        for trial in trials:
            self.add(trial)

    @property
    def timed(self) -> frozenset[Config]:
        """Configurations that have a time."""
        return frozenset(self._timed)

    @property
    def failed(self) -> frozenset[Config]:
        """Configurations that failed, in a trial, in the rematch or later."""
        trials = (*self.trials, *(self._rematched or ()))
        return frozenset(trial.config for trial in trials if isinstance(trial.outcome, Failure))

    def failure_summary(self) -> str:
        """Why no trial has a time, in one line: counts by stage, and the first failure."""
        failures = [
            (trial.config, trial.outcome)
            for trial in self.trials
            if isinstance(trial.outcome, Failure)
        ]
        tried = {config for config, _ in failures}
        failures += [
            (trial.config, trial.outcome)
            for trial in self._rematched or ()
            if isinstance(trial.outcome, Failure) and trial.config not in tried
        ]
        if self._objective == "cold" and any(trial.time_us < math.inf for trial in self.trials):
            return "cold times are not known here; minimise the hot ones"
        if not failures:
            return "none was tried; allow more trials or time"
        stages = Counter(failure.stage for _, failure in failures)
        counts = ", ".join(f"{stage} {count}" for stage, count in stages.most_common())
        config, first = failures[0]
        return f"{counts}; such as {config}: {first.stage}: {first.reason}"

    def _best_by_other(self, timed: Iterable[Trial]) -> list[Trial]:
        """The fastest by the time that is not the objective."""
        second = other_objective(self._objective)
        pool = [trial for trial in timed if trial.time(second) < math.inf]
        return sorted(pool, key=lambda trial: trial.time(second))[:BY_OTHER_OBJECTIVE]

    def _time(self, trial: Trial) -> float:
        """The value to minimise: the time, or the score."""
        return trial.time(self._objective) if self._score is None else self._score(trial)


def _no_times() -> dict[Objective, float]:
    return {"hot": math.inf, "cold": math.inf}
