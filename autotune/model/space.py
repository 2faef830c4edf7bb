"""The legal configurations of a problem on a device: all, samples, and those near a given one.

`feasible` enumerates them and counts why the rest is not legal. `variants` and `Adaptation` change
given configurations. `AccuracyFilter` keeps those whose sums predict a small enough error.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.families.registry import AUTO, families_of
from autotune.families.summation import ErrorLimit, Summation, predicted_error
from autotune.model.legality import (
    FamilyRules,
    KeptResults,
    Legality,
    Rejection,
    Values,
    kept,
    picker,
    rules_of,
)
from autotune.problem import COMPUTES, Problem
from autotune.problem.integers import ceil_div

ARCHITECTURE = "architecture"
"""The reason of the rules that refuse a device whatever the parameters are."""

SAMPLE = 3000
"""Configurations of a family that the cost model chooses among: all would keep the first GEMM
waiting for seconds."""

ALIKE = 2
"""The most diverse configurations of a family that share tile and k-iterations."""


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
    """All legal configurations of a family, as its domain lists them; with an order of summation,
    those that have it.

    A rule is checked as soon as the parameters it needs are chosen, so that whole branches are
    rejected at once; a branch equal to an earlier one is not walked again.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """
    rules = rules_of(family, problem, device, order)
    first = _first_level(rules)
    whole = first.branch({})
    configs = tuple(Config(rules.family, params) for params in whole.ends)
    return Space(configs, dict(Counter(whole.rejected).most_common()), first.examples)


def rejection(
    config: Config, problem: Problem, device: Device, *, recorded: bool = False
) -> Rejection | None:
    """The first rule that `config` breaks, or None if it is legal.

    Args:
        config: a configuration.
        problem: the problem it is to compute.
        device: the device it is to run on.
        recorded: whether it has been measured, which overrules what is only about speed.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """
    return rules_of(config.family, problem, device).rejection(config, recorded=recorded)


_Pair = tuple[str, Value]


class _Branch:
    """The legal ends of a combination, in order, and how many others each reason rejects."""

    def __init__(self) -> None:
        self.ends: list[tuple[_Pair, ...]] = []
        self.rejected: defaultdict[str, int] = defaultdict(int)

    def add(self, prefix: tuple[_Pair, ...], below: _Branch) -> None:
        """Adds a branch that follows a prefix."""
        self.ends += map(prefix.__add__, below.ends)
        for reason, count in below.rejected.items():
            self.rejected[reason] += count


class _Level:
    """One parameter of a walk through every combination of a family's values.

    The values that may follow depend only on those chosen above that rules from here on read.
    Branches with the same such values are walked once.

    Args:
        name: the parameter.
        values: its values.
        above: the parameters above it.
        rules: the reasons and results of the rules that it completes.
        below: the next level.
    """

    def __init__(
        self,
        name: str,
        values: Sequence[Value],
        above: Sequence[str],
        rules: Sequence[tuple[str, KeptResults[str | None]]],
        below: _Level | None,
    ) -> None:
        self._name, self._rules, self._below = name, rules, below
        self._pairs = [(name, value) for value in values]
        self._size: int = below._size * len(below._pairs) if below else 1
        deciding = {parameter for _, results in rules for parameter in results.needs}
        self._decide = picker([parameter for parameter in above if parameter in deciding])
        self._reads: set[str] = deciding | below._reads if below else deciding
        reads = [parameter for parameter in above if parameter in self._reads]
        self._read, self._shared = picker(reads), len(reads) < len(above)
        self._branches: dict[object, _Branch] = {}
        self._options: dict[object, list[tuple[_Pair, str | None]]] = {}
        self._examples: dict[int, tuple[str, str]] = {}

    @property
    def examples(self) -> dict[str, str]:
        """The first values that broke the rule of each reason, and what is wrong with them. Where
        rules share a reason, the first rule's count."""
        below = self._below.examples if self._below else {}
        return {**below, **dict(example for _, example in sorted(self._examples.items())[::-1])}

    def branch(self, chosen: dict[str, Value]) -> _Branch:
        """The branch below the values chosen above, walked once."""
        key = self._read(chosen)
        if (branch := self._branches.get(key)) is None:
            branch = self._branches[key] = _Branch()
            self._extend(branch, (), chosen)
        return branch

    def _extend(self, branch: _Branch, prefix: tuple[_Pair, ...], chosen: dict[str, Value]) -> None:
        """Adds to a branch what follows a prefix, which ends with what is chosen above."""
        below = self._below
        for pair, reason in self._decided(chosen):
            if reason is not None:
                branch.rejected[reason] += self._size
                continue
            chosen[self._name] = pair[1]
            if below is None:
                branch.ends.append((*prefix, pair))
            elif below._shared:
                branch.add((*prefix, pair), below.branch(chosen))
            else:
                below._extend(branch, (*prefix, pair), chosen)

    def _decided(self, chosen: dict[str, Value]) -> list[tuple[_Pair, str | None]]:
        """Each value, named, with the reason for which the first broken rule rejects it."""
        key = self._decide(chosen)
        if (options := self._options.get(key)) is None:
            options = self._options[key] = []
            for pair in self._pairs:
                chosen[self._name] = pair[1]
                options.append((pair, self._broken(chosen)))
        return options

    def _broken(self, chosen: Values) -> str | None:
        for place, (reason, results) in enumerate(self._rules):
            read = results.pick(chosen)
            detail = results[read]
            if detail is not None:
                if place not in self._examples:
                    pairs = ", ".join(map("{}={}".format, results.needs, read))
                    self._examples[place] = reason, f"{pairs}: {detail}" if pairs else detail
                return reason
        return None


def _first_level(rules: FamilyRules) -> _Level:
    """The levels of a family, each with the rules that read no parameter below it."""
    domain, below = rules.enumerated, None
    left = [*zip((rule.reason for rule in rules.rules), rules.results, strict=True)]
    for place, name in reversed([*enumerate(domain)]):
        completed = [row for row in left if name in row[1].needs or place == 0]
        left = [row for row in left if name not in row[1].needs]
        below = _Level(name, domain[name], [*domain][:place], completed, below)
    assert below is not None
    return below


def spread(configs: Sequence[Config], most: int) -> Sequence[Config]:
    """At most `most` of the configurations, evenly spread; all of them if there are no more.

    The step is not a multiple of 2 or 3, so that parameters of 2, 3 or 4 values show them all.
    """
    return configs[:: _step(len(configs), most)]


def skipped(configs: Sequence[Config], most: int) -> list[Config]:
    """The configurations that `spread` skips."""
    left = [*configs]
    del left[:: _step(len(configs), most)]
    return left


def _step(count: int, most: int) -> int:
    step = max(1, ceil_div(count, most))
    while step > 1 and (step % 2 == 0 or step % 3 == 0):
        step += 1
    return step


def sample(
    problem: Problem, device: Device, family: str = AUTO, order: str | None = None
) -> list[Config]:
    """A sample of the legal configurations, small enough to predict at once: evenly spread over
    each family that the name stands for. With an `order` of summation, only of its configurations.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """
    spaces = (feasible(problem, device, name, order) for name in families_of(family, problem))
    return [config for legal in spaces for config in spread(legal.configs, SAMPLE)]


def diverse(ranked: Iterable[Config], problem: Problem, count: int) -> tuple[Config, ...]:
    """The first `count` of `ranked`, those too similar to better ones only if there are no others.

    At most `ALIKE` of a family share tile and k-iterations: the cost model is often blind to what
    else differs.
    """
    chosen: list[Config] = []
    alike = Counter[object]()
    similar: list[Config] = []
    for config in ranked:
        if len(chosen) == count:
            break
        work = registry.find(config.family).work(config, problem)
        kind = config.family, work.tile, work.iterations
        alike[kind] += 1
        (chosen if alike[kind] <= ALIKE else similar).append(config)
    return (*chosen, *similar[: count - len(chosen)])


def unserved(problem: Problem, device: Device, family: str = AUTO) -> str:
    """The line of an error: the rules that refuse all configurations, and the precisions that the
    device runs if its architecture is at fault."""
    names = families_of(family, problem)
    refusals = [_refusal(name, problem, device) for name in names]
    kernel = "kernel" if family == AUTO else f"{family} kernel"
    said = f"no {kernel} can run {problem} on {device.name}"
    if None not in refusals:
        # The last family asks for the least.
        return f"{said}: {refusals[-1]}; it runs {', '.join(_runs(problem, device))}"
    return f"{said}: {'; '.join(_reason(name, problem, device) for name in names)}"


def _runs(problem: Problem, device: Device) -> list[str]:
    """The precisions that some kernel computes on the device."""
    plain = {compute: Problem(problem.m, problem.n, problem.k, compute) for compute in COMPUTES}
    return [
        compute
        for compute, row in plain.items()
        if any(_refusal(name, row, device) is None for name in registry.tuned(row))
    ]


def _refusal(family: str, problem: Problem, device: Device) -> str | None:
    """Why the family runs nothing on such a device; None if it does."""
    rules = rules_of(family, problem, device)
    first = {name: values[0] for name, values in rules.domain.items()}
    results = zip(rules.rules, rules.results, strict=True)
    return next((kept.of(first) for rule, kept in results if rule.reason == ARCHITECTURE), None)


def _reason(family: str, problem: Problem, device: Device) -> str:
    """The rule of a family that refuses the most configurations, with an example."""
    legal = feasible(problem, device, family)
    name = next(iter(legal.rejected), "it knows none")
    return f"{family}: {name}: {legal.examples.get(name, '')}".removesuffix(": ")


class AccuracyFilter:
    """Checks configurations of a problem by their predicted relative error.

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
        """The configurations that are accurate enough; if none is, the most accurate ones."""
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


STAGES = "stages"
"""The parameter that follows others: as many buffers as the tile leaves room for."""

REPAIRS = 3
"""The most parameters that `Adaptation.repaired` changes, besides the stages."""


def variants(configs: Iterable[Config], problem: Problem, device: Device) -> list[Config]:
    """The legal configurations that differ from one of these in one parameter, and where only a
    rule on the stages forbids that, in the stages too."""
    legal: dict[Config, None] = {}
    for config in configs:
        rules = rules_of(config.family, problem, device)
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
        if broken == len(rules) or STAGES in rules.results[broken].needs:
            break
        changes = [*_changes(values, broken, rules)]
        if not changes:
            return None
        broken, values = max(changes, key=lambda change: change[0])
    return next(_with_legal_stages(values, broken, rules), None)


def _changes(values: Values, broken: int, rules: FamilyRules) -> Iterator[tuple[int, Values]]:
    """The values with one parameter changed that the rule at `broken`, the first that they break,
    reads; each with the place of the first rule that it breaks, up to the first legal ones."""
    for name in reversed(rules.results[broken].needs):
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
    elif STAGES in rules.results[broken].needs:
        for stages in rules.domain[STAGES]:
            staged = {**values, STAGES: stages}
            if rules.broken_after_change(staged, STAGES, broken) == len(rules):
                yield staged


@lru_cache(maxsize=4096)
def _by_distance(value: Value, domain: tuple[Value, ...]) -> tuple[Value, ...]:
    """The values of a domain other than the present one, the nearest first."""
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
