"""Measurements and failures, estimates from samples, and ties between times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal

from msgspec import Meta

from autotune.files.decoding import Count, Error, Microseconds, Spread, Text, visible

Evidence = Literal["measured", "replayed", "predicted"]
Stage = Literal[
    "compile", "resources", "launch", "verify", "accuracy", "timeout", "crash", "quarantined"
]
"""The stage at which a candidate failed; `accuracy`: a correct result, but less accurate than
allowed."""

RARE_FIELDS = ("energy", "library")
"""Fields of a measurement that files leave out where nothing was measured."""


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


@dataclass(frozen=True)
class TimeEstimate:
    """A time and its spread in microseconds."""

    time_us: float
    spread_us: float


TIE = 0.005
"""Two times that differ by at most this share of the shorter one are tied."""


def without_drift(rounds: Sequence[Sequence[float]]) -> list[tuple[float, ...]]:
    """Samples of candidates that took turns, freed of what slowed or sped up a whole round.

    A clock that drifts moves all candidates of a round together. Each sample is divided by how
    much longer than usual the other candidates took in its round, at the median, so the medians
    of the results differ by the median of the paired differences.

    Args:
        rounds: sample of each candidate in each round.
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


Joules = Annotated[float, Meta(gt=0, lt=1e9)]
Watts = Annotated[float, Meta(gt=0, lt=1e6)]
Megahertz = Annotated[float, Meta(ge=0, lt=1e6)]


@dataclass(frozen=True)
class Energy:
    """The energy that the whole board takes for one run, of runs back to back.

    Attributes:
        joules: joules a run, the mean of two windows.
        spread_j: half the difference of the two.
        power_w: mean power in watts.
        clock_mhz: mean clock of the SMs in MHz.
    """

    joules: Joules
    spread_j: Annotated[float, Meta(ge=0, lt=1e9)]
    power_w: Watts
    clock_mhz: Megahertz

    def tied(self, rival: Energy) -> bool:
        """Whether two energies differ by at most 0.5 %."""
        return abs(self.joules - rival.joules) <= TIE * min(self.joules, rival.joules)


@dataclass(frozen=True)
class Measurement:
    """The time of one run of a candidate, in microseconds.

    Attributes:
        time_us: median, hot (inputs may sit in L2).
        spread_us: half the interquartile range of the hot samples.
        samples: number of hot samples.
        cold_us: median, cold (L2 flushed before each run); None if not measured.
        cold_spread_us: `spread_us` of the cold samples; None if not measured, and in records that
            predate it.
        error: largest absolute error against the float64 reference; None if nothing ran.
        tolerance: the largest error allowed.
        relative_error: Frobenius norm of the error over that of the float64 reference, at alpha = 1
            and beta = 0; None if nothing ran, and in records that predate it.
        energy: energy of one run; None if not measured.
        library: of the vendor baseline, the version of cuBLAS whose result was verified, such as
            `13.1.0`; None of kernels, and in records that predate it.
    """

    time_us: Microseconds
    spread_us: Spread = 0.0
    samples: Count = 1
    cold_us: Microseconds | None = None
    error: Error | None = None
    tolerance: Error | None = None
    relative_error: Error | None = None
    cold_spread_us: Spread | None = None
    energy: Energy | None = None
    library: Text | None = None

    def fields(self) -> dict[str, Any]:
        """The measurement as JSON data, without rare fields that were not measured."""
        return {
            name: value
            for name, value in asdict(self).items()
            if value is not None or name not in RARE_FIELDS
        }


Timed = Measurement | TimeEstimate
"""Anything with a time and its spread in microseconds."""


def tied(a: Timed, b: Timed) -> bool:
    """True for two times within 0.5 % of each other.

    Noise does not widen a tie, or the slower of two candidates could win by being noisy. Choosing
    either of two tied candidates costs at most 0.5 %.
    """
    return abs(a.time_us - b.time_us) <= TIE * min(a.time_us, b.time_us)


@dataclass(frozen=True)
class Failure:
    """Why a candidate has no measurement: the stage it failed at, and one line with numbers.

    The reason quotes compilers and drivers; it is kept without control characters.
    """

    stage: Stage
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", visible(self.reason))


def completed(outcome: Measurement | Failure, final: Measurement | None) -> Measurement | Failure:
    """The outcome of a trial with the rare fields, which are measured of the leaders alone."""
    if isinstance(outcome, Failure) or final is None:
        return outcome
    later = {name: getattr(final, name) for name in RARE_FIELDS}
    return replace(outcome, **{name: value for name, value in later.items() if value is not None})
