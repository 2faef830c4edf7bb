"""Estimates from samples, ties between times, and the winner among tied candidates."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Protocol, TypeVar

from autotune.families.config import Config
from autotune.families.plan import Resources


@dataclass(frozen=True)
class Estimate:
    """Summary of samples, in their unit.

    Attributes:
        median: the median.
        spread: half the distance between the quartiles; 0 for a single sample.
        samples: the number of samples.
    """

    median: float
    spread: float
    samples: int

    @classmethod
    def of(cls, samples: Sequence[float]) -> Estimate:
        """The estimate from `samples`; quartiles interpolate linearly between samples.

        Raises:
            ValueError: if there are no samples or one of them is not finite.
        """
        if not samples or not all(map(math.isfinite, samples)):
            raise ValueError(f"{len(samples)} samples; give at least one, all of them finite")
        if len(samples) == 1:
            return cls(samples[0], 0.0, 1)
        low, median, high = statistics.quantiles(samples, n=4, method="inclusive")
        # Between neighbouring floats, interpolation rounds either way.
        return cls(median, max(0.0, (high - low) / 2), len(samples))


class Timed(Protocol):
    """Anything with a time and its spread in microseconds, such as a `Measurement`."""

    @property
    def time_us(self) -> float: ...

    @property
    def spread_us(self) -> float: ...


class Contender(Protocol):
    """A measured configuration, such as a record's `Entry`."""

    @property
    def config(self) -> Config: ...

    @property
    def measurement(self) -> Timed: ...

    @property
    def resources(self) -> Resources: ...


C = TypeVar("C", bound=Contender)


@dataclass(frozen=True)
class TimeEstimate:
    """A time and its spread in microseconds."""

    time_us: float
    spread_us: float


def tied(a: Timed, b: Timed) -> bool:
    """Whether two times differ by no more than the smaller of their spreads.

    So one noisy measurement does not tie with everything, and choosing either of two tied
    candidates costs at most the spread of the faster one.
    """
    return abs(a.time_us - b.time_us) <= min(a.spread_us, b.spread_us)


def winner(contenders: Iterable[C], timed: Callable[[C], Timed] = attrgetter("measurement")) -> C:
    """The fastest contender, or the one tied with it that needs the fewest resources of an SM.

    Fewer registers a block come first, then less shared memory, then the configuration's text, so
    neither noise nor the order of the contenders decides.

    Args:
        contenders: at least one.
        timed: the time of a contender to compare by.

    Raises:
        ValueError: if there are no contenders.
    """
    pool = list(contenders)
    fastest = min(pool, key=lambda contender: (timed(contender).time_us, *_demand(contender)))
    rivals = [contender for contender in pool if tied(timed(contender), timed(fastest))]
    return min(rivals, key=_demand)


def _demand(contender: Contender) -> tuple[int, int, str]:
    resources = contender.resources
    return resources.registers * resources.threads, resources.shared, str(contender.config)
