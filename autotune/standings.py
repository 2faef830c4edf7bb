"""The trials of a tuning run, and who leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from autotune.evaluate import Trial
from autotune.runner import Failure, Measurement

# What is timed against each other at the end, and recorded.
LEADERS = 10
# The best of a family that took up to so many times the best of all is one of them: it may owe its
# place to how far the search of that family has come.
NEAR = 1.1


class Standings:
    """What is known so far.

    Attributes:
        trials: of this run and of earlier ones, in their order.
        failures: how many of them failed.
        best: the fastest of them; None if none has a time.
    """

    def __init__(self) -> None:
        self.trials: list[Trial] = []
        self.failures = 0
        self.best: Trial | None = None
        self._rematched: list[Trial] | None = None

    def note(self, trial: Trial) -> None:
        """Adds a trial."""
        self.trials.append(trial)
        if isinstance(trial.outcome, Failure):
            self.failures += 1
        elif self.best is None or trial.time_us < self.best.time_us:
            self.best = trial

    def rematch(self, trials: Iterable[Trial]) -> None:
        """Only these count from now on, as they were timed beside each other."""
        self._rematched = list(trials)

    @property
    def leaders(self) -> list[Trial]:
        """The fastest, at most ten, the best of each family among them if it is near.

        Once they were timed again, only those: a time of its own cannot be compared with one that
        was taken beside others.
        """
        pool = self.trials if self._rematched is None else self._rematched
        timed = [trial for trial in pool if isinstance(trial.outcome, Measurement)]
        timed.sort(key=lambda trial: trial.time_us)
        first = {trial.config.family: trial for trial in reversed(timed)}
        near = [one for one in first.values() if one.time_us <= NEAR * timed[0].time_us]
        others = [one for one in timed if one not in near]
        return sorted([*near, *others][:LEADERS], key=lambda trial: trial.time_us)

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
