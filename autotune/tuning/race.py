"""The race with which tuning begins: promising configurations, then what their times suggest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from autotune.candidates.model_error import Sample
from autotune.families.config import Config
from autotune.lookup.promising import FOLLOWING, Contenders
from autotune.runners.base import Failure
from autotune.tuning.evaluate import Trial


class Race:
    """Two rounds of configurations. Half of the first round decides the second, which can then
    compile while the rest is measured. Others take the places of those that are too inaccurate.

    Attributes:
        considered: all candidates of the race.
        first, second: the rounds; `second` is empty until it is chosen.
        most: how many configurations both rounds have at most, without inaccurate ones.

    Args:
        contenders: the candidates; None for no race.
    """

    def __init__(self, contenders: Contenders | None) -> None:
        self._contenders = contenders
        self.considered = contenders.configs if contenders else ()
        self.first = contenders.first if contenders else ()
        self.second: tuple[Config, ...] = ()
        self.most = min(len(self.considered), len(self.first) + FOLLOWING)
        self._refused: frozenset[Config] = frozenset()
        self._chosen = False

    @property
    def configs(self) -> tuple[Config, ...]:
        """The configurations of the rounds chosen so far."""
        return self.first + self.second

    def refuse(self, places: Iterable[int]) -> None:
        """Takes the candidates at these places out, as too inaccurate."""
        self._refused |= {self.considered[place] for place in places}

    def choose(self, trials: Sequence[Trial]) -> tuple[Config, ...]:
        """Chooses what is left to choose of the second round by the trials so far, those of earlier
        runs included, and returns the second round."""
        self._chosen = True
        if self._contenders is None:
            return ()
        tried = {*self.configs, *(trial.config for trial in trials)}
        inaccurate = self._refused | {trial.config for trial in trials if _inaccurate(trial)}
        lacking = self.most - len(tried - inaccurate)
        if lacking > 0:
            timed = _samples(self._contenders, self.first, trials)
            self.second += self._contenders.following(timed, tried | inaccurate, lacking)
        return self.second

    def choose_early(self, trials: Sequence[Trial]) -> tuple[Config, ...]:
        """The second round if these trials are the first to include half of the first round."""
        if self._chosen:
            return ()
        tried = sum(trial.config in self.first for trial in trials)
        return self.choose(trials) if 2 * tried >= len(self.first) else ()


def _inaccurate(trial: Trial) -> bool:
    return isinstance(trial.outcome, Failure) and trial.outcome.stage == "accuracy"


def _samples(
    contenders: Contenders, first: Sequence[Config], trials: Iterable[Trial]
) -> Iterator[Sample]:
    """The timed trials of the first round as samples."""
    problem, device = contenders.problem, contenders.device
    for trial in trials:
        time_us = trial.time(contenders.objective)
        if trial.config in first and trial.resources and time_us < math.inf:
            yield Sample(trial.config, trial.resources, time_us, problem, device)
