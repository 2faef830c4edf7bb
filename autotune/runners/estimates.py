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


TIE = 0.005
"""Two times that differ by at most this share of the shorter one are tied."""


def tied(a: Timed, b: Timed) -> bool:
    """Whether two times differ by at most 0.5 %.

    Noise does not widen a tie, or the slower of two candidates could win by being noisy. Choosing
    either of two tied candidates costs at most 0.5 %.
    """
    return abs(a.time_us - b.time_us) <= TIE * min(a.time_us, b.time_us)


def without_drift(rounds: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    """Samples of candidates that took turns, freed of what slowed or sped up a whole round.

    A clock that drifts moves all candidates of a round together. Each sample is divided by how
    much longer than usual the other candidates took in its round, at the median, so the medians
    of the results differ by the median of the paired differences.

    Args:
        rounds: for each candidate its sample of each round.
    """
    usual = [statistics.median(samples) for samples in rounds]
    if len(rounds) < 2 or not all(usual):
        return [tuple(samples) for samples in rounds]
    slower = [
        [time / median for time, median in zip(times, usual, strict=True)]
        for times in zip(*rounds, strict=True)
    ]
    return [
        tuple(
            sample / statistics.median(ratios[:place] + ratios[place + 1 :])
            for sample, ratios in zip(samples, slower, strict=True)
        )
        for place, samples in enumerate(rounds)
    ]


def winner(contenders: Iterable[C], timed: Callable[[C], Timed] = attrgetter("measurement")) -> C:
    """The fastest contender, or the one tied with it that needs the fewest resources of an SM.

    The fastest has the least sum of time and spread. Fewer registers a block come first among the
    tied, then less shared memory, then the configuration's text, so neither noise nor the order of
    the contenders decides.

    Args:
        contenders: at least one.
        timed: the time of a contender to compare by.

    Raises:
        ValueError: if there are no contenders.
    """
    pool = list(contenders)
    # With the spread added, a few widely scattered samples do not win by luck.
    fastest = min(
        pool,
        key=lambda contender: (
            timed(contender).time_us + timed(contender).spread_us,
            *_demand(contender),
        ),
    )
    rivals = [contender for contender in pool if tied(timed(contender), timed(fastest))]
    return min(rivals, key=_demand)


def _demand(contender: Contender) -> tuple[int, int, str]:
    resources = contender.resources
    return resources.registers * resources.threads, resources.shared, str(contender.config)
