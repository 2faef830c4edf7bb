"""The seam of batch invariance: configurations of one prescribed order of summation.

Kernels that add the products of an element of C in one order give a row the same bits in every
batch. `families.summation` names orders; here they restrict the rules, the space and legality.
Records (`FamilyRecord`), look-ups (`lookup.batch_invariant`) and tuning (`api.invariant`) build on
it; nothing else of the model knows orders.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product

from autotune.device import Device
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.family import ParameterFunction, Rule
from autotune.families.registry import AUTO, families_of
from autotune.families.summation import SummationOrder
from autotune.model import space
from autotune.model.legality import FamilyRules, KeptResults, Legality, kept
from autotune.problem import Problem

ORDER = "order of summation"
"""The reason to reject a configuration of another order than the prescribed one."""


def order_of(config: Config, problem: Problem) -> SummationOrder | None:
    """The order in which a configuration adds up the products of an element of C; None if it
    depends on M or on the place in C.

    Raises:
        ConfigError: if there is no such family.
    """
    family = registry.find(config.family)
    orders: KeptResults[SummationOrder | None] = kept(family, family.summation_order, problem)
    return orders.of(config.values)


class OrderedRules(FamilyRules):
    """The rules of a family with one order of summation, which the first rule prescribes.

    An order has to serve every M, so that rules `for_shape` do not hold. The enumerated domain
    lacks values that no configuration of the order has.

    Raises:
        ConfigError: if there is no such family, or it does not serve the problem's compute.
    """

    def __init__(self, family: str, problem: Problem, device: Device, order: str) -> None:
        kind = registry.serving(family, problem)
        every_m = (rule for rule in kind.rules if not rule.for_shape)
        prescribed = _order_rule(kind.summation_order, order)
        super().__init__(family, problem, device, (prescribed, *every_m))
        results = self.results[0]
        needs = results.needs
        combinations = product(*(self.domain[name] for name in needs))
        fitting = [values for values in combinations if results[values] is None]
        used = {name: {values[place] for values in fitting} for place, name in enumerate(needs)}
        self.enumerated = {
            name: tuple(value for value in values if name not in used or value in used[name])
            for name, values in self.domain.items()
        }


rules_of = lru_cache(maxsize=32)(OrderedRules)
"""The rules of a family for a problem, a device and an order, bound once and kept."""


class OrderedLegality(Legality):
    """Decides whether configurations have an order of summation and can run a problem."""

    def __init__(self, problem: Problem, device: Device, order: str) -> None:
        super().__init__(problem, device)
        self._order = order

    def _of(self, family: str) -> FamilyRules:
        return rules_of(family, self._problem, self._device, self._order)


def legality(problem: Problem, device: Device, order: str | None) -> Legality:
    """The legality of configurations in an order of summation; None takes any order."""
    return Legality(problem, device) if order is None else OrderedLegality(problem, device, order)


def feasible(problem: Problem, device: Device, family: str, order: str) -> space.Space:
    """All legal configurations of a family in an order of summation; see `space.feasible`."""
    return space.enumerated(rules_of(family, problem, device, order))


def sample(problem: Problem, device: Device, order: str | None) -> list[Config]:
    """A sample of the legal configurations of an order of summation, or of any; see
    `space.sample`."""
    if order is None:
        return space.sample(problem, device)
    spaces = (feasible(problem, device, name, order) for name in families_of(AUTO, problem))
    return [config for legal in spaces for config in space.spread(legal.configs, space.SAMPLE)]


def _order_rule(summation_order: ParameterFunction[SummationOrder | None], order: str) -> Rule:
    """The rule that refuses other orders of summation than the prescribed one."""

    def check(p: object, problem: Problem, _device: Device) -> str | None:
        own = summation_order.function(p, problem)
        if own is not None and str(own) == order:
            return None
        return f"{own or 'an order that depends on M'}, not {order}"

    return Rule(ORDER, check, summation_order.needs)
