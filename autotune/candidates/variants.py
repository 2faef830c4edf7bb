"""Configurations that differ from a legal one in one parameter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from autotune.candidates.verdicts import Verdicts
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
            for permitted in _legal(changed, name, verdicts):
                yield Config(config.family, tuple(zip(names, permitted, strict=True)))


def _legal(changed: tuple[Value, ...], name: str, verdicts: Verdicts) -> list[tuple[Value, ...]]:
    """The values, if they are legal; else those with other stages that are."""
    rule = verdicts.broken(changed)
    if rule is None:
        return [changed]
    if name == STAGES or STAGES not in rule.needs:
        return []
    place = [*verdicts.domain].index(STAGES)
    staged = (_with(changed, place, stages) for stages in verdicts.domain[STAGES])
    return [values for values in staged if verdicts.broken(values) is None]


def _with(values: tuple[Value, ...], place: int, value: Value) -> tuple[Value, ...]:
    return (*values[:place], value, *values[place + 1 :])
