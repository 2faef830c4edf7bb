"""Whether configurations are legal, judged many at a time.

Of a few hundred configurations most share the values that a rule reads, so a rule is asked once for
each combination of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from itertools import product

from autotune.candidates.picker import picker
from autotune.device import Device
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.families.parameters import chosen_for_speed
from autotune.families.rules import Rule, Views
from autotune.problem import Problem

Values = tuple[Value, ...]
_Check = Callable[[Sequence[Value]], str | None]


class Verdicts:
    """Judges configurations of a family for a problem on a device, as `space.Judge` does.

    A rule that does not read the problem has the same verdicts for all problems, and likewise for
    devices.

    Attributes:
        domain: the values of each parameter, in the order of the parameters.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """

    def __init__(self, family: str, problem: Problem, device: Device) -> None:
        kind = registry.serving(family, problem)
        self.domain, free = kind.domain(problem, device), chosen_for_speed(kind.params)
        self._problem, self._device, self._views = problem, device, Views()
        self._names = tuple(self.domain)
        self._allowed = [(frozenset(values), name in free) for name, values in self.domain.items()]
        self._order = order = _rule_order(tuple(kind.rules), self._names)
        tables = {
            (by_problem, by_device): _verdicts(
                order, problem if by_problem else None, device if by_device else None
            )
            for by_problem, by_device in product((False, True), repeat=2)
        }
        self._verdicts = [tables[reads][place] for place, reads in enumerate(self._order.reads)]
        self._checks: list[_Check | None] = [None] * len(self._order.rules)

    @classmethod
    @lru_cache(maxsize=32)
    def of(cls, family: str, problem: Problem, device: Device) -> Verdicts:
        """The same, with the verdicts of earlier calls."""
        return cls(family, problem, device)

    def legal(self, config: Config, *, recorded: bool, ordered: bool) -> bool:
        """Whether a configuration breaks no rule; `recorded` and `ordered` as in
        `space.rejection`."""
        values = self._values(config)
        if values is None:
            return False
        for value, (allowed, free) in zip(values, self._allowed, strict=True):
            if value not in allowed and not (recorded and free and isinstance(value, int)):
                return False
        return self.broken(values, recorded=recorded, ordered=ordered) is None

    def broken(
        self, values: Values, *, recorded: bool = False, ordered: bool = False
    ) -> Rule | None:
        """The first rule that values of the domain break, in its order; None if they are legal."""
        return self._first_broken(values, _applicable(self._order, recorded, ordered))

    def broken_after_change(self, values: Values, changed: int, passed: int) -> Rule | None:
        """The first rule that values break after one parameter changed. Of the rules that passed
        before, only those that read the parameter are checked.

        Args:
            values: the values after the change, of the domain.
            changed: the place of the parameter.
            passed: the number of rules, from the first on, that passed before the change.
        """
        return self._first_broken(values, _affected(self._order, changed, passed))

    def _first_broken(self, values: Values, places: Iterable[int]) -> Rule | None:
        """The first rule at these places that values break; None if they break none."""
        picks, all_verdicts = self._order.picks, self._verdicts
        for place in places:
            verdicts, read = all_verdicts[place], picks[place](values)
            verdict = verdicts.get(read)
            if verdict is None:
                verdict = verdicts[read] = self._check(place)(read) is None
            if not verdict:
                return self._order.rules[place]
        return None

    def place(self, rule: Rule | None) -> int:
        """How many rules come before this one; all of them before None."""
        return len(self._order.rules) if rule is None else self._order.places[rule]

    def _check(self, place: int) -> _Check:
        """The check of a rule, bound when it is first needed."""
        check = self._checks[place]
        if check is None:
            rule = self._order.rules[place]
            check = rule.bind(self._problem, self._device, self._views).check
            self._checks[place] = check
        return check

    def _values(self, config: Config) -> Values | None:
        """The values in the domain's order; None if a parameter is missing or unknown."""
        names, values = zip(*config.params, strict=True) if config.params else ((), ())
        if names == self._names:
            return values
        by_name = config.values
        if by_name.keys() != {*self._names}:
            return None
        return tuple(by_name[name] for name in self._names)


class VerdictsByFamily(dict[str, "Verdicts | None"]):
    """The verdicts of each family for a problem on a device, made when first asked for; None of a
    family that there is not or that does not serve the problem's compute."""

    def __init__(self, problem: Problem, device: Device) -> None:
        super().__init__()
        self._problem, self._device = problem, device

    def __missing__(self, family: str) -> Verdicts | None:
        try:
            self[family] = Verdicts.of(family, self._problem, self._device)
        except ConfigError:
            self[family] = None
        return self[family]


@dataclass(frozen=True, eq=False)
class _RuleOrder:
    """The rules of a family in their order.

    Attributes:
        names: the parameters, in the order of a configuration's values.
        rules: the rules.
        picks: what picks the values that each rule reads.
        reads: whether each reads the problem, and whether the device.
        places: the place of each rule.
    """

    names: tuple[str, ...]
    rules: tuple[Rule, ...]
    picks: tuple[Callable[[Values], Values], ...]
    reads: tuple[tuple[bool, bool], ...]
    places: Mapping[Rule, int]


@cache
def _rule_order(rules: tuple[Rule, ...], names: tuple[str, ...]) -> _RuleOrder:
    """The rules of a family with parameters in that order."""
    picks = tuple(picker([*map(names.index, rule.needs)]) for rule in rules)
    reads = tuple((rule.reads_problem, rule.reads_device) for rule in rules)
    return _RuleOrder(names, rules, picks, reads, {rule: at for at, rule in enumerate(rules)})


@cache
def _applicable(order: _RuleOrder, recorded: bool, ordered: bool) -> tuple[int, ...]:
    """The places of the rules that apply: without those `for_speed` to recorded configurations,
    without those `for_shape` to those of a prescribed order of summation."""
    return tuple(
        place
        for place, rule in enumerate(order.rules)
        if not (recorded and rule.for_speed) and not (ordered and rule.for_shape)
    )


@cache
def _affected(order: _RuleOrder, changed: int, passed: int) -> tuple[int, ...]:
    """The places of the rules that a change of the parameter at `changed` can break, where the
    first `passed` rules passed before it."""
    name = order.names[changed]
    return tuple(
        place for place, rule in enumerate(order.rules) if place >= passed or name in rule.needs
    )


@lru_cache(maxsize=64)
def _verdicts(
    order: _RuleOrder, problem: Problem | None, device: Device | None
) -> tuple[dict[Values, bool], ...]:
    """The verdicts of each rule by the values it reads, for rules that read the problem and the
    device where these are not None."""
    del problem, device
    return tuple({} for _ in order.rules)
