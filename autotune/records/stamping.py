"""Stamps stale records whose kernels still compile to the same machine code.

A record names the sources of its kernels, and each entry the hash of its machine code
(`Entry.code`). If the sources changed, the winners are compiled from today's: where their code is
the same, the times still hold, and the record gets the hash of today's sources. Only the compiler
that made a record can show that; records without a hash of the code, and user kernels, whose
sources are unknown here, stay as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from autotune import cores, settings
from autotune.cuda.program import CompileFailure, Program, code_digest
from autotune.errors import CacheError
from autotune.families import registry
from autotune.families.plan import Template
from autotune.families.source_text import hash_of, joined
from autotune.model.legality import is_legal
from autotune.records.merging import HasOrigin, sources_of, winners_of
from autotune.records.record import Entry, Record, TuningRecord
from autotune.records.store import Store

Compile = Callable[[Template, str], Program | CompileFailure]
SameCode = Callable[[Entry], bool]
"""Whether the machine code of an entry is the same today."""


@dataclass(frozen=True)
class Stamped:
    """A stale record, and the record that now stands in its place."""

    old: Record
    new: Record


def stamp(
    records: Iterable[TuningRecord], today: HasOrigin, store: Store, compile: Compile
) -> list[Stamped]:
    """Compiles the winners of stale records, and saves those records whose code is the same.

    Entries of other code leave a record; the old one then stays beside it as `.superseded-<n>`.
    Nothing is compiled or saved in the frozen mode. A record that cannot be saved stays stale, with
    a warning.

    Args:
        records: stale records of the store.
        today: the compiler and the kernel sources of this machine.
        store: the store of the records.
        compile: compiles a template for an architecture.
    """
    comparable = [
        record for record in records if isinstance(record, Record) and _is_comparable(record, today)
    ]
    if settings.mode().frozen or not comparable:
        return []
    with ThreadPoolExecutor(cores.available(), "stamp") as threads:
        stamped = threads.map(
            lambda record: restamped(record, today, lambda entry: _same(record, entry, compile)),
            comparable,
        )
        pairs = [Stamped(old, new) for old, new in zip(comparable, stamped, strict=True) if new]
    return [pair for pair in pairs if _saved(store, pair)]


def restamped(record: Record, today: HasOrigin, same: SameCode) -> Record | None:
    """The record with today's sources and the entries whose code is the same; None if the code of a
    winner changed.

    Args:
        record: a record.
        today: the kernel sources of this machine.
        same: says of an entry of changed sources whether its machine code is the same.
    """
    source, now = record.provenance.source, today.source
    changed = {name for name, own in sources_of(record).items() if own != hash_of(now, name)}
    winners = [entry for entry in winners_of(record) if entry.config.family in changed]
    if not all(map(same, winners)):
        return None
    kept = tuple(
        entry
        for entry in record.entries
        if entry.config.family not in changed or entry in winners or same(entry)
    )
    families = {entry.config.family for entry in kept}
    own = {name: hash_of(now if name in changed else source, name) for name in families}
    return replace(record, entries=kept, provenance=replace(record.provenance, source=joined(own)))


def _is_comparable(record: Record, today: HasOrigin) -> bool:
    """Whether today's code of the winners can be compared with what was measured."""
    same_compiler = record.provenance.compiler == today.compiler != ""
    return same_compiler and all(entry.code for entry in winners_of(record))


def _same(record: Record, entry: Entry, compile: Compile) -> bool:
    """Whether an entry compiles to the machine code that was measured."""
    if not entry.code or not is_legal(entry.config, record.problem, record.device):
        return False
    programs = list[Program]()
    for launch in registry.plan(entry.config, record.problem).launches:
        program = compile(launch.template, record.device.arch)
        if isinstance(program, CompileFailure):
            return False
        programs.append(program)
    return code_digest(programs) == entry.code


def _saved(store: Store, pair: Stamped) -> bool:
    """Saves a stamped record; False if the file has changed meanwhile or cannot be written."""
    try:
        return store.exchange(pair.old, pair.new)
    except CacheError as error:
        message = f"{pair.old.title}: its machine code is the same, but it stays stale: {error}"
        warnings.warn(message, stacklevel=1)
        return False
