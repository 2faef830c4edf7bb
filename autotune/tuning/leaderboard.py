"""The trials of a tuning run, and who leads."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable

from autotune.runners.base import Failure, Objective
from autotune.tuning.evaluate import Trial

# What is timed against each other at the end, and recorded.
LEADERS = 10
# So many of them by the other kind of time than the one that is searched for.
OTHERS = 2
# The best of a family that took up to so many times the best of all is one of them: it may owe its
# place to how far the search of that family has come.
NEAR = 1.1


class Leaderboard:
    """What is known so far.

    Attributes:
        trials: of this run and of earlier ones, in their order.
        failures: how many of them failed.
        best: the fastest of them; None if none has a time of the kind that counts.

    Args:
        objective: the kind of time that counts.
    """

    def __init__(self, objective: Objective = "hot") -> None:
        self._objective: Objective = objective
        self.trials: list[Trial] = []
        self.failures = 0
        self.best: Trial | None = None
        self._rematched: list[Trial] | None = None

    def note(self, trial: Trial) -> None:
        """Adds a trial."""
        self.trials.append(trial)
        self.failures += isinstance(trial.outcome, Failure)
        if self._time(trial) < (math.inf if self.best is None else self._time(self.best)):
            self.best = trial

    def judge(self, judged: Callable[[Trial], Trial]) -> None:
        """Something has come to be known by which the trials so far are judged anew."""
        trials, self.trials, self.failures, self.best = self.trials, [], 0, None
        for trial in trials:
            self.note(judged(trial))

    def rematch(self, trials: Iterable[Trial]) -> None:
        """Only these count from now on, as they were timed beside each other."""
        self._rematched = list(trials)

    @property
    def leaders(self) -> list[Trial]:
        """The fastest, at most ten, the best of each family among them if it is near, and the best
        two by the other kind of time.

        Once they were timed again, only those: a time of its own cannot be compared with one that
        was taken beside others.
        """
        pool = self.trials if self._rematched is None else self._rematched
        timed = sorted((one for one in pool if self._time(one) < math.inf), key=self._time)
        if not timed:
            return []
        first = {trial.config.family: trial for trial in reversed(timed)}
        near = [one for one in first.values() if self._time(one) <= NEAR * self._time(timed[0])]
        other: Objective = "cold" if self._objective == "hot" else "hot"
        rivals = [one for one in timed if one.time(other) < math.inf]
        rivals = sorted(rivals, key=lambda one: one.time(other))[:OTHERS]
        chosen = dict.fromkeys(
            one.config for one in (*near, *timed[: LEADERS - OTHERS], *rivals, *timed)
        )
        known = {one.config: one for one in timed}
        return sorted((known[config] for config in [*chosen][:LEADERS]), key=self._time)

    def _time(self, trial: Trial) -> float:
        return trial.time(self._objective)

    def epitaph(self) -> str:
        """Why nothing has a time, in one line."""
        fallen = [
            (trial.config, trial.outcome)
            for trial in (*self.trials, *(self._rematched or ()))
            if isinstance(trial.outcome, Failure)
        ]
        if not fallen:
            return "none was tried; allow more trials or time"
        stages = Counter(failure.stage for _, failure in fallen)
        counts = ", ".join(f"{stage} {count}" for stage, count in stages.most_common())
        config, failure = fallen[0]
        return f"{counts}; such as {config}: {failure.stage}: {failure.reason}"
