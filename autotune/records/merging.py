"""How two records of one problem, device and kind of evidence become one.

Times are comparable if driver, compiler and kernel sources are the same. Therefore:

- A record takes entries of another one only if all three agree.
- If they do not, one record stands and `Store` keeps the other beside it. After a tuning run the
  new record stands. Of two stores, the record made with what this machine has today stands, kernel
  sources first, else the later one.
- If both measured the same configuration, the new measurement stands after a tuning run. Of two
  stores, the better measurement stands: more samples, or as many and a smaller relative spread. The
  final round of a tuning run usually takes more samples than a trial, so it comes first. If only
  the other one has a cold time or an energy, that is kept with it.

Measured, replayed and predicted records have separate files and are never merged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import astuple, replace
from typing import Protocol, TypeVar

from autotune.families.config import Config
from autotune.records.record import Entry, Provenance, TuningRecord
from autotune.runners.base import Measurement
from autotune.runners.objective import OBJECTIVES

KEPT = 10
# The prefix that all ISO 8601 forms of a UTC date share.
SECONDS = len("2026-11-21T12:00:00")

R = TypeVar("R", bound=TuningRecord)


class HasOrigin(Protocol):
    """Driver, compiler and kernel sources: of a `Provenance`, or of what this machine has now."""

    @property
    def driver(self) -> str: ...

    @property
    def compiler(self) -> str: ...

    @property
    def source(self) -> str: ...


def comparable(a: HasOrigin, b: HasOrigin) -> bool:
    """Whether times made with `a` can be compared with times made with `b`."""
    return (a.driver, a.compiler, a.source) == (b.driver, b.compiler, b.source)


def stale(record: TuningRecord, today: HasOrigin) -> str | None:
    """The change since the record was measured, such as `driver 12.8, now 13.0`.

    None if nothing did, and for records that were not measured here: a recording does not age, and
    predictions cost nothing. A field that is empty in `today` or in the record is not compared.
    """
    if record.evidence != "measured":
        return None
    origin = record.provenance
    pairs = (
        ("driver", origin.driver, today.driver),
        ("compiler", origin.compiler, today.compiler),
        ("kernel sources", origin.source[:12], today.source[:12]),
    )
    changed = [f"{name} {old}, now {new}" for name, old, new in pairs if old and new and old != new]
    return "; ".join(changed) or None


def merge(old: R | None, new: R, failed: Collection[Config] = ()) -> R:
    """The record after a tuning run, in which the configurations `failed` did not work.

    The entries are the ten fastest of both, with the fastest cold one and that of the least energy
    among them. If both have a configuration, the new measurement stands, even if it is slower.
    `old` gives no entries if its driver, compiler or sources differ. The baseline does not depend
    on our sources: the new one stands, or that its result was refused, else the old one of the same
    driver. The provenance is the new record's: a sum of trials would count twice what a run
    resumes or saves twice. An interrupted run is marked, unless it adds to a search that had ended,
    and so is a quick one.
    """
    if old is None:
        return replace(new, entries=_kept(new.entries))
    comparables = old.entries if comparable(old.provenance, new.provenance) else ()
    earlier = (entry for entry in comparables if entry.config not in failed)
    entries = {entry.config: entry for entry in earlier}
    for entry in new.entries:
        entries[entry.config] = _completed(entry, entries.get(entry.config))
    same_driver = old.provenance.driver == new.provenance.driver
    baseline, fault = new.baseline, new.provenance.baseline_fault
    if baseline is None and not fault and same_driver:
        baseline, fault = old.baseline, old.provenance.baseline_fault
    provenance = replace(_finished(new.provenance, old.provenance), baseline_fault=fault)
    return replace(new, entries=_kept(entries.values()), baseline=baseline, provenance=provenance)


def reconcile(a: R, b: R, today: HasOrigin | None) -> R:
    """The record of two stores, in which neither is newer by itself; the order does not matter.
    There is no baseline if either store has seen the vendor library's result refused.

    Args:
        a: a record.
        b: one of the same problem, device and evidence.
        today: what this machine would measure with; None if unknown.
    """
    first, second = sorted((a, b), key=lambda record: _rank(record, today), reverse=True)
    if not comparable(first.provenance, second.provenance):
        return replace(first, entries=_kept(first.entries))
    entries: dict[object, Entry] = {}
    for entry in (*first.entries, *second.entries):
        rival = entries.get(entry.config)
        if rival is not None and _quality(entry.measurement) < _quality(rival.measurement):
            entry, rival = rival, entry
        entries[entry.config] = _completed(entry, rival)
    baselines = [record.baseline for record in (first, second) if record.baseline]
    fault = first.provenance.baseline_fault or second.provenance.baseline_fault
    baseline = None if fault else max(baselines, key=_quality, default=None)
    provenance = replace(_finished(first.provenance, second.provenance), baseline_fault=fault)
    return replace(first, entries=_kept(entries.values()), baseline=baseline, provenance=provenance)


def _finished(run: Provenance, earlier: Provenance) -> Provenance:
    """The run of a merged record, which is final if either of two comparable searches ended."""
    if not comparable(run, earlier):
        return run
    if earlier.final:
        return replace(run, interrupted=False, quick=False)
    # An interrupted search and a race are more than either alone, and not final.
    return replace(run, quick=run.quick and earlier.quick)


def _rank(record: TuningRecord, today: HasOrigin | None) -> tuple[object, ...]:
    """Sort key of two records with different origins; the greater stands."""
    origin = record.provenance
    same_source, same_tools = False, 0
    if today is not None:
        same_source = origin.source == today.source
        same_tools = (origin.compiler == today.compiler) + (today.driver in ("", origin.driver))
    date = origin.date[:SECONDS]
    return (
        same_source,
        same_tools,
        not origin.quick,
        date,
        str(astuple(origin)),
        str(record.entries),
    )


def _quality(measured: Measurement) -> tuple[object, ...]:
    """Sort key of two measurements; the text makes the result independent of their order."""
    return measured.samples, -measured.spread_us / measured.time_us, str(astuple(measured))


def _completed(entry: Entry, rival: Entry | None) -> Entry:
    """The entry, with the figures of another measurement that its own lacks."""
    if rival is None:
        return entry
    measured, further = entry.measurement, rival.measurement
    for objective in OBJECTIVES:
        if objective.value(measured) is None:
            figure = {name: getattr(further, name) for name in objective.fields}
            measured = replace(measured, **figure)
    return entry if measured == entry.measurement else replace(entry, measurement=measured)


def _kept(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """The ten fastest, with the best by each other objective among them."""
    ranked = sorted(entries, key=lambda entry: (*entry.rank, str(entry.config)))
    first = [entry for objective in OBJECTIVES[1:] if (entry := objective.best(ranked))]
    kept = [*dict.fromkeys(entry.config for entry in (*first, *ranked))][:KEPT]
    return tuple(entry for entry in ranked if entry.config in kept)
