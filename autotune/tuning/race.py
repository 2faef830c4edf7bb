"""The race with which tuning begins: promising configurations, then what their times suggest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from autotune.candidates.samples import Sample
from autotune.families.config import Config
from autotune.lookup.promising import FOLLOWING, Contenders
from autotune.tuning.evaluate import Trial


class Race:
    """Two rounds of configurations. Half of the first round decides the second, which can then
    compile while the rest is measured.

    Attributes:
        considered: all candidates of the race.
        first, second: the rounds; `second` is empty until it is chosen.
        most: how many configurations both rounds have at most.

    Args:
        contenders: the candidates; None for no race.
    """

    def __init__(self, contenders: Contenders | None) -> None:
        self._contenders = contenders
        self.considered = contenders.configs if contenders else ()
        self.first = contenders.first if contenders else ()
        self.second: tuple[Config, ...] = ()
        self.most = min(len(self.considered), len(self.first) + FOLLOWING)
        self._chosen = False

    @property
    def configs(self) -> tuple[Config, ...]:
        """The configurations of the rounds chosen so far."""
        return self.first + self.second

    def choose(self, trials: Sequence[Trial]) -> tuple[Config, ...]:
        """The second round, chosen by the trials of the first unless it was chosen before. Empty if
        an earlier run has had a whole race."""
        if self._contenders and not self._chosen and len(trials) < self.most:
            self.second = self._contenders.following(_samples(self._contenders, trials))
        self._chosen = True
        return self.second

    def choose_early(self, trials: Sequence[Trial]) -> tuple[Config, ...]:
        """The second round if these trials are the first to include half of the first round."""
        if self._chosen:
            return ()
        tried = sum(trial.config in self.first for trial in trials)
        return self.choose(trials) if 2 * tried >= len(self.first) else ()


def _samples(contenders: Contenders, trials: Iterable[Trial]) -> Iterator[Sample]:
    """The timed trials of the first round as samples."""
    problem, device = contenders.problem, contenders.device
    for trial in trials:
        time_us = trial.time(contenders.objective)
        if trial.config in contenders.first and trial.resources and time_us < math.inf:
            yield Sample(trial.config, trial.resources, time_us, problem, device)
