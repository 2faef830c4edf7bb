"""The race with which tuning begins: what is promising, and then what the times suggest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

from autotune.candidates.samples import Sample
from autotune.families.config import Config
from autotune.lookup.promising import FOLLOWING, Contenders
from autotune.tuning.evaluate import Trial


class Race:
    """Two rounds of configurations. The second is chosen when half of the first has finished, so
    that it can be compiled meanwhile. In a search it is the first guesses.

    Attributes:
        considered: all that a round may have.
        configs: those of the rounds so far.
        most: how many both rounds have at most.

    Args:
        contenders: what to choose from; None for no race.
        barred: whether a configuration must not run; the next ones take its place.
    """

    def __init__(self, contenders: Contenders | None, barred: Callable[[Config], bool]) -> None:
        self._contenders, self._barred = contenders, barred
        self.considered = self._allowed(contenders.configs) if contenders else ()
        self.configs = self.considered[: contenders.count] if contenders else ()
        self._first, self._second = self.configs, tuple[Config, ...]()
        self._chosen = contenders is None
        self.most = min(len(self.considered), len(self.configs) + FOLLOWING)

    def chosen(self, trials: Sequence[Trial]) -> tuple[Config, ...]:
        """The second round, as soon as it is chosen; nothing before and after that."""
        if self._chosen:
            return ()
        if 2 * sum(trial.config in self._first for trial in trials) < len(self._first):
            return ()
        self._choose(trials)
        return self._second

    def second(self, trials: Sequence[Trial]) -> tuple[Config, ...]:
        """The second round, which begins now; nothing if there is none."""
        if not self._chosen:
            self._choose(trials)
        self.configs = self._first + self._second
        return self._second

    def _choose(self, trials: Sequence[Trial]) -> None:
        self._chosen = True
        raced_before = len(trials) >= self.most  # in an earlier run
        if self._contenders is not None and not raced_before:
            timed = _samples(self._contenders, self._first, trials)
            following = self._allowed(self._contenders.following(timed))
            self._second = tuple(config for config in following if config not in self._first)

    def _allowed(self, configs: Iterable[Config]) -> tuple[Config, ...]:
        return tuple(config for config in configs if not self._barred(config))


def _samples(
    contenders: Contenders, configs: Sequence[Config], trials: Iterable[Trial]
) -> Iterator[Sample]:
    """What the trials of these configurations tell of the problem."""
    problem, device = contenders.problem, contenders.device
    for trial in trials:
        time_us = trial.time(contenders.objective)
        if trial.config in configs and trial.resources is not None and time_us < math.inf:
            yield Sample(trial.config, trial.resources, time_us, problem, device)
