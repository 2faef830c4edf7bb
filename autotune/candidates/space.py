"""The candidates of a problem on a device, and why the others are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from autotune.device import Device
from autotune.families import registry
from autotune.families.base import Rule
from autotune.families.config import Config, Value
from autotune.problem import Problem

# Values with their names, as a configuration holds them.
Params = tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Rejection:
    """Why a configuration is illegal: the rule's short name, and what is wrong with its numbers."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


@dataclass(frozen=True)
class Space:
    """The configurations of one family that are legal for a problem on a device.

    `rejected` counts the others by reason, each under the first rule it broke; together with
    `configs` they add up to all combinations of the family's values.
    """

    configs: tuple[Config, ...]
    rejected: Mapping[str, int] = field(default_factory=dict)


def feasible(problem: Problem, device: Device, family: str = "simt") -> Space:
    """All legal configurations, in the order of the family's domain.

    A rule is checked as soon as the parameters it needs are chosen, so that whole branches are
    counted at once; a branch that holds the same as one before it is not walked again.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """
    kind = registry.serving(family, problem)
    tree = _Tree(kind.domain(problem, device), kind.rules(problem, device))
    configs = tuple(Config(kind.name, params) for params in tree.legal())
    return Space(configs, dict(tree.rejected.most_common()))


def rejection(config: Config, problem: Problem, device: Device) -> Rejection | None:
    """The first rule that `config` breaks, or None if it is legal.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """
    kind = registry.serving(config.family, problem)
    domain, values = kind.domain(problem, device), config.values
    if set(values) != set(domain):
        wrong = ", ".join(sorted(set(values) ^ set(domain)))
        return Rejection("parameters", f"missing or unknown: {wrong}")
    for name, value in values.items():
        if value not in domain[name]:
            allowed = ", ".join(map(str, domain[name]))
            return Rejection("value", f"{name}={value} is none of {allowed}")
    for rule in kind.rules(problem, device):
        detail = rule.check(values)
        if detail is not None:
            return Rejection(rule.reason, detail)
    return None


def spread(configs: Sequence[Config], most: int) -> Sequence[Config]:
    """At most `most` of the configurations, evenly spread; all of them if they are no more.

    The step does not beat with parameters of 2, 3 or 4 values, which would show one value only.
    """
    step = max(1, -(-len(configs) // most))
    while step > 1 and (step % 2 == 0 or step % 3 == 0):
        step += 1
    return configs[::step]


class _Tree:
    """Every combination of a domain, one level for each parameter.

    Attributes:
        rejected: how many of those that `legal` went by fell to which reason.
    """

    def __init__(self, domain: Mapping[str, tuple[Value, ...]], rules: Sequence[Rule]) -> None:
        self.rejected: Counter[str] = Counter()
        self._names, self._choices = tuple(domain), tuple(domain.values())
        self._checks: list[list[Rule]] = [[] for _ in domain]
        for rule in rules:
            self._checks[max(map(self._names.index, rule.needs))].append(rule)
        self._sizes = [prod(map(len, self._choices[level + 1 :])) for level in range(len(domain))]
        # What a level lets through, and what a whole branch holds, follow from these alone.
        self._decides = [self._needed(level, level) for level in range(len(domain))]
        self._reads = [self._needed(level, len(domain)) for level in range(len(domain))]
        self._broken: dict[tuple[object, ...], list[str | None]] = {}
        self._chosen: dict[str, Value] = {}
        self._known: dict[tuple[object, ...], tuple[list[Params], Counter[str]]] = {}

    def legal(self) -> list[Params]:
        """The legal combinations, in order."""
        found: list[Params] = []
        self._collect(0, (), found)
        return found

    def _collect(self, level: int, chosen: Params, found: list[Params]) -> None:
        if level == len(self._names) or len(self._reads[level]) < level:
            ends, rejected = self._branch(level)
            found += map(chosen.__add__, ends)
            for reason, count in rejected.items():
                self.rejected[reason] += count
        else:  # no other branch holds the same
            for pair in self._allowed(level, self.rejected):
                self._collect(level + 1, (*chosen, pair), found)

    def _branch(self, level: int) -> tuple[list[Params], Counter[str]]:
        """What may follow what is chosen above `level`, and what falls; both are kept."""
        if level == len(self._names):
            return [()], Counter()
        key = (level, *map(self._chosen.__getitem__, self._reads[level]))
        if key not in self._known:
            ends, rejected = list[Params](), Counter[str]()
            for pair in self._allowed(level, rejected):
                below, fallen = self._branch(level + 1)
                ends += map((pair,).__add__, below)
                for reason, count in fallen.items():
                    rejected[reason] += count
            self._known[key] = ends, rejected
        return self._known[key]

    def _allowed(self, level: int, rejected: Counter[str]) -> Iterator[tuple[str, Value]]:
        """Chooses each value in turn; one that breaks a rule counts for all below it."""
        name = self._names[level]
        key = (level, *map(self._chosen.__getitem__, self._decides[level]))
        if key not in self._broken:
            self._broken[key] = [self._first_broken(level, value) for value in self._choices[level]]
        for value, reason in zip(self._choices[level], self._broken[key], strict=True):
            if reason is None:
                self._chosen[name] = value
                yield name, value
            else:
                rejected[reason] += self._sizes[level]

    def _first_broken(self, level: int, value: Value) -> str | None:
        self._chosen[self._names[level]] = value
        broken = (rule for rule in self._checks[level] if rule.check(self._chosen) is not None)
        return next((rule.reason for rule in broken), None)

    def _needed(self, level: int, last: int) -> list[str]:
        """The parameters above `level` that the rules of the levels from it to `last` read."""
        checks = self._checks[level : last + 1]
        needed = {name for rules in checks for rule in rules for name in rule.needs}
        return [name for name in self._names[:level] if name in needed]
