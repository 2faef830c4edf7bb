"""Which configurations are accurate enough, by the error that their sums predict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autotune.candidates.picker import picker
from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.families.parameters import names
from autotune.families.rules import bind, needs_of
from autotune.families.shared.accuracy import ErrorLimit, predicted_error
from autotune.families.summation import Summation
from autotune.problem import Problem

_Param = tuple[str, Value]


class AccuracyFilter:
    """Judges configurations of a problem by their predicted relative error.

    Args:
        problem: the problem.
        limit: the largest predicted error.
    """

    def __init__(self, problem: Problem, limit: ErrorLimit) -> None:
        self._problem, self.limit = problem, limit
        self._families: dict[str, _FamilySums] = {}

    def error(self, config: Config) -> float | None:
        """The predicted relative error; None in a precision where it does not matter."""
        return predicted_error(self._judged(config)[0], self._problem)

    def fault(self, config: Config) -> str | None:
        """The reason to refuse a configuration, with its numbers; None if it is accurate enough."""
        return self.limit.fault(self._judged(config)[0], self._problem)

    def passes(self, config: Config) -> bool:
        """Whether a configuration is accurate enough."""
        return self._judged(config)[1]

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

    def _judged(self, config: Config) -> tuple[Summation, bool]:
        if config.family not in self._families:
            self._families[config.family] = _FamilySums(config.family, self._problem, self.limit)
        return self._families[config.family].judged(config)


class _FamilySums:
    """The sums of a family's configurations and whether they are accurate enough, kept by the few
    parameters that decide: a space of 100,000 has a few hundred of them."""

    def __init__(self, family: str, problem: Problem, limit: ErrorLimit) -> None:
        kind = registry.find(family)
        self._problem, self._limit = problem, limit
        self._needs = needs_of(kind.summation)
        self._summation = bind(kind.summation, {"problem": problem}, {})
        self._pick = picker([*map(names(kind.params).index, self._needs)])
        self._judged: dict[tuple[_Param, ...], tuple[Summation, bool]] = {}

    def judged(self, config: Config) -> tuple[Summation, bool]:
        """The sums of a configuration, and whether their error is within the limit."""
        deciding = self._pick(config.params)
        judged = self._judged.get(deciding)
        if judged is None:
            values = config.values
            sums = self._summation([values[needed] for needed in self._needs])
            judged = sums, self._limit.fault(sums, self._problem) is None
            # Parameters in another order than the family's have other ones at these places.
            if tuple(name for name, _ in deciding) == self._needs:
                self._judged[deciding] = judged
        return judged
