"""Configurations that differ from a legal one in one parameter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autotune.candidates.verdicts import Values, Verdicts
from autotune.device import Device
from autotune.families.config import Config, Value
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
    for place, (name, allowed) in enumerate(verdicts.domain.items()):
        for value in allowed:
            if value == values[place]:
                continue
            changed = _with(values, place, value)
            if name == STAGES and verdicts.broken(changed) is not None:
                continue
            for permitted in with_legal_stages(changed, verdicts):
                yield Config(config.family, tuple(zip(names, permitted, strict=True)))


def with_legal_stages(values: Values, verdicts: Verdicts) -> Iterator[Values]:
    """The values, if they are legal; where only a rule on the stages forbids them, those with other
    stages that are."""
    rule = verdicts.broken(values)
    if rule is None:
        yield values
    elif STAGES in rule.needs:
        place = [*verdicts.domain].index(STAGES)
        staged = (_with(values, place, stages) for stages in verdicts.domain[STAGES])
        yield from (each for each in staged if verdicts.broken(each) is None)


def _with(values: Values, place: int, value: Value) -> Values:
    return (*values[:place], value, *values[place + 1 :])
