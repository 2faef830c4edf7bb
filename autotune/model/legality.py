"""Legality: whether a configuration can run a problem on a device, and which rule forbids it.

`FamilyRules` answers for one family. `space.feasible` enumerates what it allows, and
`space.Adaptation` changes configurations until it allows them. All of them ask a rule once for each
combination of the values that it reads.

Batch invariance prescribes an order of summation: kernels that add the products of an element of C
in one order give a row the same bits in every batch. `families.summation` names the orders; records
(`FamilyRecord`), look-ups (`lookup.batch_invariant`) and tuning (`api.invariant`) build on them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from operator import itemgetter
from typing import Any, TypeVar

from autotune.device import Device, same_model
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.families.config import Config, Value
from autotune.families.family import Family, ParameterFunction, Rule
from autotune.families.summation import SummationOrder
from autotune.problem import Problem

T = TypeVar("T")

ORDER = "order of summation"
"""The reason to reject a configuration of another order than the prescribed one."""

Values = Mapping[str, Value]
"""Values of parameters by name, in the order of the family's parameters."""


class KeptResults(dict[tuple[Value, ...], T]):
    """The results of a function of a family's parameters, by the values of those that it reads.

    Attributes:
        needs: the parameters that it reads.
        pick: returns the values of these parameters from all values of a configuration.
    """

    def __init__(
        self,
        family: Family[Any],
        function: Callable[..., T],
        needs: tuple[str, ...],
        context: tuple[object, ...],
    ) -> None:
        super().__init__()
        self.needs = needs
        self.pick = picker(needs)
        self._chosen, self._function, self._context = family.chosen, function, context

    def __missing__(self, read: tuple[Value, ...]) -> T:
        chosen = self._chosen(dict(zip(self.needs, read, strict=True)))
        result = self[read] = self._function(chosen, *self._context)
        return result

    def of(self, values: Values) -> T:
        """The result for a configuration's values."""
        return self[self.pick(values)]


def picker(names: Sequence[str]) -> Callable[[Values], tuple[Value, ...]]:
    """A function that picks the values of these parameters as a tuple, as fast as Python allows."""
    if len(names) > 1:
        return itemgetter(*names)
    return lambda values: tuple(values[name] for name in names)


@lru_cache(maxsize=64)
def kept(family: Family[Any], function: ParameterFunction[T], problem: Problem) -> KeptResults[T]:
    """The kept results of a function of a family's parameters and a problem."""
    return KeptResults(family, function.function, function.needs, (problem,))


def order_of(config: Config, problem: Problem) -> SummationOrder | None:
    """The order in which a configuration adds up the products of an element of C; None if it
    depends on M or on the place in C.

    Raises:
        ConfigError: if there is no such family.
    """
    family = registry.find(config.family)
    orders: KeptResults[SummationOrder | None] = kept(family, family.summation_order, problem)
    return orders.of(config.values)


@dataclass(frozen=True)
class Rejection:
    """Why a configuration is illegal: the rule's short name, and what is wrong with its numbers."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


class FamilyRules:
    """The rules of a kernel family for a problem on a device.

    Args:
        family: the family's name.
        problem: the problem.
        device: the device.
        order: the prescribed order of summation; None allows any. An order has to serve every M,
            so that rules `for_shape` do not hold.

    Attributes:
        family: the family's name.
        domain: the values of each parameter, in the order of the parameters.
        enumerated: the domain, without values that no legal configuration has.
        rules: the rules in their order.
        results: for each rule, what is wrong with the values it reads; None where it holds.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """

    def __init__(
        self, family: str, problem: Problem, device: Device, order: str | None = None
    ) -> None:
        kind = registry.serving(family, problem)
        self.family = kind.name
        self.domain = self.enumerated = kind.domain(problem, device)
        self.rules = kind.rules if order is None else _ordered(kind, order)
        self.results = [
            KeptResults(kind, rule.check, rule.needs, (problem, device)) for rule in self.rules
        ]
        self._free = kind.chosen_for_speed
        self._lasting = [place for place, rule in enumerate(self.rules) if not rule.for_speed]
        self._affected: dict[tuple[str, int], list[int]] = {}
        if order is not None:
            self.enumerated = self._with_first_rule()

    def _with_first_rule(self) -> dict[str, tuple[Value, ...]]:
        """The domain without values that no configuration has which keeps the first rule."""
        results = self.results[0]
        combinations = product(*(self.domain[name] for name in results.needs))
        fitting = [values for values in combinations if results[values] is None]
        used = {name: {row[place] for row in fitting} for place, name in enumerate(results.needs)}
        return {
            name: tuple(value for value in values if name not in used or value in used[name])
            for name, values in self.domain.items()
        }

    def __len__(self) -> int:
        return len(self.rules)

    def rejection(self, config: Config, *, recorded: bool = False) -> Rejection | None:
        """The first rule that a configuration breaks, or None if it is legal.

        Args:
            config: a configuration of the family.
            recorded: whether it has been measured, which overrules what is only about speed.
        """
        fault = self.domain_fault(config, recorded=recorded)
        if fault is not None:
            return fault
        values = config.values
        place = self.broken(values, self._lasting if recorded else None)
        if place == len(self):
            return None
        return Rejection(self.rules[place].reason, self.results[place].of(values) or "")

    def domain_fault(self, config: Config, *, recorded: bool = False) -> Rejection | None:
        """The first parameter, by name or value, outside its domain; None without one."""
        domain, values = self.domain, config.values
        if values.keys() != domain.keys():
            wrong = ", ".join(sorted(values.keys() ^ domain.keys()))
            return Rejection("parameters", f"missing or unknown: {wrong}")
        for name, value in values.items():
            if value not in domain[name] and not (
                recorded and name in self._free and isinstance(value, int)
            ):
                allowed = ", ".join(map(str, domain[name]))
                return Rejection("value", f"{name}={value} is none of {allowed}")
        return None

    def broken(self, values: Values, places: Iterable[int] | None = None) -> int:
        """The place of the first rule, of all or of those at `places`, that values of the domain
        break; the number of rules if they break none."""
        for place in range(len(self)) if places is None else places:
            results = self.results[place]
            if results[results.pick(values)] is not None:
                return place
        return len(self)

    def broken_after_change(self, values: Values, changed: str, passed: int) -> int:
        """The place of the first broken rule after one parameter changed: `broken`, faster. The
        rules before `passed` held before the change, so only those that read the parameter are
        asked again."""
        places = self._affected.get((changed, passed))
        if places is None:
            places = [
                place
                for place, rule in enumerate(self.rules)
                if place >= passed or changed in rule.needs
            ]
            self._affected[changed, passed] = places
        return self.broken(values, places)


@lru_cache(maxsize=64)
def rules_of(
    family: str, problem: Problem, device: Device, order: str | None = None
) -> FamilyRules:
    """The rules of a family, bound once and kept."""
    return FamilyRules(family, problem, device, order)


def _ordered(family: Family[Any], order: str) -> tuple[Rule, ...]:
    """The rules of a family behind one that refuses other orders of summation."""
    summation_order = family.summation_order

    def check(p: object, problem: Problem, _device: Device) -> str | None:
        own = summation_order.function(p, problem)
        if own is not None and str(own) == order:
            return None
        return f"{own or 'an order that depends on M'}, not {order}"

    every_m = (rule for rule in family.rules if not rule.for_shape)
    return Rule(ORDER, check, summation_order.needs), *every_m


class Legality:
    """Decides whether configurations can run a problem on a device; slow ones are legal too.

    Args:
        problem: the problem.
        device: the device.
        order: the prescribed order of summation; None allows any.
    """

    def __init__(self, problem: Problem, device: Device, order: str | None = None) -> None:
        self._problem, self._device, self._order = problem, device, order
        self._families: dict[str, FamilyRules | None] = {}

    def __call__(self, config: Config) -> bool:
        """True for a legal configuration."""
        rules = self.rules(config.family)
        return rules is not None and rules.rejection(config, recorded=True) is None

    def rules(self, family: str) -> FamilyRules | None:
        """The rules of a family; None if there is none or it does not serve the compute."""
        if family not in self._families:
            try:
                self._families[family] = rules_of(family, self._problem, self._device, self._order)
            except ConfigError:
                self._families[family] = None
        return self._families[family]


def is_legal(config: Config, problem: Problem, device: Device) -> bool:
    """Whether one configuration can run a problem on a device; see `Legality`."""
    return Legality(problem, device)(config)


def as_tuned(device: Device, tuned_on: Device) -> Device:
    """The device with the resident clusters of the card of its model that a record was tuned on.

    Rules read the clusters to choose what is worth trying. What is worth it on one card still runs
    on the others, so the rules read the clusters of the record's card.
    """
    if device.clusters == tuned_on.clusters or not same_model(device, tuned_on):
        return device
    return replace(device, clusters=tuned_on.clusters)


def for_compute(config: Config, problem: Problem) -> Config:
    """The configuration with the problem's compute, which is a parameter of some families."""
    for place, (name, value) in enumerate(config.params):
        if name == "compute" and value != problem.compute:
            own = (name, problem.compute)
            return Config(config.family, (*config.params[:place], own, *config.params[place + 1 :]))
    return config


def current(
    family: str, recorded: Iterable[Config], problem: Problem, device: Device
) -> tuple[Config, ...]:
    """The recorded configurations of a family that have its present parameters and their values.

    Those of an earlier version may lack a parameter, and no kernel can be made of them; nor of a
    value that the family does not have.
    """
    domain = registry.find(family).domain(problem, device)
    return tuple(
        config
        for config in recorded
        if config.family == family
        and config.values.keys() == domain.keys()
        and all(value in domain[name] for name, value in config.params)
    )
