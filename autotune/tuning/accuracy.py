"""The accuracy that trials are held to, which the vendor baseline sets, often after they ran."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from autotune.families.config import Config
from autotune.runners.base import Failure, Measurement
from autotune.tuning.evaluate import Trial
from autotune.tuning.options import Search

EXTRA = 100
"""At most so many trials beyond the limit, while every measured one is refused as inaccurate."""

STEP = 10
"""Trials by which the limit rises at once."""


@dataclass
class Accuracy:
    """Judges trials by the vendor baseline.

    Attributes:
        judged: the measurement, or a failure if it is too inaccurate beside a baseline.
        baseline: the vendor baseline; None judges nothing.
        closest: the most accurate of the refused trials, with its error; None before the first.
    """

    judged: Callable[[Measurement, Measurement], Measurement | Failure]
    baseline: Measurement | None = None
    closest: tuple[float, Config, Failure] | None = field(default=None, init=False)

    def of(self, trial: Trial) -> Trial:
        """The trial; a failure if it is less accurate than the vendor baseline allows."""
        if self.baseline is None or isinstance(trial.outcome, Failure):
            return trial
        outcome, error = self.judged(trial.outcome, self.baseline), trial.outcome.relative_error
        if isinstance(outcome, Failure) and error is not None:
            refused = error, trial.config, outcome
            self.closest = min(self.closest or refused, refused, key=lambda entry: entry[0])
        return replace(trial, outcome=outcome)

    def summary(self) -> str:
        """The end of an error: the most accurate refused trial and what may help; or nothing."""
        if self.closest is None:
            return ""
        _, config, failure = self.closest
        return f"; the most accurate, {config}: {failure.reason}; allow more trials or time"


def extended(options: Search, finished: int) -> Search | None:
    """The options with a limit above the finished trials; None if there were `EXTRA` already."""
    if options.trials is None:
        return options
    limit = min(finished + STEP, options.trials + EXTRA)
    return replace(options, trials=limit) if finished < limit else None
