"""The legal configurations of a problem on a device, and why the others are illegal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from operator import itemgetter

from autotune.candidates.ordered import prescribed
from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.families.parameters import chosen_for_speed
from autotune.families.rules import BoundRule
from autotune.problem import Problem
from autotune.problem.integers import ceil_div

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
    tree = _Tree(domain, rules)
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
    fault = domain_fault(config, problem, device, recorded=recorded)
    if fault is not None:
        return fault
    for rule, detail in judged(config, problem, device, recorded=recorded):
        if detail is not None and not (ordered and rule.for_shape):
            return Rejection(rule.reason, detail)
    return None


def domain_fault(
    config: Config, problem: Problem, device: Device, *, recorded: bool = False
) -> Rejection | None:
    """The first parameter, by name or value, outside its domain; None without one.

    Raises:
        ConfigError: as `rejection`.
    """
    kind = registry.serving(config.family, problem)
    domain, values = kind.domain(problem, device), config.values
    if set(values) != set(domain):
        wrong = ", ".join(sorted(set(values) ^ set(domain)))
        return Rejection("parameters", f"missing or unknown: {wrong}")
    free = chosen_for_speed(kind.params) if recorded else frozenset()
    for name, value in values.items():
        if value not in domain[name] and not (name in free and isinstance(value, int)):
            allowed = ", ".join(map(str, domain[name]))
            return Rejection("value", f"{name}={value} is none of {allowed}")
    return None


def judged(
    config: Config, problem: Problem, device: Device, *, recorded: bool = False
) -> Iterator[tuple[BoundRule, str | None]]:
    """Each rule in order, with what is wrong with the configuration's numbers, or None.

    A rule may rely on the rules before it: do not go on behind one that is broken, unless it is
    about speed alone. The configuration has no `domain_fault`.

    Raises:
        ConfigError: as `rejection`.
    """
    values = config.values
    for rule in registry.serving(config.family, problem).bound_rules(problem, device):
        if not (recorded and rule.for_speed):
            yield rule, rule.check([values[name] for name in rule.needs])


def spread(configs: Sequence[Config], most: int) -> Sequence[Config]:
    """At most `most` of the configurations, evenly spread. The step is no multiple of 2 or 3, so
    that parameters of 2, 3 or 4 values show them all."""
    step = max(1, ceil_div(len(configs), most))
    while step > 1 and (step % 2 == 0 or step % 3 == 0):
        step += 1
    return configs[::step]


class _Tree:
    """Every combination of a domain, one level for each parameter.

    The values that may follow on a level depend only on those chosen above it that rules from
    there on read. Branches with the same such values are walked once.

    Attributes:
        rejected: how many combinations that `legal` passed over fell to which reason.
    """

    def __init__(self, domain: Mapping[str, tuple[Value, ...]], rules: Sequence[BoundRule]) -> None:
        self.rejected: dict[str, int] = {}
        self._chosen: list[Value] = []
        names = tuple(domain)
        checks: list[list[BoundRule]] = [[] for _ in names]
        for rule in rules:
            checks[max(map(names.index, rule.needs), default=0)].append(rule)
        self._levels = [_Level(level, domain, checks) for level in range(len(names))]

    @property
    def examples(self) -> dict[str, str]:
        """The first values that broke a rule of each reason, with what is wrong with them."""
        rules = [rule for level in self._levels for rule in level.rules]
        return {rule.reason: rule.example for rule in reversed(rules) if rule.example is not None}

    def legal(self) -> list[Params]:
        """The legal combinations, in order."""
        combinations: list[Params] = []
        self._collect(0, (), combinations)
        return combinations

    def _collect(self, level: int, prefix: Params, combinations: list[Params]) -> None:
        """Appends what follows `prefix`, which holds what is chosen above `level`."""
        if level == len(self._levels) or self._levels[level].shared:
            ends, rejected = self._branch(level)
            combinations += map(prefix.__add__, ends)
            _count(self.rejected, rejected)
            return
        here, chosen = self._levels[level], self._chosen
        for pair, reason in here.options(chosen):
            if reason is not None:
                self.rejected[reason] = self.rejected.get(reason, 0) + here.size
                continue
            chosen.append(pair[1])
            self._collect(level + 1, (*prefix, pair), combinations)
            chosen.pop()

    def _branch(self, level: int) -> _Branch:
        """The legal ends of the combination chosen above `level`, and the rejections, cached."""
        if level == len(self._levels):
            return _END
        here, chosen = self._levels[level], self._chosen
        key = here.read(chosen)
        if (branch := here.branches.get(key)) is not None:
            return branch
        ends, rejected = list[Params](), dict[str, int]()
        for pair, reason in here.options(chosen):
            if reason is not None:
                rejected[reason] = rejected.get(reason, 0) + here.size
                continue
            chosen.append(pair[1])
            below, fallen = self._branch(level + 1)
            chosen.pop()
            ends += map((pair,).__add__, below)
            _count(rejected, fallen)
        here.branches[key] = ends, rejected
        return ends, rejected


_Branch = tuple[list[Params], dict[str, int]]
_END: _Branch = ([()], {})


class _Level:
    """One parameter of a tree and the rules that it completes.

    Attributes:
        size: combinations below each value.
        shared: whether several branches above may hold the same.
        read: picks the values chosen above that decide what a branch from here on holds.
        branches: branches by what `read` picks.
        rules: those that the parameter completes.
    """

    def __init__(
        self, level: int, domain: Mapping[str, tuple[Value, ...]], checks: Sequence[list[BoundRule]]
    ) -> None:
        names = tuple(domain)
        self.size = prod(map(len, list(domain.values())[level + 1 :]))
        reads = _needed(names[:level], checks[level:])
        self.shared = len(reads) < level
        self.read = _picker(reads)
        self.branches: dict[object, _Branch] = {}
        self._pairs = [(names[level], value) for value in domain[names[level]]]
        self._decide = _picker(_needed(names[:level], checks[level : level + 1]))
        self._options: dict[object, list[tuple[tuple[str, Value], str | None]]] = {}
        self.rules = [_KeptRule(rule, names) for rule in checks[level]]

    def options(self, chosen: list[Value]) -> list[tuple[tuple[str, Value], str | None]]:
        """Each value, named, with the reason for which the first broken rule rejects it."""
        key = self._decide(chosen)
        if (options := self._options.get(key)) is None:
            options = [(pair, self._broken([*chosen, pair[1]])) for pair in self._pairs]
            self._options[key] = options
        return options

    def _broken(self, chosen: list[Value]) -> str | None:
        for rule in self.rules:
            if rule.breaks(chosen):
                return rule.reason
        return None


class _KeptRule:
    """A rule that keeps its verdicts: several branches ask for the same values.

    Attributes:
        reason: the rule's reason.
        example: the first values that broke it, and what is wrong with them; None before.
    """

    def __init__(self, rule: BoundRule, names: Sequence[str]) -> None:
        self.reason = rule.reason
        self.example: str | None = None
        self._needs = rule.needs
        self._check = rule.check
        self._read = _picker([names.index(name) for name in rule.needs])
        self._verdicts: dict[tuple[Value, ...], bool] = {}

    def breaks(self, chosen: Sequence[Value]) -> bool:
        """Whether the chosen values break the rule."""
        values = self._read(chosen)
        if (verdict := self._verdicts.get(values)) is None:
            detail = self._check(values)
            verdict = self._verdicts[values] = detail is not None
            if detail is not None and self.example is None:
                named = zip(self._needs, values, strict=True)
                pairs = ", ".join(f"{name}={value}" for name, value in named)
                self.example = f"{pairs}: {detail}" if pairs else detail
        return verdict


def _needed(names: Sequence[str], checks: Sequence[Sequence[BoundRule]]) -> list[int]:
    """Which of the parameters the rules read, as indexes."""
    needed = {name for rules in checks for rule in rules for name in rule.needs}
    return [index for index, name in enumerate(names) if name in needed]


def _picker(indexes: Sequence[int]) -> Callable[[Sequence[Value]], tuple[Value, ...]]:
    """A function that picks the values at the indexes as a tuple."""
    if len(indexes) > 1:
        return itemgetter(*indexes)
    return lambda chosen: tuple(chosen[index] for index in indexes)


def _count(counts: dict[str, int], more: Mapping[str, int]) -> None:
    for reason, count in more.items():
        counts[reason] = counts.get(reason, 0) + count
