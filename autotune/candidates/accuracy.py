"""Which configurations are accurate enough, by the error that their sums predict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autotune.candidates.legality import KeptResults, kept
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.summation import ErrorLimit, Summation, predicted_error
from autotune.problem import Problem


class AccuracyFilter:
    """Judges configurations of a problem by their predicted relative error.

    Args:
        problem: the problem.
        limit: the largest predicted error.
    """

    def __init__(self, problem: Problem, limit: ErrorLimit) -> None:
        self._problem, self.limit = problem, limit
        self._sums: dict[str, KeptResults[Summation]] = {}
        self._faults: dict[Summation, str | None] = {}

    def error(self, config: Config) -> float | None:
        """The predicted relative error; None in a precision where it does not matter."""
        return predicted_error(self._summation(config), self._problem)

    def fault(self, config: Config) -> str | None:
        """The reason to refuse a configuration, with its numbers; None if it is accurate enough."""
        sums = self._summation(config)
        if sums not in self._faults:
            self._faults[sums] = self.limit.fault(sums, self._problem)
        return self._faults[sums]

    def passes(self, config: Config) -> bool:
        """Whether a configuration is accurate enough."""
        return self.fault(config) is None

    def passing(self, configs: Iterable[Config]) -> list[Config]:
        """The configurations that are accurate enough."""
        return [config for config in configs if self.passes(config)]

    def accurate(self, configs: Sequence[Config]) -> list[Config]:
        """Those that are accurate enough; if none is, the most accurate ones."""
        return [configs[place] for place in self.accurate_places(configs)]

    def accurate_places(self, configs: Sequence[Config]) -> list[int]:
        """The places of the configurations that `accurate` gives."""
        passing = [place for place, config in enumerate(configs) if self.passes(config)]
        if passing or not configs:
            return passing
        errors = [self.error(config) or 0.0 for config in configs]
        least = min(errors)
        return [place for place, error in enumerate(errors) if error <= least]

    def _summation(self, config: Config) -> Summation:
        sums = self._sums.get(config.family)
        if sums is None:
            family = registry.find(config.family)
            sums = kept(family, family.summation, self._problem)
            self._sums[config.family] = sums
        return sums.of(config.values)
