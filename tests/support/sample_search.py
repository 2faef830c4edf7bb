"""A search over all combinations of four whole numbers, with a known optimum."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from autotune.families.config import Config
from autotune.families.plan import Resources
from autotune.measure.measurement import Measurement
from autotune.model.features import Description
from autotune.tuning.search.proposer import Proposer
from autotune.tuning.trials import Trial

NAMES = ("a", "b", "c", "d")


BEST = (6, 2, 5, 1)


RESOURCES = Resources(threads=128, registers=32, shared=0)


def space(family: str = "one", sizes: Sequence[int] = (8, 8, 8, 8)) -> list[Config]:
    """All combinations of four whole numbers."""
    choices = itertools.product(*map(range, sizes))
    return [Config(family, tuple(zip(NAMES, choice, strict=True))) for choice in choices]


def time_us(config: Config) -> float:
    """Microseconds, at least 100; two of the parameters depend on each other."""
    off = [config.integer(name) - best for name, best in zip(NAMES, BEST, strict=True)]
    slow = 3.0 if config.family == "two" else 1.0
    smooth = 0.03 * abs(off[0]) + 0.08 * abs(off[1]) + 0.05 * off[2] ** 2
    return 100 * slow * (1 + smooth + 0.1 * abs(off[0] + off[3]))


def result(config: Config) -> Trial:
    return Trial(config, Measurement(time_us(config)), RESOURCES)


def proposed(search: Proposer, count: int) -> Iterator[Config]:
    """The proposals of a search, each told before the next is asked."""
    for _ in range(count):
        config = search.ask()
        if config is None:
            return
        yield config
        search.tell(result(config))


def searched(configs: Sequence[Config], count: int) -> Proposer:
    """A search that was told the times of the first `count` configurations."""
    return Proposer(configs, told=map(result, configs[:count]))


def hint(configs: Sequence[Config], resources: Sequence[Resources | None]) -> Description:
    """A time model with errors of up to 5 %."""
    del resources
    wrong = np.array(
        [0.05 * math.sin(50 * config.integer("a") + 9 * config.integer("d")) for config in configs]
    )
    columns = np.array([[config.integer(name) for name in NAMES[:2]] for config in configs], float)
    times = np.array([time_us(config) for config in configs])
    return Description(columns, times * np.exp(wrong))
