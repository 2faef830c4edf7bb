"""The candidates of a problem on a device, and why the others are not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from autotune import families
from autotune.config import Config, Value
from autotune.device import Device
from autotune.families.base import Rule
from autotune.problem import Problem


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
    counted at once.

    Raises:
        ConfigError: if there is no such family.
    """
    kind = families.find(family)
    domain = kind.domain(problem, device)
    names, choices = tuple(domain), tuple(domain.values())
    checks = _schedule(names, kind.rules(problem, device))
    below = [prod(len(values) for values in choices[depth + 1 :]) for depth in range(len(names))]
    configs: list[Config] = []
    rejected: Counter[str] = Counter()
    chosen: dict[str, Value] = {}

    def descend(depth: int) -> None:
        for value in choices[depth]:
            chosen[names[depth]] = value
            for rule in checks[depth]:
                if rule.check(chosen) is not None:
                    rejected[rule.reason] += below[depth]
                    break
            else:
                if depth + 1 < len(names):
                    descend(depth + 1)
                else:
                    configs.append(Config(kind.name, tuple(chosen.items())))

    descend(0)
    return Space(tuple(configs), dict(rejected.most_common()))


def rejection(config: Config, problem: Problem, device: Device) -> Rejection | None:
    """The first rule that `config` breaks, or None if it is legal.

    Raises:
        ConfigError: if there is no such family.
    """
    kind = families.find(config.family)
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


def _schedule(names: tuple[str, ...], rules: tuple[Rule, ...]) -> list[list[Rule]]:
    """The rules by the depth at which the last parameter they need is chosen."""
    schedule: list[list[Rule]] = [[] for _ in names]
    for rule in rules:
        schedule[max(names.index(name) for name in rule.needs)].append(rule)
    return schedule
