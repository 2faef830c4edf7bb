"""Records and ranges that go from one cache into another: as files, or from directory to directory.

What meets something of the same kind is merged by the rule in `store.merging`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import NamedTemporaryFile

from autotune.errors import AutotuneError, UsageError
from autotune.maintenance.inventory import Item, listed
from autotune.problem import Problem
from autotune.records import (
    MergeOutcome,
    Record,
    Store,
    TuningRecord,
    bundle,
    codec,
    files,
    ranges,
)
from autotune.records.bundle import Bundle
from autotune.records.merging import stale
from autotune.records.ranges import Range
from autotune.records.record import BEST_FIRST
from autotune.runners.recording import Origin


@dataclass(frozen=True)
class ImportResult:
    """What became of a record or range that came in.

    Attributes:
        subject: the problem, call or range.
        device: the device's name.
        change: what it did to the cache.
        why: the reason, where it was passed over; else empty.
    """

    subject: str
    device: str
    change: MergeOutcome
    why: str = ""


def chosen(store: Store, slug: str | None, problems: Sequence[str]) -> Bundle:
    """The best evidence of every problem in the cache, and all ranges.

    Records of kernels of the user's are left out: nobody could tell whose they are.

    Args:
        store: the cache.
        slug: of the device; None for all.
        problems: texts of problems, or shapes alone, which stand for all problems of that shape;
            none for all. Of ranges, those whose points are all among them are chosen.

    Raises:
        ProblemError: for a text that is no problem.
    """
    wanted = _matching(problems)
    every = [item.content for item in listed(store.root)]
    there = [one for one in every if one is not None and slug in (None, one.device.slug)]
    found = [one for one in there if isinstance(one, Record) and wanted(one.problem)]
    found.sort(key=lambda one: BEST_FIRST.index(one.evidence), reverse=True)
    best = {(one.device.slug, one.problem): one for one in found}
    spans = [one for one in there if isinstance(one, Range) and all(map(wanted, one.points))]
    return Bundle(tuple(best[place] for place in sorted(best)), tuple(spans))


def write(path: Path, what: Bundle) -> int:
    """Writes a bundle whole, or leaves the file as it was; returns its bytes.

    Raises:
        AutotuneError: if it cannot be written.
    """
    text = bundle.dumps(what.records, what.ranges)
    try:
        # Beside it, as a rename cannot leave the disk; the user's directories get no locks.
        with NamedTemporaryFile(dir=path.parent, suffix=".tmp", delete=False) as file:
            temporary = Path(file.name)
            try:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise AutotuneError(
            f"{path}: cannot be written: {error.strerror} ({len(text)} bytes); give another file"
        ) from error
    return len(text)


def read(path: Path) -> tuple[TuningRecord | Range, ...]:
    """What a bundle, or the file of a single record, holds.

    Raises:
        UsageError: if there is no such file.
        AutotuneError: if it is broken or its checksum is wrong.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; give a bundle") from error
    try:
        if _is_bundle(text):
            found = bundle.loads(text)
            return (*found.records, *found.ranges)
        return (codec.loads(text),)
    except ValueError as error:
        raise AutotuneError(
            f"{path}: no bundle or record that can be used: {error}; nothing was imported"
        ) from error


def contents(root: Path, store: Store) -> tuple[list[TuningRecord | Range], list[Item]]:
    """What can be read of another cache directory, and the files that cannot.

    Raises:
        UsageError: if it is no directory, or that of the store itself.
    """
    if not root.is_dir():
        raise UsageError(f"{root} is no directory; give a cache directory, or import a file")
    if store.root.exists() and root.samefile(store.root):
        raise UsageError(f"{root} is the cache itself; give another directory")
    items = listed(root)
    readable = [item.content for item in items if item.content is not None]
    return readable, [item for item in items if item.fault is not None]


def absorb(
    store: Store, found: Iterable[TuningRecord | Range], today: Origin
) -> list[ImportResult]:
    """Merges what was read into the store.

    Args:
        store: where it goes.
        found: from elsewhere.
        today: what this machine would measure with.

    Raises:
        CacheError: if the store cannot be written.
    """
    return [
        _adopted_range(store, one) if isinstance(one, Range) else _adopted(store, one, today)
        for one in found
    ]


def _adopted(store: Store, record: TuningRecord, today: Origin) -> ImportResult:
    change = store.adopt(record, today)
    why = ""
    if change == "passed over":
        why = stale(record, today) or "the one that is there is later, or was made here"
    return ImportResult(f"{record.title}, {record.evidence}", record.device.name, change, why)


def _adopted_range(store: Store, found: Range) -> ImportResult:
    """A range says nothing of how it was found but its loss: the smaller one stands."""
    path = ranges.path_of(store.root, found)
    change: MergeOutcome = "new"
    if path.exists():
        try:
            own = ranges.read(path)
            better = found.loss < own.loss
            change = "equal" if found == own else "better" if better else "passed over"
        except ValueError:
            change = "new"
            files.copy_aside(path, "broken")
    if change in ("new", "better"):
        ranges.save(store.root, found)
    why = "the one that is there expects no greater loss" if change == "passed over" else ""
    return ImportResult(f"{found}, {found.evidence}", found.device.name, change, why)


def _is_bundle(text: bytes) -> bool:
    """Whether a document holds several records; ValueError if it is none."""
    try:
        data = json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from error
    return isinstance(data, dict) and "records" in data


def _matching(problems: Sequence[str]) -> Callable[[Problem], bool]:
    """Whether a problem is one of those that the texts name."""
    exact = {Problem.parse(text) for text in problems if ":" in text}
    shapes = {Problem.parse(text).shape for text in problems if ":" not in text}
    return lambda one: not problems or one in exact or one.shape in shapes
