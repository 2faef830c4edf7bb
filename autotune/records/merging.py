"""How two records of the same thing, on the same device and of the same evidence, become one.

Times can be compared if driver, compiler and kernel sources were the same. So

- a record takes entries of another one only if all three agree;
- where they do not, one of the two stands and the other is kept beside it (`Store` does that):
  after a tuning run the new one; of two stores the one that was made with what this machine has
  today, first of all its kernel sources, else the later one;
- where two have measured one configuration, after a tuning run the new measurement stands; of two
  stores the better one, which has more samples, or as many and the smaller spread for its time.
  The final round of a tuning run takes, as a rule, more samples than a trial: it comes first.

Measured, replayed and predicted records have files of their own and never meet here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, replace
from typing import Protocol, TypeVar

from autotune.records.record import Entry, TuningRecord, coldest
from autotune.runners.base import Measurement

KEPT = 10
# As much of a date as all forms of ISO 8601 in UTC have alike.
SECONDS = len("2026-11-21T12:00:00")

R = TypeVar("R", bound=TuningRecord)


class HasOrigin(Protocol):
    """What something was made with: a `Provenance`, or the origin of what is measured now."""

    @property
    def driver(self) -> str: ...

    @property
    def compiler(self) -> str: ...

    @property
    def source(self) -> str: ...


def comparable(one: HasOrigin, other: HasOrigin) -> bool:
    """Whether times of the one say what the other would have measured."""
    return (one.driver, one.compiler, one.source) == (other.driver, other.compiler, other.source)


def stale(record: TuningRecord, today: HasOrigin) -> str | None:
    """What has changed since the record was measured, such as `driver 12.8, now 13.0`.

    None for what is up to date, and for what was not measured here: a recording does not age, and
    predictions cost nothing. What `today` or the record leaves empty is not known and not compared.
    """
    if record.evidence != "measured":
        return None
    made = record.provenance
    pairs = (
        ("driver", made.driver, today.driver),
        ("compiler", made.compiler, today.compiler),
        ("kernel sources", made.source[:12], today.source[:12]),
    )
    changed = [f"{what} {old}, now {new}" for what, old, new in pairs if old and new and old != new]
    return "; ".join(changed) or None


def merge(old: R | None, new: R) -> R:
    """The record after a tuning run.

    The entries are the ten fastest of both, the fastest with a flushed L2 among them; where both
    have a configuration, the new measurement stands, also if it is the slower one. `old` gives no
    entries if its driver, compiler or sources were others. The baseline does not depend on our
    sources: the new one stands, else the old one of the same driver. The provenance is the new
    one's as it is: a sum of trials would count twice what a run resumes or saves twice.
    """
    if old is None:
        return replace(new, entries=_kept(new.entries))
    earlier = old.entries if comparable(old.provenance, new.provenance) else ()
    entries = {entry.config: entry for entry in (*earlier, *new.entries)}.values()
    same_driver = old.provenance.driver == new.provenance.driver
    baseline = new.baseline or (old.baseline if same_driver else None)
    return replace(new, entries=_kept(entries), baseline=baseline)


def reconcile(one: R, other: R, today: HasOrigin | None) -> R:
    """The record of two stores, neither of which is newer by itself; the order does not matter.

    Args:
        one: a record.
        other: of the same thing, device and evidence.
        today: what this machine would measure with; None if that is not known.
    """
    first, second = sorted((one, other), key=lambda record: _standing(record, today), reverse=True)
    if not comparable(first.provenance, second.provenance):
        return replace(first, entries=_kept(first.entries))
    entries: dict[object, Entry] = {}
    for entry in (*first.entries, *second.entries):
        known = entries.get(entry.config)
        if known is None or _quality(entry.measurement) > _quality(known.measurement):
            entries[entry.config] = entry
    baselines = [record.baseline for record in (first, second) if record.baseline]
    baseline = max(baselines, key=_quality, default=None)
    return replace(first, entries=_kept(entries.values()), baseline=baseline)


def _standing(record: TuningRecord, today: HasOrigin | None) -> tuple[object, ...]:
    """What a record is ranked by beside another one; the greater stands."""
    made = record.provenance
    source, tools = False, 0
    if today is not None:
        source = made.source == today.source
        tools = (made.compiler == today.compiler) + (today.driver in ("", made.driver))
    return source, tools, made.date[:SECONDS], str(astuple(made)), str(record.entries)


def _quality(measured: Measurement) -> tuple[object, ...]:
    """What a measurement is ranked by; the rest only keeps the order from mattering."""
    return measured.samples, -measured.spread_us / measured.time_us, str(astuple(measured))


def _kept(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The ten fastest, the fastest with a flushed L2 among them."""
    ranked = sorted(entries, key=lambda entry: (entry.measurement.time_us, str(entry.config)))
    kept, cold = ranked[:KEPT], coldest(ranked)
    if cold is not None and cold not in kept:
        kept[-1] = cold
    return tuple(kept)
