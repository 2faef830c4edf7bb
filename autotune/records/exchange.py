"""Records and ranges on their way from one cache into another, in files or by directory.

Two records of one problem are merged by the rule in `records.merging`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from pathlib import Path

from autotune import files
from autotune.errors import AutotuneError, UsageError
from autotune.files import limits, output
from autotune.files.reading import is_compressed
from autotune.measure.recording import Origin
from autotune.problem import Problem
from autotune.records import (
    FamilyRecord,
    KernelRecord,
    MergeOutcome,
    Record,
    Store,
    TuningRecord,
    bundle,
    codec,
    ranges,
)
from autotune.records.bundle import START, Bundle, Submission
from autotune.records.inventory import scan
from autotune.records.merging import stale
from autotune.records.ranges import Range
from autotune.records.record import BEST_FIRST, folder_of, weakness

BUNDLE = output.OutputKind("bundle", (START,))


@dataclass(frozen=True)
class ImportResult:
    """The effect of an imported record or range on the cache.

    Attributes:
        subject: the problem, call or range.
        device: the device's name.
        change: the change.
        why: the reason, if it was skipped; else empty.
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
        slug: slug of the device; None for all devices.
        problems: texts of problems, or shapes, which stand for all problems of that shape; none for
            all. A range is chosen if all its points are.

    Raises:
        ProblemError: for a text that is not a problem.
    """
    exact = {Problem.parse(text) for text in problems if ":" in text}
    shapes = {Problem.parse(text).shape for text in problems if ":" not in text}

    def wanted(problem: Problem) -> bool:
        return not problems or problem in exact or problem.shape in shapes

    best: dict[tuple[str, Problem], Record] = {}
    ordered: list[tuple[Problem, str, FamilyRecord]] = []
    tuned: list[Range] = []
    for item in scan(store.root):
        content = item.content
        if content is None or slug not in (None, content.device.slug):
            continue
        if isinstance(content, Range):
            if all(map(wanted, content.points)):
                tuned.append(content)
        elif isinstance(content, FamilyRecord):
            if content.order and wanted(content.problem):
                ordered.append((content.problem, content.order, content))
        elif isinstance(content, Record) and wanted(content.problem):
            key = folder_of(content.device, content.evidence), content.problem
            if key not in best or weakness(content) < weakness(best[key]):
                best[key] = content
    ordered.sort(key=itemgetter(0, 1))
    records = *(best[key] for key in sorted(best)), *(record for *_, record in ordered)
    return Bundle(records, tuple(tuned))


def submitted(content: Bundle, today: Origin, cublas: str) -> Bundle:
    """The records of a card as its user submits them, with what they were measured with.

    Ranges and orders of summation stay out: a release has none.

    Args:
        content: records that `chosen` chose.
        today: tools with which this machine would measure.
        cublas: the version of cuBLAS; empty if it is not known.

    Raises:
        UsageError: if there are records of several cards, none at all, or any that is not measured
            or that is stale; the message counts them.
    """
    records = [record for record in content.records if type(record) is Record]
    if len(names := sorted({record.device.name for record in records})) != 1:
        cards = f"records of {', '.join(names)}" if names else "no records"
        raise UsageError(f"{cards}; a submission has the records of one card: give --device")
    kinds = Counter("stale" if stale(record, today) else record.evidence for record in records)
    if unfit := [f"{kinds[kind]} {kind}" for kind in ("stale", *BEST_FIRST[1:]) if kinds[kind]]:
        raise UsageError(
            f"of {len(records)} records {', '.join(unfit)}: a submission has measured records "
            "alone; `autotune cache verify --retime` measures stale records again; "
            "to leave records out, name shapes after the file"
        )
    runs = [record.provenance for record in records]
    sources = (run.source.split() for run in runs)

    def joined(values: Iterable[str]) -> str:
        return ", ".join(dict.fromkeys(filter(None, values)))

    made = Submission(
        device=names[0],
        driver=joined(run.driver for run in runs),
        toolkit=joined(run.compiler for run in runs),
        cublas=cublas,
        autotune=joined(run.autotune for run in runs),
        date=max(run.date for run in runs),
        source=joined(chain.from_iterable(sources)),
    )
    return Bundle(records, submission=made)


def write(path: Path, content: Bundle) -> int:
    """Writes the file of a bundle whole, or leaves it unchanged; returns its bytes.

    Raises:
        AutotuneError: if it cannot be written, or something else than a bundle is there.
    """
    data = b"".join(bundle.written(content))
    output.write(path, data, BUNDLE)
    return len(data)


def read(path: Path) -> Iterator[TuningRecord | Range]:
    """The content of a file of bundles, or of a single record, one after the other.

    Raises:
        UsageError: if there is no such file.
        AutotuneError: where it is broken or a checksum is wrong.
    """
    try:
        with files.opened(path) as file:
            start = file.read(limits.DOCUMENT + 1)
            file.seek(0)
            yield from bundle.read(file) if is_compressed(start) else (codec.loads(start),)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}; give a bundle") from error
    except ValueError as error:
        raise AutotuneError(
            f"{path}: no bundle or record that can be used: {error}; nothing was imported"
        ) from error


def absorb(
    store: Store, contents: Iterable[TuningRecord | Range], today: Origin, *, kernels: bool = False
) -> list[ImportResult]:
    """Merges records and ranges into the store.

    Args:
        store: the target.
        contents: records and ranges of other caches.
        today: tools with which this machine would measure.
        kernels: whether to merge user kernels too, which bring source code of their author; else
            they are left out.

    Raises:
        CacheError: if the store cannot be written.
    """
    return [
        _adopt_range(store, content)
        if isinstance(content, Range)
        else _adopt(store, content, today)
        for content in contents
        if kernels or not isinstance(content, KernelRecord)
    ]


def _adopt(store: Store, record: TuningRecord, today: Origin) -> ImportResult:
    change: MergeOutcome = "skipped"
    if not (why := _other_source(store, record)):
        change = store.adopt(record, today)
    if change == "skipped" and not why:
        why = stale(record, today) or "the present record is later, or was made here"
    return ImportResult(f"{record.title}, {record.evidence}", record.device.name, change, why)


def _other_source(store: Store, record: TuningRecord) -> str:
    """The source of the cache's own kernel of that call, if it differs; else nothing."""
    if not isinstance(record, KernelRecord):
        return ""
    theirs = record.best.source_digest
    for own in store.kernels(record.title):
        if own.device.slug == record.device.slug and own.best.source_digest != theirs:
            return (
                f"yours of that name and call is from source {own.best.source_digest[:12]}, theirs "
                f"from {theirs[:12]}; to take theirs, delete {store.path_of(own)}"
            )
    return ""


def _adopt_range(store: Store, tuned: Range) -> ImportResult:
    """Imports a range: of two, the range that was tuned at more sizes stands."""
    path = ranges.path_of(store.root, tuned)
    change: MergeOutcome = "new"
    if path.exists():
        try:
            own = ranges.read(path)
            better = len(tuned.points) > len(own.points)
            change = "equal" if tuned == own else "better" if better else "skipped"
        except ValueError:
            files.copy_aside(path, "broken")
    if change in ("new", "better"):
        ranges.save(store.root, tuned)
    why = "the present range was tuned at no fewer sizes" if change == "skipped" else ""
    subject = f"{tuned}, {tuned.evidence}{tuned.objective.suffix(', ')}"
    return ImportResult(subject, tuned.device.name, change, why)
