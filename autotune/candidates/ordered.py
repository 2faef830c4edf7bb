"""The order of summation of configurations, and the values that a prescribed order leaves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product

from autotune.families import registry
from autotune.families.base import Family
from autotune.families.config import Config, Value
from autotune.families.rules import BoundRule, bind, needs_of
from autotune.families.summation import SummationOrder
from autotune.problem import Problem

ORDER = "order of summation"
"""The reason to reject a configuration of another order than the prescribed one."""


def order_of(config: Config, problem: Problem) -> SummationOrder | None:
    """The order in which a configuration adds up the products of an element of C; None if it
    depends on M or on the place in C.

    Raises:
        ConfigError: if there is no such family.
    """
    needs, order = _reader(registry.find(config.family), problem)
    values = config.values
    return order([values[name] for name in needs])


def orders_of(configs: Sequence[Config], problem: Problem) -> list[SummationOrder | None]:
    """`order_of` for many configurations: each combination of values that decide is looked at
    once."""
    readers: dict[str, _Reader] = {}
    kept: dict[tuple[str, tuple[Value, ...]], SummationOrder | None] = {}
    orders: list[SummationOrder | None] = []
    for config in configs:
        if config.family not in readers:
            readers[config.family] = _reader(registry.find(config.family), problem)
        needs, order = readers[config.family]
        values = config.values
        key = config.family, tuple(values[name] for name in needs)
        if key not in kept:
            kept[key] = order(key[1])
        orders.append(kept[key])
    return orders


def prescribed(
    family: Family[object],
    problem: Problem,
    domain: Mapping[str, tuple[Value, ...]],
    rules: Sequence[BoundRule],
    order: str,
) -> tuple[dict[str, tuple[Value, ...]], tuple[BoundRule, ...]]:
    """The values of a domain that may give an order, and the rules that say which do."""
    needs, read = _reader(family, problem)
    orders: dict[tuple[Value, ...], str | None] = {
        values: None if (own := read(values)) is None else str(own)
        for values in product(*(domain[name] for name in needs))
    }
    fitting = [values for values, own in orders.items() if own == order]
    used = {name: {values[place] for values in fitting} for place, name in enumerate(needs)}
    left = {
        name: tuple(value for value in values if name not in used or value in used[name])
        for name, values in domain.items()
    }

    def check(values: Sequence[Value]) -> str | None:
        own = orders[tuple(values)]
        return None if own == order else f"{own or 'an order that depends on M'}, not {order}"

    kept = (rule for rule in rules if not rule.for_shape)
    return left, (BoundRule(ORDER, needs, check), *kept)


_Reader = tuple[tuple[str, ...], Callable[[Sequence[Value]], SummationOrder | None]]


def _reader(family: Family[object], problem: Problem) -> _Reader:
    """The parameters that decide the order of a family, and the function that reads it."""
    read = family.summation_order
    return needs_of(read), bind(read, {"problem": problem}, {})
