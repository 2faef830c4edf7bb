"""The files of a cache directory: what is wrong with them, and what is not needed.

A stale record whose kernels still compile to the same machine code is stamped. A record names the
sources of its kernels, and each entry the hash of its machine code (`Entry.code`). If the sources
changed, the winners are compiled from today's: where their code is the same, the times still hold,
and the record gets the hash of today's sources. Only the compiler that made a record can show that;
records without a hash of the code, and user kernels, whose sources are unknown here, stay as they
are.
"""

from __future__ import annotations

import json
import re
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal

from autotune import cores, files, settings
from autotune.cuda import cache as programs
from autotune.cuda import compiler
from autotune.cuda.program import CompileFailure, Program, code_digest
from autotune.errors import CacheError
from autotune.families import registry
from autotune.families.plan import Template
from autotune.families.source_text import hash_of, joined
from autotune.files import limits
from autotune.measure.recording import Origin
from autotune.model.legality import Legality, is_legal
from autotune.records import Entry, Record, Store, TuningRecord, ranges
from autotune.records.merging import HasOrigin, changes, sources_of, stale, winners_of
from autotune.records.ranges import Range
from autotune.records.record import BEST_FIRST
from autotune.settings import warn_once

Kind = Literal[
    "record", "kernel", "range", "program", "quarantine", "trials", "journal", "aside", "leftover"
]
"""`record` and `kernel`: records of problems and of user kernels. `range`: tuned ranges. `program`:
compiled programs. `quarantine`: candidates that are not tried again. `trials`: logs of trials.
`journal`: trials of earlier versions, which are not read. `aside`: copies of replaced files.
`leftover`: temporary files of interrupted writers."""

_ASIDE = re.compile(r"\.(broken|superseded)-\d+$")

_KINDS: dict[tuple[str, str], Kind] = {
    ("records", ".json"): "record",
    ("families", ".json"): "record",
    ("ordered", ".json"): "record",
    ("kernels", ".json"): "kernel",
    ("ranges", ".json"): "range",
    ("programs", ".program"): "program",
    ("quarantine", ".jsonl"): "quarantine",
    ("studies", ".jsonl"): "trials",
    ("studies", ".log"): "journal",
    ("rescued", ".jsonl"): "journal",
}


@dataclass(frozen=True)
class Item:
    """A file of the cache.

    Attributes:
        path: the file.
        kind: the kind of content.
        size: bytes.
        modified: time of the last write, in seconds since 1970.
        fault: why it cannot be used; None if it can be, or was not checked.
        content: the record or range in it, if it is one.
    """

    path: Path
    kind: Kind
    size: int
    modified: float
    fault: str | None = None
    content: TuningRecord | Range | None = None


def scan(root: Path, *, thorough: bool = False) -> Iterator[Item]:
    """The files of the cache below `root`, one after the other: the contents of a large cache take
    gigabytes together.

    Records and ranges are read, and if `thorough` the other files are checked too. Foreign files,
    locks and files that are deleted meanwhile are skipped.
    """
    store = Store(root)
    for path in sorted(root.glob("*/**/*"), key=str):
        yield from _item(store, path, thorough=thorough)


def records(root: Path) -> list[TuningRecord]:
    """The records of the cache below `root`, by device and title; a broken file costs a warning."""
    items = [*scan(root)]
    for item in items:
        if item.fault is not None:
            warn_once(f"{item.path}: skipped: {item.fault}")
    return recorded(items)


def recorded(items: Iterable[Item]) -> list[TuningRecord]:
    """The records among the files, by device and title."""
    records = [item.content for item in items if isinstance(item.content, TuningRecord)]
    return sorted(records, key=order)


@dataclass(frozen=True)
class ChangedRecord:
    """A measured record, what changed since (see `merging.changes`), and whether it is stale."""

    record: TuningRecord
    change: str
    stale: bool


def verification(
    items: Iterable[Item], today: Origin, slug: str | None
) -> tuple[int, list[Item], list[ChangedRecord]]:
    """The number of files, the broken ones, and the changed records of a device, None for any."""
    count, broken = 0, list[Item]()
    changed: list[ChangedRecord] = []
    for item in items:
        count += 1
        if item.fault is not None:
            broken.append(item)
        record = item.content
        if not isinstance(record, TuningRecord) or slug not in (None, record.device.slug):
            continue
        if (why := changes(record, today)) is not None:
            changed.append(ChangedRecord(record, why, stale(record, today) is not None))
    return count, broken, sorted(changed, key=lambda row: order(row.record))


def renewed(
    records: Iterable[ChangedRecord], stamped: Iterable[Stamped], today: Origin
) -> list[ChangedRecord]:
    """The changed records after stamping: a stamped one counts only if its driver differs."""
    new = {pair.old: pair.new for pair in stamped}
    kept = [row for row in records if row.record not in new]
    pairs = [(record, changes(record, today)) for record in new.values()]
    kept += [ChangedRecord(record, why, stale=False) for record, why in pairs if why is not None]
    return sorted(kept, key=lambda row: order(row.record))


def order(record: TuningRecord) -> tuple[object, ...]:
    """The sort key of records: by device, those of problems first, by their sizes."""
    sizes = (0, record.problem) if isinstance(record, Record) else (1, record.title)
    return record.device.name, *sizes, BEST_FIRST.index(record.evidence)


def _item(store: Store, path: Path, *, thorough: bool = True) -> Iterator[Item]:
    kind = _kind(path.relative_to(store.root))
    if kind is None:
        return
    try:
        stat = path.stat()
    except OSError:
        return  # it is gone
    item = Item(path, kind, stat.st_size, stat.st_mtime)
    try:
        if kind in ("record", "kernel"):
            yield replace(item, content=store.read(path))
        elif kind == "range":
            yield replace(item, content=ranges.read(path))
        else:
            yield replace(item, fault=_fault(item)) if thorough else item
    except ValueError as error:
        yield replace(item, fault=str(error))


def _kind(path: Path) -> Kind | None:
    if _ASIDE.search(path.name):
        return "aside"
    if path.suffix == ".tmp":
        return "leftover"
    return _KINDS.get((path.parts[0], path.suffix))


def _fault(item: Item) -> str | None:
    if item.kind == "program":
        return programs.fault(item.path)
    if item.kind not in ("quarantine", "trials"):
        return None
    try:
        with files.opened(item.path) as file:
            # A search skips the broken lines of a trial log.
            return _broken_line(file) if item.kind == "quarantine" else None
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _broken_line(file: BinaryIO) -> str | None:
    """The first line that is no JSON object.

    A last line without a newline is no fault: the next writer cuts it off.
    """
    for number, line in enumerate(iter(lambda: file.readline(limits.LINE), b""), start=1):
        torn = len(line) < limits.LINE and not line.endswith(b"\n")
        if not torn and not is_object(line):
            return f"line {number} is no JSON object"
    return None


def is_object(line: bytes) -> bool:
    """Whether a line is a JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


_SELECTED = {
    "journals": ("journal",),
    "trials": ("trials",),
    "records": ("record", "kernel", "range"),
}
"""The kinds of files that `chosen` takes whole, by the words for them."""

BUSY_S = 3600.0
"""A temporary file is deleted only after this long, when no running writer can still use it."""


def chosen(
    items: Collection[Item], kinds: Collection[str], slug: str | None, tuned: Iterable[object] = ()
) -> list[Item]:
    """The files of the chosen kinds.

    Args:
        items: the files of a cache.
        kinds: `programs` that no record uses, of all devices; copies of `broken` files and of
            `superseded` records; the `trials` of searches, and as `journals` those of earlier
            versions; `records` of problems and of user kernels, and ranges.
        slug: the device of all but programs; None for any.
        tuned: the records and ranges of the cache, which are read if it has programs.

    Raises:
        MissingError: if programs are asked for and there are some, without a compiler.
    """
    selected = [
        item for why in ("broken", "superseded") if why in kinds for item in aside(items, why)
    ]
    wanted = {kind for name in kinds for kind in _SELECTED.get(name, ())}
    selected += [item for item in items if item.kind in wanted]
    selected = [item for item in selected if slug in (None, item.path.parent.name)]
    return selected + (unused_programs(items, tuned) if "programs" in kinds else [])


def used(records: Iterable[Record]) -> frozenset[str]:
    """The names of the programs that the records' configurations compile to today.

    Raises:
        MissingError: without a compiler, whose version is part of the names.
    """
    wanted: dict[str, set[Template]] = defaultdict(set)
    for record in records:
        legal = Legality(record.problem, record.device)
        for config in (entry.config for entry in record.entries if legal(entry.config)):
            launches = registry.plan(config, record.problem).launches
            wanted[record.device.arch].update(launch.template for launch in launches)
    names = (compiler.named_keys(templates, arch).values() for arch, templates in wanted.items())
    return frozenset().union(*names)


def unused_programs(items: Collection[Item], tuned: Iterable[object]) -> list[Item]:
    """Programs that no record uses, and what interrupted compilations left.

    Programs of user kernels count as unused, because their sources are unknown here. A deleted
    program is compiled again when it is needed.

    Raises:
        MissingError: without a compiler.
    """
    programs = [item for item in items if item.kind == "program"]
    if programs:
        keys = used(record for record in tuned if isinstance(record, Record))
        programs = [item for item in programs if item.path.stem not in keys]
    return programs + leftovers(items)


def leftovers(items: Iterable[Item]) -> list[Item]:
    """Temporary files of interrupted writers."""
    return older((item for item in items if item.kind == "leftover"), BUSY_S)


def aside(items: Iterable[Item], why: str) -> list[Item]:
    """Copies of replaced files: `broken` or `superseded` ones."""
    return [item for item in items if item.kind == "aside" and f".{why}-" in item.path.name]


def older(items: Iterable[Item], seconds: float) -> list[Item]:
    """The items last written at least `seconds` ago."""
    latest = time.time() - seconds
    return [item for item in items if item.modified <= latest]


def delete(items: Iterable[Item]) -> int:
    """Deletes files; returns how many bytes they took.

    Raises:
        CacheError: if the cache cannot be written.
    """
    freed = 0
    for item in items:
        files.delete(item.path)
        freed += item.size
    return freed


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
        record
        for record in records
        if isinstance(record, Record)
        and record.provenance.compiler == today.compiler != ""
        and all(entry.code or entry.library for entry in winners_of(record))
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
    made = sources_of(record)
    changed = {name for name, own in made.items() if own != (hash_of(now, name) or own)}
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


def _same(record: Record, entry: Entry, compile: Compile) -> bool:
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
        warn_once(f"{pair.old.title}: its machine code is the same, but it stays stale: {error}")
        return False
