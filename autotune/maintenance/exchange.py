"""Records and ranges on their way from one cache into another, in files or by directory.

Two records of one problem are merged by the rule in `records.merging`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autotune import files
from autotune.errors import AutotuneError, UsageError
from autotune.files import limits, output
from autotune.maintenance.inventory import Item, listed
from autotune.problem import Problem
from autotune.records import MergeOutcome, Record, Store, TuningRecord, bundle, codec, ranges
from autotune.records.bundle import Bundle
from autotune.records.merging import stale
from autotune.records.ordered import OrderedRecord
from autotune.records.ranges import Range
from autotune.records.record import BEST_FIRST, folder_of
from autotune.runners.base import basis
from autotune.runners.recording import Origin

BUNDLE = output.OutputKind("bundle", (bundle.START,))


@dataclass(frozen=True)
class ImportResult:
    """The effect of an imported record or range on the cache.

    Attributes:
        subject: the problem, call or range.
        device: the device's name.
        change: the change.
        why: the reason, if it was passed over; else empty.
    """

    subject: str
    device: str
    change: MergeOutcome
    why: str = ""


def chosen(store: Store, slug: str | None, problems: Sequence[str]) -> Bundle:
    """The record with the best evidence of every problem in the cache, and all ranges, those that
    are batch-invariant with their records.

    Records of user kernels are left out: a bundle does not say whose kernels they are. So is what
    was tuned for one family alone.

    Args:
        store: the cache.
        slug: of the device; None for all devices.
        problems: texts of problems, or shapes, which stand for all problems of that shape; none for
            all. A range is chosen if all its points are.

    Raises:
        ProblemError: for a text that is no problem.
    """
    wanted = _matching(problems)
    readable = (item.content for item in listed(store.root) if item.content is not None)
    contents = [content for content in readable if slug in (None, content.device.slug)]
    records = [
        content for content in contents if type(content) is Record and wanted(content.problem)
    ]
    records.sort(key=lambda record: BEST_FIRST.index(record.evidence), reverse=True)
    best = {
        (folder_of(record.device, record.evidence), record.problem): record for record in records
    }
    tuned = [
        content
        for content in contents
        if isinstance(content, Range)
        and content.family is None
        and all(map(wanted, content.points))
    ]
    ordered = [
        content
        for content in contents
        if isinstance(content, OrderedRecord) and wanted(content.problem)
    ]
    ordered.sort(key=lambda record: (record.problem, record.order))
    return Bundle((*(best[key] for key in sorted(best)), *ordered), tuple(tuned))


def write(path: Path, content: Bundle) -> int:
    """Writes a bundle whole, or leaves the file unchanged; returns its bytes.

    Raises:
        AutotuneError: if it cannot be written, or something else than a bundle is there.
    """
    data = bundle.dumps(content.records, content.ranges)
    output.write(path, data, BUNDLE)
    return len(data)


def read(path: Path) -> tuple[TuningRecord | Range, ...]:
    """The content of a bundle, or of the file of a single record.

    Raises:
        UsageError: if there is no such file.
        AutotuneError: if it is broken or its checksum is wrong.
    """
    try:
        data = files.read(path, limits.BUNDLE)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; give a bundle") from error
    try:
        if bundle.is_bundle(data):
            content = bundle.loads(data)
            return (*content.records, *content.ranges)
        return (codec.loads(data),)
    except ValueError as error:
        raise AutotuneError(
            f"{path}: no bundle or record that can be used: {error}; nothing was imported"
        ) from error


def contents(root: Path, store: Store) -> tuple[list[TuningRecord | Range], list[Item]]:
    """The readable records and ranges of another cache directory, and the broken files.

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
    store: Store, contents: Iterable[TuningRecord | Range], today: Origin
) -> list[ImportResult]:
    """Merges records and ranges into the store.

    Args:
        store: the target.
        contents: records and ranges of other caches.
        today: what this machine would measure with.

    Raises:
        CacheError: if the store cannot be written.
    """
    return [
        _adopt_range(store, content)
        if isinstance(content, Range)
        else _adopt(store, content, today)
        for content in contents
    ]


def _adopt(store: Store, record: TuningRecord, today: Origin) -> ImportResult:
    change = store.adopt(record, today)
    why = ""
    if change == "passed over":
        why = stale(record, today) or "the one that is there is later, or was made here"
    return ImportResult(f"{record.title}, {record.evidence}", record.device.name, change, why)


def _adopt_range(store: Store, tuned: Range) -> ImportResult:
    """Of two ranges, the one with the smaller expected loss stands."""
    path = ranges.path_of(store.root, tuned)
    change: MergeOutcome = "new"
    if path.exists():
        try:
            own = ranges.read(path)
            better = tuned.loss < own.loss
            change = "equal" if tuned == own else "better" if better else "passed over"
        except ValueError:
            change = "new"
            files.copy_aside(path, "broken")
    if change in ("new", "better"):
        ranges.save(store.root, tuned)
    why = "the one that is there expects no greater loss" if change == "passed over" else ""
    subject = f"{tuned}, {basis(tuned.evidence, tuned.objective)}"
    return ImportResult(subject, tuned.device.name, change, why)


def _matching(problems: Sequence[str]) -> Callable[[Problem], bool]:
    """A function that tells whether a problem is named by one of the texts."""
    exact = {Problem.parse(text) for text in problems if ":" in text}
    shapes = {Problem.parse(text).shape for text in problems if ":" not in text}
    return lambda problem: not problems or problem in exact or problem.shape in shapes
