"""The merging of two records of one problem, device and kind of evidence.

Times of two records are comparable if the kernels were compiled from the same sources, whatever the
driver and the compiler. Only the sources of an entry's own family count. Therefore:

- A record takes the entries of another one whose family has the same sources.
- The entries of other sources are left out, and `Store` keeps their record beside the new one.
  After a tuning run the new record stands. Of two stores, the record with kernels of this machine's
  sources stands, then the one of its driver and compiler, then the later one; if only one record
  has this machine's sources of a family, that record's entries of the family stand.
- If both measured the same configuration, the new measurement stands after a tuning run. Of two
  stores, the better measurement stands: more samples, or as many and a smaller relative spread. The
  final round of a tuning run usually takes more samples than a trial, so it comes first. If only
  the other one has a cold time or an energy, that is kept with it.
- The clocks of two rounds differ. So the baseline is the one that was timed in a round with the
  best entry, and a tuning run that timed the winner again decides what is faster: no other earlier
  entry wins against it.

Measured, replayed and predicted records have separate files and are never merged.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import astuple, replace
from itertools import chain
from typing import TypeVar

from autotune.families import cublaslt
from autotune.families.config import Config
from autotune.families.source_text import DIGITS, hash_of, joined, narrowed
from autotune.measure.measurement import Measurement
from autotune.measure.objective import COLD, OBJECTIVES, TIMES
from autotune.measure.recording import Origin
from autotune.records.kernel_record import KernelRecord
from autotune.records.record import Entry, Provenance, TuningRecord

KEPT = 10
# The prefix that all ISO 8601 forms of a UTC date share.
SECONDS = len("2026-11-21T12:00:00")

R = TypeVar("R", bound=TuningRecord)


HasOrigin = Provenance | Origin
"""Driver, compiler and kernel sources: of a record, or of what this machine has now."""


def sources_of(record: TuningRecord) -> dict[str, str]:
    """The hash of the sources of each family that a record has entries of."""
    families = dict.fromkeys(entry.config.family for entry in record.entries)
    return {family: hash_of(record.provenance.source, family) for family in families}


def made_from(record: TuningRecord, source: str) -> bool:
    """Whether the kernels of all entries are compiled from the sources that a text names."""
    return all(hash_of(source, family) == own for family, own in sources_of(record).items())


def same_tools(a: HasOrigin, b: HasOrigin) -> bool:
    """Whether driver and compiler are the same."""
    return (a.driver, a.compiler) == (b.driver, b.compiler)


def changes(record: TuningRecord, today: HasOrigin) -> str | None:
    """The change since the record was measured, such as `driver 12.8, now 13.0`.

    Only the kernel sources of its winners count: hot, cold and by energy. None if nothing changed,
    and for records that were not measured here: a recording does not age, and predictions cost
    nothing. A field that is empty in `today` or in the record is not compared, nor are the sources
    of user kernels, which are unknown here.
    """
    if record.evidence != "measured":
        return None
    return "; ".join(_changed_tools(record, today) + _changed_sources(record, today)) or None


def stale(record: TuningRecord, today: HasOrigin) -> str | None:
    """The `changes` if the kernel sources of a winner are among them; else None.

    Another driver or compiler alone makes no record stale. Neither do sources whose machine code
    is the same: `inventory.stamp` gives such a record the hash of today's sources.
    """
    if record.evidence != "measured" or not (changed := _changed_sources(record, today)):
        return None
    return "; ".join(_changed_tools(record, today) + changed)


def _changed_tools(record: TuningRecord, today: HasOrigin) -> list[str]:
    """The changes of driver and compiler, such as `driver 12.8, now 13.0`."""
    made = record.provenance
    pairs = [("driver", made.driver, today.driver), ("compiler", made.compiler, today.compiler)]
    return [f"{name} {old}, now {new}" for name, old, new in pairs if old and new and old != new]


def winners_of(record: TuningRecord) -> list[Entry]:
    """The best entries of a record: hot, cold and by energy; each once."""
    best = record.best, *(objective.best(record.entries) for objective in OBJECTIVES[1:])
    return list({entry.config: entry for entry in best if entry}.values())


def _changed_sources(record: TuningRecord, today: HasOrigin) -> list[str]:
    """The changes of the kernel sources of the winners' families, such as `kernel sources 0ld, now
    5e1f`; with the family's name if there are several."""
    if isinstance(record, KernelRecord):
        return []
    made, changed = record.provenance.source, list[str]()
    # A single hash has changed for all its families or for none.
    winners = winners_of(record) if ":" in made else [record.best]
    families = dict.fromkeys(entry.config.family for entry in winners)
    for family in families:
        old, new = hash_of(made, family), hash_of(today.source, family)
        if old and new and old != new:
            name = "" if len(families) == 1 else f"{family} "
            kind = "cuBLASLt" if family == cublaslt.NAME else f"{name}kernel sources"
            changed.append(f"{kind} {old[:DIGITS]}, now {new[:DIGITS]}")
    return changed


def merge(
    old: R | None, new: R, failed: Collection[Config] = (), timed: Collection[Config] = ()
) -> R:
    """The record after a tuning run, in which the configurations `failed` did not work.

    The entries are the ten fastest of both, with the fastest cold one and that of the least energy
    among them. If both have a configuration, the new measurement stands, even if it is slower.
    `old` gives no entries of families whose sources differ, and with another driver or compiler
    none that the run has `timed` itself. If the final round timed the winner of `old` again, no
    other entry of `old` wins. A refusal of the baseline's result stands; else the baseline of the
    best entry's round; else any of the same driver. The provenance is the new record's, with the
    sources of the families that have entries: a sum of trials would count twice what a run resumes
    or saves twice. An interrupted run is marked, unless it adds to a search that had ended, and so
    is a quick one.
    """
    made = new.provenance
    if old is None:
        return _built(new, new.entries, made, [new])
    gone = {*failed} if same_tools(old.provenance, made) else {*failed, *timed}
    earlier = [entry for entry in _entries_from(old, made.source) if entry.config not in gone]
    entries = _combined([*_comparable(earlier, new.entries), *new.entries])
    fault = made.baseline_fault
    if new.baseline is None and not fault and old.provenance.driver == made.driver:
        fault = old.provenance.baseline_fault
    run = _finished(made, old.provenance) if made_from(old, made.source) else made
    return _built(new, entries, replace(run, baseline_fault=fault), [new, old])


def reconcile(a: R, b: R, today: HasOrigin) -> R:
    """The record of two stores, in which neither is newer by itself; the order does not matter.
    There is no baseline if either store has seen the vendor library's result refused by the driver
    of the record that stands.

    Args:
        a: a record.
        b: one of the same problem, device and evidence.
        today: what this machine would measure with; empty where that is unknown.
    """
    first, second = _ranked(a, b, today)
    source, run = agreed_sources(a, b, today), first.provenance
    pair = [first, second]
    entries = chain.from_iterable(_entries_from(each, source) for each in pair)
    by_quality = sorted(entries, key=lambda entry: _quality(entry.measurement))
    alike = (each.provenance for each in pair if each.provenance.driver == run.driver)
    fault = next((each.baseline_fault for each in alike if each.baseline_fault), "")
    if made_from(second, source):
        run = _finished(run, second.provenance)
    run = replace(run, source=source, baseline_fault=fault)
    return _built(first, _combined(by_quality), run, pair)


def _combined(entries: Iterable[Entry]) -> list[Entry]:
    """An entry for each configuration: the last, with the figures that only others have."""
    made: dict[Config, Entry] = {}
    for entry in entries:
        made[entry.config] = _completed(entry, made.get(entry.config))
    return [*made.values()]


def _comparable(earlier: Sequence[Entry], entries: Sequence[Entry]) -> list[Entry]:
    """The earlier entries to keep beside a new round. If the round timed the earlier winner again,
    an entry that would now win, by times of other clocks, is dropped or loses its cold time."""
    again = {entry.config for entry in entries}
    timed = [entry for entry in earlier if entry.config in again]
    rest = [entry for entry in earlier if entry.config not in again]
    for time in TIMES:
        if time.best(earlier) in timed and time.best(entries):
            while (best := time.best([*entries, *rest])) in rest:
                rest.remove(best)
                if time is COLD:
                    hot = replace(best.measurement, cold_us=None, cold_spread_us=None)
                    rest.append(replace(best, measurement=hot))
    return timed + rest


def agreed_sources(a: R, b: R, today: HasOrigin) -> str:
    """The sources of each family whose entries `reconcile` keeps, as a text.

    If two records differ in the sources of a family, this machine's sources stand, else the sources
    of the record that stands. If that record has any of today's sources, the other one adds no
    families of other sources.
    """
    first, second = _ranked(a, b, today)
    agreed = sources_of(first)
    for family, source in sources_of(second).items():
        current = source == hash_of(today.source, family)
        alike = source == hash_of(first.provenance.source, family)
        if current or (family not in agreed and alike and not _current(first, today)):
            agreed[family] = source
    return joined(agreed)


def _built(record: R, entries: Iterable[Entry], run: Provenance, rounds: Sequence[R]) -> R:
    """The record with the best of these entries, the sources of their families, and the baseline of
    the round that timed the best entry, else another one of the same driver."""
    kept = _kept(entries)
    provenance = replace(run, source=narrowed(run.source, {each.config.family for each in kept}))
    made = replace(record, entries=kept, baseline=None, provenance=provenance)
    won = made.best.config, made.best.measurement.time_us
    beside = [
        (
            any(won == (entry.config, entry.measurement.time_us) for entry in each.entries),
            each.baseline,
        )
        for each in rounds
        if each.baseline and each.provenance.driver == run.driver and not run.baseline_fault
    ]
    best = max(beside, key=lambda pair: (pair[0], _quality(pair[1])), default=None)
    return replace(made, baseline=best[1]) if best else made


def _entries_from(record: TuningRecord, source: str) -> list[Entry]:
    """The entries whose kernels are compiled from the sources that a text names."""
    own = sources_of(record)
    stand = {family for family, made in own.items() if hash_of(source, family) == made}
    return [entry for entry in record.entries if entry.config.family in stand]


def _finished(run: Provenance, earlier: Provenance) -> Provenance:
    """The run of a merged record, which is final if either of two comparable searches ended."""
    if earlier.final:
        return replace(run, interrupted=False, quick=False)
    # An interrupted search and a race are more than either alone, and not final.
    return replace(run, quick=run.quick and earlier.quick)


def _ranked(a: R, b: R, today: HasOrigin) -> tuple[R, R]:
    """Two records: the one that stands, then the other."""
    first, second = sorted((a, b), key=lambda record: _rank(record, today), reverse=True)
    return first, second


def _current(record: TuningRecord, today: HasOrigin) -> bool:
    """Whether any entry is of the kernel sources that this machine has."""
    made = sources_of(record).items()
    return any(hash_of(today.source, family) == source for family, source in made)


def _rank(record: TuningRecord, today: HasOrigin) -> tuple[object, ...]:
    """Sort key of two records with different origins; the greater stands."""
    origin, now = record.provenance, today.source
    tools = (origin.compiler == today.compiler) + (today.driver in ("", origin.driver))
    run = str(astuple(replace(origin, source="")))
    # A record ranks no lower with the entries it takes, so that merging again changes nothing.
    named = sources_of(record).items()
    sources = sorted(((hash_of(now, pair[0]) == pair[1], *pair) for pair in named), reverse=True)
    return (
        _current(record, today),
        tools,
        not origin.quick,
        origin.date[:SECONDS],
        run,
        sources,
        str(record.entries),
        [entry.code for entry in record.entries],
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
    """The ten fastest, with the best by each other objective and of the library among them."""
    ranked = sorted(entries, key=lambda entry: (*entry.rank, str(entry.config)))
    library = [entry for entry in ranked if entry.library]
    best = (objective.best(ranked) for objective in OBJECTIVES[1:])
    first = [entry for entry in (*best, *library[:1]) if entry]
    kept = [*dict.fromkeys(entry.config for entry in (*first, *ranked))][:KEPT]
    return tuple(entry for entry in ranked if entry.config in kept)
