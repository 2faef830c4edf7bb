"""The best of several entries by something else than their hot times."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from autotune.runners.estimates import tied, winner

if TYPE_CHECKING:
    from autotune.records.record import Entry


def fastest_cold(entries: Sequence[Entry]) -> Entry | None:
    """The fastest entry with a flushed L2: of those tied, the hot winner, else the leanest.

    None if no entry has a cold time.
    """
    cold = {
        entry.config: estimate
        for entry in entries
        if (estimate := entry.measurement.estimate("cold")) is not None
    }
    if not cold:
        return None
    hot = winner(entries)
    fastest = min(cold.values(), key=lambda estimate: estimate.time_us)
    if hot.config in cold and tied(cold[hot.config], fastest):
        return hot
    timed = [entry for entry in entries if entry.config in cold]
    return winner(timed, lambda entry: cold[entry.config])


def least_energy(entries: Sequence[Entry]) -> Entry | None:
    """The entry with the least energy, spread included: the hot winner where it is tied.

    None if no entry has an energy.
    """
    metered = [
        (energy.joules + energy.spread_j, place, energy)
        for place, entry in enumerate(entries)
        if (energy := entry.measurement.energy) is not None
    ]
    if not metered:
        return None
    _, place, least = min(metered, key=lambda each: each[:2])
    hot = winner(entries)
    own = hot.measurement.energy
    return hot if own is not None and own.tied(least) else entries[place]
