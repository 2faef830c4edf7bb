"""What lies in a cache directory, file by file, and what is wrong with it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from autotune.compiler import cache as programs
from autotune.records import KernelRecord, Store, TuningRecord, ranges
from autotune.records.merging import stale
from autotune.records.ranges import Range
from autotune.runners.recording import Origin

Kind = Literal[
    "record", "kernel", "range", "program", "quarantine", "journal", "rescued", "aside", "leftover"
]
"""Records of problems and of the user's kernels, tuned ranges, compiled programs, candidates that
are not tried again, trials, trials that a storage did not take, files that gave way to others, and
what interrupted writers left."""

_ASIDE = re.compile(r"\.(broken|superseded)-\d+$")
_KINDS: dict[tuple[str, str], Kind] = {
    ("records", ".json"): "record",
    ("kernels", ".json"): "kernel",
    ("ranges", ".json"): "range",
    ("programs", ".program"): "program",
    ("quarantine", ".jsonl"): "quarantine",
    ("studies", ".log"): "journal",
    ("rescued", ".jsonl"): "rescued",
}


@dataclass(frozen=True)
class Item:
    """A file of the cache.

    Attributes:
        path: where it is.
        kind: what it holds.
        size: bytes.
        modified: when it was written last, in seconds since 1970.
        fault: why it cannot be used; None if it can, and for what is never read.
        content: the record or range in it, where it is one.
    """

    path: Path
    kind: Kind
    size: int
    modified: float
    fault: str | None = None
    content: TuningRecord | Range | None = None


def inspect(root: Path) -> list[Item]:
    """Every file of the cache below `root`, read and checked, by path; foreign files and locks are
    passed over, and so is what is deleted meanwhile."""
    store = Store(root)
    return [item for path in sorted(root.glob("*/**/*")) for item in _item(store, path)]


def listed(root: Path) -> list[Item]:
    """As `inspect`, but only records and ranges are read."""
    store = Store(root)
    paths = sorted(root.glob("*/**/*"))
    return [item for path in paths for item in _item(store, path, thorough=False)]


def stale_records(items: list[Item], today: Origin) -> list[tuple[TuningRecord, str]]:
    """Measured records that were made with something else than this machine has, and with what.

    Of a kernel of the user's the sources are not known here.
    """
    found = []
    for item in items:
        record = item.content
        if isinstance(record, TuningRecord):
            now = replace(today, source="") if isinstance(record, KernelRecord) else today
            if (why := stale(record, now)) is not None:
                found.append((record, why))
    return found


def _item(store: Store, path: Path, *, thorough: bool = True) -> Iterator[Item]:
    """The item of a path, if it is one."""
    kind = _kind(path.relative_to(store.root))
    if kind is None:
        return
    try:
        stat = path.stat()
    except OSError:
        return  # it has gone
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
    if item.kind in ("quarantine", "journal", "rescued"):
        return _torn(item.path)
    return None


def _torn(path: Path) -> str | None:
    """The first line that is no JSON object. A last one without its end is cut off by the next
    writer, so it is no fault."""
    try:
        *lines, _rest = path.read_bytes().split(b"\n")
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    broken = (number for number, line in enumerate(lines, start=1) if not _is_object(line))
    number = next(broken, None)
    return None if number is None else f"line {number} is no JSON object"


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False
