"""A configuration made to fit another problem: the nearest that is worth a try there."""

from __future__ import annotations

import math
from collections.abc import Sequence

from autotune.candidates.variants import with_legal_stages
from autotune.candidates.verdicts import VerdictsByFamily
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
        if len(whole) < len(values):
            return None
        legal = next(with_legal_stages(whole, verdicts), None)
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
