"""Legal configurations near a given one: its variants, and the nearest for another problem."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from autotune.candidates.legality import FamilyRules, Legality, Values
from autotune.device import Device
from autotune.families.config import Config, Value
from autotune.problem import Problem

STAGES = "stages"
"""The parameter that follows others: as many buffers as the tile leaves room for."""

REPAIRS = 3
"""How many parameters `Adaptation.repaired` changes at most, besides the stages."""


def variants(configs: Iterable[Config], problem: Problem, device: Device) -> list[Config]:
    """The legal configurations that differ from one of these in one parameter, and where only a
    rule on the stages forbids that, in the stages too."""
    legal: dict[Config, None] = {}
    for config in configs:
        rules = FamilyRules.of(config.family, problem, device)
        legal |= dict.fromkeys(_variants_of(config, rules))
    return [*legal]


def _variants_of(config: Config, rules: FamilyRules) -> Iterator[Config]:
    values = config.values
    passed = rules.broken(values)
    for name, allowed in rules.domain.items():
        for value in allowed:
            if value == values[name]:
                continue
            changed = {**values, name: value}
            broken = rules.broken_after_change(changed, name, passed)
            if name == STAGES and broken < len(rules):
                continue
            for permitted in _with_legal_stages(changed, broken, rules):
                yield Config.of(config.family, permitted)


class Adaptation:
    """Adapts configurations to a problem on a device.

    Numbers that the problem has no use for, such as columns of a tile or persistent blocks, become
    the nearest that it has. Where the buffers then take too much shared memory, or leave room for
    more, the stages follow.
    """

    def __init__(self, problem: Problem, device: Device) -> None:
        self._legality = Legality(problem, device)

    def __call__(self, config: Config) -> Config | None:
        """The adapted configuration; None if none is legal."""
        return self._adapted(config, repairs=0)

    def repaired(self, config: Config) -> Config | None:
        """The adapted configuration; where rules forbid it, with up to `REPAIRS` more parameters
        changed. None if that makes none legal. It takes several times as long."""
        return self._adapted(config, REPAIRS)

    def _adapted(self, config: Config, repairs: int) -> Config | None:
        rules, stated = self._legality.rules(config.family), config.values
        if rules is None or stated.keys() != rules.domain.keys():
            return None
        values: dict[str, Value] = {}
        for name, domain in rules.domain.items():
            nearest = _nearest(stated[name], domain)
            if nearest is None:
                return None
            values[name] = nearest
        legal = _legal(values, rules, repairs)
        return None if legal is None else Config.of(config.family, legal)


def _legal(values: Values, rules: FamilyRules, repairs: int) -> Values | None:
    """The values, if they are legal, else with up to `repairs` of them changed, then with other
    stages; None if that makes none legal.

    Each change is to a parameter that the broken rule reads, and lets the values pass the most
    further rules; among equals it is the nearest value of the parameter read last, which as a rule
    follows from the others.
    """
    broken = rules.broken(values)
    for _ in range(repairs):
        if broken == len(rules) or STAGES in rules.verdicts[broken].needs:
            break
        changes = [*_changes(values, broken, rules)]
        if not changes:
            return None
        broken, values = max(changes, key=lambda change: change[0])
    return next(_with_legal_stages(values, broken, rules), None)


def _changes(values: Values, broken: int, rules: FamilyRules) -> Iterator[tuple[int, Values]]:
    """The values with one parameter changed that the rule at `broken`, the first that they break,
    reads; each with the place of the first rule that it breaks, up to the first legal ones."""
    for name in reversed(rules.verdicts[broken].needs):
        for value in _by_distance(values[name], rules.domain[name]):
            changed = {**values, name: value}
            place = rules.broken_after_change(changed, name, broken)
            yield place, changed
            if place == len(rules):
                return


def _with_legal_stages(values: Values, broken: int, rules: FamilyRules) -> Iterator[Values]:
    """The values, if they are legal; where only a rule on the stages forbids them, those with other
    stages that are. `broken` is the place of the first rule that the values break."""
    if broken == len(rules):
        yield values
    elif STAGES in rules.verdicts[broken].needs:
        for stages in rules.domain[STAGES]:
            staged = {**values, STAGES: stages}
            if rules.broken_after_change(staged, STAGES, broken) == len(rules):
                yield staged


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
