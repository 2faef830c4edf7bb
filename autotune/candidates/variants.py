"""Configurations that differ from a legal one in one parameter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autotune.candidates.verdicts import Values, Verdicts
from autotune.device import Device
from autotune.families.config import Config, Value
from autotune.families.rules import Rule
from autotune.problem import Problem

STAGES = "stages"
"""The parameter that follows others: as many buffers as the tile leaves room for."""


def variants(configs: Iterable[Config], problem: Problem, device: Device) -> list[Config]:
    """The legal configurations that differ from one of these in one parameter, and where only a
    rule on the stages forbids that, in the stages too."""
    legal: dict[Config, None] = {}
    for config in configs:
        verdicts = Verdicts.of(config.family, problem, device)
        legal |= dict.fromkeys(_of(config, verdicts))
    return [*legal]


def _of(config: Config, verdicts: Verdicts) -> Iterator[Config]:
    values, names = tuple(value for _, value in config.params), (*verdicts.domain,)
    passed = verdicts.place(verdicts.broken(values))
    for place, (name, allowed) in enumerate(verdicts.domain.items()):
        for value in allowed:
            if value == values[place]:
                continue
            changed = with_value(values, place, value)
            rule = verdicts.broken_after_change(changed, place, passed)
            if name == STAGES and rule is not None:
                continue
            for permitted in with_legal_stages(changed, rule, verdicts):
                yield Config(config.family, tuple(zip(names, permitted, strict=True)))


def with_legal_stages(values: Values, rule: Rule | None, verdicts: Verdicts) -> Iterator[Values]:
    """The values, if they are legal; where only a rule on the stages forbids them, those with other
    stages that are. `rule` is the first that the values break."""
    if rule is None:
        yield values
    elif STAGES in rule.needs:
        place, passed = [*verdicts.domain].index(STAGES), verdicts.place(rule)
        for stages in verdicts.domain[STAGES]:
            staged = with_value(values, place, stages)
            if verdicts.broken_after_change(staged, place, passed) is None:
                yield staged


def with_value(values: Values, place: int, value: Value) -> Values:
    """The values with another one at a place."""
    return (*values[:place], value, *values[place + 1 :])
