"""The files of a cache directory, and what is wrong with them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Literal

from autotune import files
from autotune.cuda import cache as programs
from autotune.files import limits
from autotune.records import KernelRecord, Record, Store, TuningRecord, ranges
from autotune.records.merging import changes, stale
from autotune.records.ranges import Range
from autotune.records.standing import BEST_FIRST
from autotune.runners.recording import Origin

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


def inspect(root: Path) -> list[Item]:
    """Every file of the cache below `root`, read and checked, by path.

    Foreign files, locks and files that are deleted meanwhile are skipped.
    """
    return [*scan(root, thorough=True)]


def listed(root: Path) -> list[Item]:
    """As `inspect`, but reads only records and ranges."""
    return [*scan(root)]


def scan(root: Path, *, thorough: bool = False) -> Iterator[Item]:
    """The items of `listed`, or if `thorough` of `inspect`, one after the other: those of a large
    cache take gigabytes together."""
    store = Store(root)
    for path in sorted(root.glob("*/**/*"), key=str):
        yield from _item(store, path, thorough=thorough)


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


def changed_records(items: Iterable[Item], today: Origin) -> list[ChangedRecord]:
    """Measured records whose driver, compiler or kernel sources differ from `today`."""
    pairs = [(record, change(record, today)) for record in recorded(items)]
    return [
        ChangedRecord(record, why, stale_change(record, today) is not None)
        for record, why in pairs
        if why is not None
    ]


def verdict(
    items: Iterable[Item], today: Origin, slug: str | None
) -> tuple[int, list[Item], list[ChangedRecord]]:
    """The number of files, the broken ones, and the changed records of a device, None for any."""
    count, broken = 0, list[Item]()
    changed: list[ChangedRecord] = []
    for item in items:
        count += 1
        if item.fault is not None:
            broken.append(item)
        if item.content is not None and slug in (None, item.content.device.slug):
            changed += changed_records([item], today)
    return count, broken, sorted(changed, key=lambda row: order(row.record))


def change(record: TuningRecord, today: Origin) -> str | None:
    """The change since a record was measured; None if there is none (see `merging.changes`).

    The sources of user kernels are unknown here, so they are not compared.
    """
    return changes(record, _known(record, today))


def stale_change(record: TuningRecord, today: Origin) -> str | None:
    """The `change` of a stale record; None for a record that is not stale (see `merging.stale`)."""
    return stale(record, _known(record, today))


def _known(record: TuningRecord, today: Origin) -> Origin:
    """The part of `today` that a record is compared with."""
    return replace(today, source="") if isinstance(record, KernelRecord) else today


def order(record: TuningRecord) -> tuple[object, ...]:
    """The sort key of records: by device, those of problems first, by their sizes."""
    sizes = (0, record.problem) if isinstance(record, Record) else (1, record.title)
    return record.device.name, *sizes, BEST_FIRST.index(record.evidence)


def _item(store: Store, path: Path, *, thorough: bool = True) -> Iterator[Item]:
    """The item of a path, if the path is a file of the cache."""
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
