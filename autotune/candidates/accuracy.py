"""Which configurations are accurate enough, by the error that their sums predict."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.families.rules import bind, needs_of
from autotune.families.shared.accuracy import ErrorLimit, predicted_error
from autotune.families.summation import Summation
from autotune.problem import Problem

_Sums = Callable[[Config], Summation]


class AccuracyFilter:
    """Judges configurations of a problem by their predicted relative error.

    Args:
        problem: the problem.
        limit: the largest predicted error.
    """

    def __init__(self, problem: Problem, limit: ErrorLimit) -> None:
        self._problem, self.limit = problem, limit
        self._families: dict[str, _Sums] = {}
        self._passing: dict[Summation, bool] = {}

    def error(self, config: Config) -> float | None:
        """The predicted relative error; None in a precision where it does not matter."""
        return predicted_error(self._sums(config), self._problem)

    def fault(self, config: Config) -> str | None:
        """The reason to refuse a configuration, with its numbers; None if it is accurate enough."""
        return self.limit.fault(self._sums(config), self._problem)

    def passes(self, config: Config) -> bool:
        """Whether a configuration is accurate enough; a space has few different verdicts."""
        sums = self._sums(config)
        if sums not in self._passing:
            self._passing[sums] = self.limit.fault(sums, self._problem) is None
        return self._passing[sums]

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

    def _sums(self, config: Config) -> Summation:
        if config.family not in self._families:
            self._families[config.family] = self._reader(config.family)
        return self._families[config.family](config)

    def _reader(self, name: str) -> _Sums:
        """The summation of a family's configurations, kept by the few parameters that decide."""
        summation = registry.find(name).summation
        needs, bound = needs_of(summation), bind(summation, {"problem": self._problem}, {})
        kept: dict[tuple[Value, ...], Summation] = {}

        def sums(config: Config) -> Summation:
            values = config.values
            key = tuple([values[needed] for needed in needs])
            if key not in kept:
                kept[key] = bound(key)
            return kept[key]

        return sums
