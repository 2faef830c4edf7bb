"""A configuration made to fit another problem: the nearest that is worth a try there."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.candidates.variants import STAGES
from autotune.candidates.verdicts import Values, Verdicts, VerdictsByFamily
from autotune.device import Device
from autotune.families.config import Config, Value
from autotune.problem import Problem


class Adaptation:
    """Adapts configurations to a problem on a device.

    Numbers that the problem has no use for, such as columns of a tile or persistent blocks, become
    the nearest that it has. Where the buffers then take too much shared memory, or leave room for
    more, the stages follow.
    """

    def __init__(self, problem: Problem, device: Device) -> None:
        self._families = VerdictsByFamily(problem, device)

    def __call__(self, config: Config) -> Config | None:
        """The adapted configuration; None if none is legal."""
        verdicts = self._families[config.family]
        if verdicts is None or config.values.keys() != verdicts.domain.keys():
            return None
        stated = config.values
        values = [_nearest(stated[name], domain) for name, domain in verdicts.domain.items()]
        whole = tuple(value for value in values if value is not None)
        legal = _with_stages(whole, verdicts) if len(whole) == len(values) else None
        if legal is None:
            return None
        return Config(config.family, tuple(zip(verdicts.domain, legal, strict=True)))


def _nearest(value: Value, domain: Sequence[Value]) -> Value | None:
    """The value, else the number of the domain whose ratio to it is nearest to 1; None if there is
    none. 0 turns a parameter off and is near no number."""
    if value in domain:
        return value
    if not isinstance(value, int) or value <= 0:
        return None
    numbers = [number for number in domain if isinstance(number, int) and number > 0]
    return min(numbers, key=lambda number: abs(math.log(number / value)), default=None)


def _with_stages(values: Values, verdicts: Verdicts) -> Values | None:
    """The values, with other stages where a rule forbids these; None if they are illegal."""
    rule = verdicts.broken(values)
    if rule is None:
        return values
    if STAGES not in rule.needs:
        return None
    place = [*verdicts.domain].index(STAGES)
    staged = ((*values[:place], stages, *values[place + 1 :]) for stages in verdicts.domain[STAGES])
    return next((each for each in staged if verdicts.broken(each) is None), None)
