"""The content of a cache, its faults and the results of maintenance, as tables and JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from autotune.lookup.fingerprints import Fingerprint
from autotune.records import FamilyRecord, KernelRecord, TuningRecord
from autotune.records.exchange import ImportResult
from autotune.records.inventory import ChangedRecord, Item, Kind
from autotune.records.ranges import Range
from autotune.report import cell
from autotune.report.tables import FittedTable
from autotune.tuning.retiming import Retimed, TimeCheck

if TYPE_CHECKING:
    from autotune.measure.vendor_check import VendorChecks  # imports what verifies

# Labels of the overview, by kind of file.
_LABELS: dict[Kind, str] = {
    "program": "compiled programs",
    "trials": "trials of searches",
    "journal": "trials of earlier versions",
    "quarantine": "quarantine",
    "aside": "kept aside",
    "leftover": "left by interrupted writers",
}


@dataclass
class Total:
    """The number of some files and their bytes."""

    files: int = 0
    bytes: int = 0

    def add(self, item: Item) -> None:
        self.files += 1
        self.bytes += item.size


@dataclass(frozen=True)
class Totals:
    """The files of a cache, counted.

    Attributes:
        records: files of records and ranges, by device and evidence.
        kinds: files of the other kinds.
        broken: broken files of any kind.
        all: all files.
    """

    records: dict[tuple[str, str], Total] = field(default_factory=lambda: defaultdict(Total))
    kinds: dict[Kind, Total] = field(default_factory=lambda: defaultdict(Total))
    broken: Total = field(default_factory=Total)
    all: Total = field(default_factory=Total)


def totals(items: Iterable[Item]) -> Totals:
    """Counts the files of a cache."""
    counted = Totals()
    for item in items:
        counted.all.add(item)
        if item.fault is not None:
            counted.broken.add(item)
        if item.content is not None:
            counted.records[item.content.device.name, _evidence(item.content)].add(item)
        elif item.kind in _LABELS:
            counted.kinds[item.kind].add(item)
    return counted


def overview(root: Path, totals: Totals) -> FittedTable:
    """A row for the records of each device and kind of evidence, and for each other kind of file.

    The column `what` is a device with the evidence, or the kind of file; sizes are in bytes.
    """
    table = _table(str(root), "what", "files", "bytes")
    for (device, evidence), total in sorted(totals.records.items()):
        _count(table, f"{device}, {evidence}", total)
    for kind, label in _LABELS.items():
        if kind in totals.kinds:
            _count(table, label, totals.kinds[kind])
    if totals.broken.files:
        _count(table, "broken (`autotune cache verify` says why)", totals.broken)
    _count(table, "together", totals.all)
    return table


def overview_json(root: Path, totals: Totals) -> dict[str, object]:
    """The overview as JSON data."""
    return {
        "cache": str(root),
        "records": [
            {"device": device, "evidence": evidence, **asdict(total)}
            for (device, evidence), total in sorted(totals.records.items())
        ],
        "others": {kind: asdict(totals.kinds[kind]) for kind in _LABELS if kind in totals.kinds},
        "broken": totals.broken.files,
        "bytes": totals.all.bytes,
    }


def faults(items: Iterable[Item]) -> FittedTable:
    """A row for each broken file."""
    table = _table("broken, so skipped; remove them", "file", "why")
    for item in items:
        table.add_row(str(item.path), item.fault)
    return table


def changed(records: Iterable[ChangedRecord], *, stale: bool) -> FittedTable | None:
    """A row for each record that is stale, or else was made with another driver or compiler; None
    if there is none."""
    rows = [row for row in records if row.stale == stale]
    why = "stale" if stale else "measured with another driver or compiler"
    table = _table(f"{why}; `autotune cache verify --retime` measures again", "record", "changed")
    for row in rows:
        table.add_row(f"{row.record.title}, {row.record.device.name}", row.change)
    return table if rows else None


def verification_json(
    count: int,
    broken: Iterable[Item],
    records: Sequence[ChangedRecord],
    retimed: Iterable[Retimed],
    stamped: int = 0,
) -> dict[str, object]:
    """The result of `cache verify` of `count` files as JSON data. `other_tools` are records that
    are not stale, and were measured with another driver or compiler. `counts` has their numbers,
    and how many records were `stamped`."""
    stale = sum(row.stale for row in records)
    return {
        "files": count,
        "broken": [{"file": str(item.path), "why": item.fault} for item in broken],
        "stale": [_changed_json(row) for row in records if row.stale],
        "other_tools": [_changed_json(row) for row in records if not row.stale],
        "retimed": [_retimed_json(result) for result in retimed],
        "counts": {"stale": stale, "stamped": stamped, "other_tools": len(records) - stale},
    }


def outcome(retimed: Retimed) -> str:
    """The result of measuring a record again, in one line."""
    title = retimed.old.title
    if retimed.trouble:
        return f"{title}: stays as it is: {retimed.trouble}"
    failures = "".join(
        f"; {config} fell: {failure.stage}: {failure.reason}" for config, failure in retimed.failed
    )
    if retimed.new is None:
        return (
            f"{title}: nothing of it works any more, set aside; `autotune tune {title}`{failures}"
        )
    before, now = retimed.old.best.measurement.time_us, retimed.new.best.measurement.time_us
    count = len(retimed.new.entries)
    return f"{title}: {count} measured again, best {now:.2f} us (was {before:.2f} us){failures}"


def kernels(records: Sequence[KernelRecord]) -> str:
    """The user kernels of other caches, each with its sources' digests and compiler options."""
    lines = [f"user kernels, with the source code of their authors: {len(records)}"]
    for record in records:
        launch = record.best.launch
        options = () if launch is None else launch.source.options
        launched = (entry for entry in record.entries if entry.launch)
        digests = dict.fromkeys(item.source_digest[:12] for item in (record.best, *launched))
        lines.append(
            f"{record.title} on {record.device.name}: source {', '.join(digests)}, "
            f"options {' '.join(options) or 'none'}"
        )
    return "\n".join(lines)


def kernels_json(records: Sequence[KernelRecord]) -> list[dict[str, object]]:
    """The user kernels of other caches as JSON data."""
    return [
        {
            "kernel": record.title,
            "device": record.device.name,
            "source": record.best.source_digest,
            "options": [] if record.best.launch is None else record.best.launch.source.options,
        }
        for record in records
    ]


def import_summary(results: Sequence[ImportResult]) -> str:
    """The counts of new, better, equal and skipped records, and why each was skipped."""
    counts = Counter(result.change for result in results)
    shown = ", ".join(f"{counts[change]} {change}" for change in ("new", "better", "equal"))
    over = [result for result in results if result.change == "skipped"]
    lines = [f"{len(results)} records and ranges: {shown}, {len(over)} skipped"]
    lines += [f"skipped: {result.subject} on {result.device}: {result.why}" for result in over]
    return "\n".join(lines)


def _changed_json(row: ChangedRecord) -> dict[str, object]:
    return {"record": row.record.title, "device": row.record.device.name, "changed": row.change}


def _retimed_json(retimed: Retimed) -> dict[str, object]:
    return {
        "record": retimed.old.title,
        "device": retimed.old.device.name,
        "time_us": retimed.new.best.measurement.time_us if retimed.new else None,
        "before_us": retimed.old.best.measurement.time_us,
        "entries": len(retimed.new.entries) if retimed.new else 0,
        "failed": [
            {"config": str(config), "stage": failure.stage, "reason": failure.reason}
            for config, failure in retimed.failed
        ],
        "trouble": retimed.trouble or None,
    }


def _evidence(content: TuningRecord | Range) -> str:
    if isinstance(content, Range):
        return f"ranges, {content.evidence}"
    if isinstance(content, KernelRecord):
        return "user kernels"
    if isinstance(content, FamilyRecord):
        return f"{content.evidence}, {'batch-invariant' if content.order else 'of one family'}"
    return content.evidence


def _table(title: str, *columns: str) -> FittedTable:
    table = FittedTable(title=title, title_justify="left")
    for name in columns:
        table.add(name, kind="number" if name in ("files", "bytes") else "prose")
    return table


def _count(table: FittedTable, label: str, total: Total) -> None:
    table.add_row(label, f"{total.files:,}", f"{total.bytes:,}")


SHORT = 16
"""Digits of a hash in a table."""


def fingerprint_table(ours: Fingerprint) -> RenderableType:
    """The hash of each shape, and that of all."""
    table = FittedTable()
    table.add("shape", "hash", kind="text")
    for problem, digest in ours.shapes.items():
        table.add_row(str(problem), digest[:SHORT] if digest else "nothing would run")
    return Group(table, Text(ours.digest))


def fingerprint_json(ours: Fingerprint) -> dict[str, object]:
    """The hashes of shapes and of tuned ranges as JSON data."""
    shapes = {str(problem): digest for problem, digest in ours.shapes.items()}
    return {"fingerprint": ours.digest, "shapes": shapes, "ranges": dict(ours.ranges)}


def checks_table(checks: Sequence[TimeCheck], least: float) -> RenderableType:
    """A line for each problem, and how many are too slow."""
    table = FittedTable()
    table.add("shape", kind="text")
    table.add("bundle us", "now us", "ratio")
    table.add("evidence", kind="text")
    table.add("", kind="prose", worth=-1.5)
    for check in checks:
        slow = f"below {least:g}" if check.ratio < least else ""
        table.add_row(
            str(check.problem),
            f"{check.bundle_us:.2f}",
            cell(check.now_us, "{:.2f}"),
            f"{check.ratio:.3f}",
            check.evidence,
            check.why or slow,
        )
    count = sum(check.ratio < least for check in checks)
    return Group(table, Text(f"{count} of {len(checks)} below {least:g}"))


def checks_json(checks: Sequence[TimeCheck], least: float) -> dict[str, object]:
    """The comparison of times as JSON data."""
    rows = [
        {
            "shape": str(check.problem),
            "bundle_us": check.bundle_us,
            "now_us": check.now_us,
            "ratio": check.ratio,
            "evidence": check.evidence,
            "runs": check.runs,
            "why": check.why,
        }
        for check in checks
    ]
    return {"min": least, "passed": all(check.ratio >= least for check in checks), "checks": rows}


def vendor_table(checks: VendorChecks) -> RenderableType:
    """Counts of the vendor library's results, and a line for each wrong one."""
    counts = Counter(result.outcome for result in checks.results)
    words = ", ".join(f"{counts[word]} {word}" for word in ("verified", "wrong", "not verifiable"))
    title = f"cuBLAS {checks.library} on {checks.device.name}, driver {checks.driver}: {words}"
    if not checks.wrong:
        return Text(title)
    table = FittedTable()
    table.add("shape", kind="text")
    table.add("runs", kind="text")
    table.add("wrong", kind="prose")
    for check in checks.wrong:
        table.add_row(str(check.problem), check.runs, check.why)
    return Group(Text(title), table)


def vendor_json(checks: VendorChecks) -> dict[str, object]:
    """The verification of the vendor's library as JSON data; errors are relative to normal random
    operands, `known_fault` is what release notes state of this version and the shape."""
    rows = [
        {
            "shape": str(check.problem),
            "runs": check.runs,
            "result": check.outcome,
            "error": getattr(check.result, "error", None),
            "tolerance": getattr(check.result, "tolerance", None),
            "relative_error": getattr(check.result, "relative", None),
            "why": check.why or None,
            "known_fault": check.fault,
        }
        for check in checks.results
    ]
    return {
        "device": checks.device.name,
        "driver": checks.driver,
        "cublas": checks.library,
        "passed": not checks.wrong,
        "checks": rows,
    }
