"""A configuration made to fit another problem: the nearest that is worth a try there."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

from autotune.candidates.variants import STAGES, with_legal_stages, with_value
from autotune.candidates.verdicts import Values, Verdicts, VerdictsByFamily
from autotune.device import Device
from autotune.families.config import Config, Value
from autotune.families.rules import Rule
from autotune.problem import Problem

REPAIRS = 3
"""How many parameters `Adaptation.repaired` changes at most, besides the stages."""


class Adaptation:
    """Adapts configurations to a problem on a device.

    Numbers that the problem has no use for, such as columns of a tile or persistent blocks, become
    the nearest that it has. Where the buffers then take too much shared memory, or leave room for
    more, the stages follow.
    """

    def __init__(self, problem: Problem, device: Device) -> None:
        self._families = VerdictsByFamily(problem, device)

    def __call__(self, config: Config) -> Config | None:
        """The adapted configuration; None if none is legal."""
        return self._adapted(config, repairs=0)

    def repaired(self, config: Config) -> Config | None:
        """The adapted configuration; where rules forbid it, with up to `REPAIRS` more parameters
        changed. None if that makes none legal. It takes several times as long."""
        return self._adapted(config, REPAIRS)

    def _adapted(self, config: Config, repairs: int) -> Config | None:
        verdicts = self._families[config.family]
        if verdicts is None or config.values.keys() != verdicts.domain.keys():
            return None
        stated = config.values
        values = [_nearest(stated[name], domain) for name, domain in verdicts.domain.items()]
        whole = tuple(value for value in values if value is not None)
        if len(whole) < len(values):
            return None
        legal = _legal(whole, verdicts, repairs)
        if legal is None:
            return None
        return Config(config.family, tuple(zip(verdicts.domain, legal, strict=True)))


def _legal(values: Values, verdicts: Verdicts, repairs: int) -> Values | None:
    """The values, if they are legal, else with up to `repairs` of them changed, then with other
    stages; None if that makes none legal.

    Each change is to a parameter that the broken rule reads, and lets the values pass the most
    further rules; among equals it is the nearest value of the parameter read last, which as a rule
    follows from the others.
    """
    rule = verdicts.broken(values)
    for _ in range(repairs):
        if rule is None or STAGES in rule.needs:
            break
        changes = [*_changes(values, rule, verdicts)]
        if not changes:
            return None
        values, rule = max(changes, key=lambda change: verdicts.place(change[1]))
    return next(with_legal_stages(values, rule, verdicts), None)


def _changes(
    values: Values, rule: Rule, verdicts: Verdicts
) -> Iterator[tuple[Values, Rule | None]]:
    """The values with one parameter changed that the rule reads, and the rule that they then break,
    up to the first that break none. `rule` is the first that the values break."""
    names, passed = [*verdicts.domain], verdicts.place(rule)
    for place in map(names.index, reversed(rule.needs)):
        for value in _by_distance(values[place], verdicts.domain[names[place]]):
            changed = with_value(values, place, value)
            broken = verdicts.broken_after_change(changed, place, passed)
            yield changed, broken
            if broken is None:
                return


@lru_cache(maxsize=4096)
def _by_distance(value: Value, domain: tuple[Value, ...]) -> tuple[Value, ...]:
    """The other values of a domain, the nearest first."""
    left = (number for number in domain if number != value)
    return tuple(sorted(left, key=lambda number: _distance(number, value)))


def _distance(number: Value, value: Value) -> float:
    """The ratio of two numbers as a distance; infinite if either turns a parameter off or is a
    word."""
    if not isinstance(value, int) or not isinstance(number, int) or value <= 0 or number <= 0:
        return math.inf
    return abs(math.log(number / value))


def _nearest(value: Value, domain: Sequence[Value]) -> Value | None:
    """The value, else the number of the domain whose ratio to it is nearest to 1; None if there is
    none. 0 turns a parameter off and is near no number."""
    if value in domain:
        return value
    nearest = min(domain, key=lambda number: _distance(number, value), default=None)
    return None if nearest is None or _distance(nearest, value) == math.inf else nearest
