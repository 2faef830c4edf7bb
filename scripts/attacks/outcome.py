"""The outcome of a part of the campaign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Outcome:
    """The counts of a part and the promises it saw broken.

    Attributes:
        counts: how often something was tried or seen.
        peaks: the largest value of a figure, such as seconds or MB.
        broken: a line for each broken promise; it says how to repeat the case.
        skipped: why a part of the work could not be done here.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    peaks: Mapping[str, float] = field(default_factory=dict)
    broken: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()


def merged(outcomes: Iterable[Outcome]) -> Outcome:
    """The outcome of all shares of a part: counts added, peaks kept."""
    outcomes = tuple(outcomes)
    counts: Counter[str] = Counter()
    peaks: dict[str, float] = {}
    for outcome in outcomes:
        counts.update(outcome.counts)
        for name, value in outcome.peaks.items():
            peaks[name] = max(value, peaks.get(name, value))
    return Outcome(
        counts=dict(counts),
        peaks=peaks,
        broken=tuple(line for outcome in outcomes for line in outcome.broken),
        skipped=tuple(dict.fromkeys(line for outcome in outcomes for line in outcome.skipped)),
    )
