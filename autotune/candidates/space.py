"""The legal configurations of a problem on a device, and why the others are illegal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from autotune.candidates.ordered import prescribed
from autotune.candidates.tree import Tree
from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.parameters import chosen_for_speed
from autotune.families.rules import BoundRule
from autotune.problem import Problem
from autotune.problem.integers import ceil_div


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

    `rejected` counts the others by the reason of the first rule each breaks. Together with
    `configs` they add up to all combinations of the family's values. `examples` has for each reason
    the values that broke a rule, and what is wrong with their numbers.
    """

    configs: tuple[Config, ...]
    rejected: Mapping[str, int] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)


def feasible(
    problem: Problem, device: Device, family: str = "simt", order: str | None = None
) -> Space:
    """All legal configurations, or those of an `order` of summation, as the domain lists them.

    A rule is checked as soon as the parameters it needs are chosen, so that whole branches are
    rejected at once; a branch equal to an earlier one is not walked again.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """
    kind = registry.serving(family, problem)
    domain, rules = kind.domain(problem, device), kind.bound_rules(problem, device)
    if order is not None:
        domain, rules = prescribed(kind, problem, domain, rules, order)
    tree = Tree(domain, rules)
    configs = tuple(Config(kind.name, params) for params in tree.legal())
    return Space(configs, dict(Counter(tree.rejected).most_common()), tree.examples)


def rejection(
    config: Config,
    problem: Problem,
    device: Device,
    *,
    recorded: bool = False,
    ordered: bool = False,
) -> Rejection | None:
    """The first rule that `config` breaks, or None if it is legal.

    Args:
        config: a configuration.
        problem: the problem it is to compute.
        device: the device it is to run on.
        recorded: whether it has been measured, which overrules what is only about speed.
        ordered: whether its order of summation is prescribed, which overrules rules `for_shape`.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """
    judge = Judge(config.family, problem, device, recorded=recorded, ordered=ordered)
    return judge.rejection(config)


class Judge:
    """Judges configurations of a family for a problem on a device; see `rejection`.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """

    def __init__(
        self,
        family: str,
        problem: Problem,
        device: Device,
        *,
        recorded: bool = False,
        ordered: bool = False,
    ) -> None:
        kind = registry.serving(family, problem)
        self._domain = kind.domain(problem, device)
        self._rules = [
            rule for rule in kind.bound_rules(problem, device) if not (recorded and rule.for_speed)
        ]
        self._ordered = ordered
        self._free = chosen_for_speed(kind.params) if recorded else frozenset()

    def rejection(self, config: Config) -> Rejection | None:
        """The first rule that a configuration breaks, or None if it is legal."""
        fault = self.domain_fault(config)
        if fault is not None:
            return fault
        for rule, detail in self.judged(config):
            if detail is not None and not (self._ordered and rule.for_shape):
                return Rejection(rule.reason, detail)
        return None

    def domain_fault(self, config: Config) -> Rejection | None:
        """The first parameter, by name or value, outside its domain; None without one."""
        domain, values = self._domain, config.values
        if values.keys() != domain.keys():
            wrong = ", ".join(sorted(values.keys() ^ domain.keys()))
            return Rejection("parameters", f"missing or unknown: {wrong}")
        for name, value in values.items():
            if value not in domain[name] and not (name in self._free and isinstance(value, int)):
                allowed = ", ".join(map(str, domain[name]))
                return Rejection("value", f"{name}={value} is none of {allowed}")
        return None

    def judged(self, config: Config) -> Iterator[tuple[BoundRule, str | None]]:
        """Each rule in order, with what is wrong with the configuration's numbers, or None."""
        values = config.values
        for rule in self._rules:
            yield rule, rule.check([values[name] for name in rule.needs])


def spread(configs: Sequence[Config], most: int) -> Sequence[Config]:
    """At most `most` of the configurations, evenly spread; all of them if there are no more.

    The step is no multiple of 2 or 3, so that parameters of 2, 3 or 4 values show them all.
    """
    return configs[:: _step(len(configs), most)]


def passed_over(configs: Sequence[Config], most: int) -> list[Config]:
    """The configurations that `spread` leaves out."""
    left = [*configs]
    del left[:: _step(len(configs), most)]
    return left


def _step(count: int, most: int) -> int:
    step = max(1, ceil_div(count, most))
    while step > 1 and (step % 2 == 0 or step % 3 == 0):
        step += 1
    return step
