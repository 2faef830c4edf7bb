"""The content of a cache, its faults and the results of maintenance, as tables and JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.maintenance.exchange import ImportResult
from autotune.maintenance.inventory import Item, Kind
from autotune.maintenance.retiming import Retimed
from autotune.records import FamilyRecord, KernelRecord, OrderedRecord, TuningRecord
from autotune.records.ranges import Range

if TYPE_CHECKING:
    from autotune.report.tables import FittedTable

# Labels of the overview, by kind of file.
_LABELS: dict[Kind, str] = {
    "program": "compiled programs",
    "journal": "journals of trials",
    "rescued": "rescued trials",
    "quarantine": "quarantine",
    "aside": "kept aside",
    "leftover": "left by interrupted writers",
}


def overview(root: Path, items: Sequence[Item]) -> FittedTable:
    """A row for the records of each device and kind of evidence, and for each other kind of file.

    The column `what` is a device with the evidence, or the kind of file; sizes are in bytes.
    """
    table = _table(str(root), "what", "files", "bytes")
    for (device, evidence), group in sorted(_recorded(items).items()):
        _count(table, f"{device}, {evidence}", group)
    for kind, label in _LABELS.items():
        if group := [item for item in items if item.kind == kind]:
            _count(table, label, group)
    if broken := [item for item in items if item.fault is not None]:
        _count(table, "broken (`autotune cache verify` says why)", broken)
    _count(table, "together", items)
    return table


def overview_json(root: Path, items: Sequence[Item]) -> dict[str, object]:
    """The overview as JSON data."""
    return {
        "cache": str(root),
        "records": [
            {"device": device, "evidence": evidence, "files": len(group), "bytes": _bytes(group)}
            for (device, evidence), group in sorted(_recorded(items).items())
        ],
        "others": {
            kind: {"files": len(group), "bytes": _bytes(group)}
            for kind in _LABELS
            if (group := [item for item in items if item.kind == kind])
        },
        "broken": sum(item.fault is not None for item in items),
        "bytes": _bytes(items),
    }


def faults(items: Iterable[Item]) -> FittedTable:
    """A row for each broken file."""
    table = _table("broken", "file", "why")
    for item in items:
        table.add_row(str(item.path), item.fault)
    return table


def stale(records: Iterable[tuple[TuningRecord, str]]) -> FittedTable:
    """A row for each record whose driver, compiler or kernel sources have changed."""
    table = _table("stale; `autotune cache verify --retime` measures again", "record", "changed")
    for record, why in records:
        table.add_row(f"{record.title}, {record.device.name}", why)
    return table


def verdict_json(
    items: Sequence[Item], records: Iterable[tuple[TuningRecord, str]], retimed: Iterable[Retimed]
) -> dict[str, object]:
    """The result of `cache verify` as JSON data."""
    return {
        "files": len(items),
        "broken": [
            {"file": str(item.path), "why": item.fault} for item in items if item.fault is not None
        ],
        "stale": [
            {"record": record.title, "device": record.device.name, "changed": why}
            for record, why in records
        ],
        "retimed": [_retimed_json(result) for result in retimed],
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


def import_summary(results: Sequence[ImportResult]) -> str:
    """How many were new, better, equal and passed over, and why each of the last was."""
    counts = Counter(result.change for result in results)
    shown = ", ".join(f"{counts[change]} {change}" for change in ("new", "better", "equal"))
    over = [result for result in results if result.change == "passed over"]
    lines = [f"{len(results)} records and ranges: {shown}, {len(over)} passed over"]
    lines += [f"passed over: {result.subject} on {result.device}: {result.why}" for result in over]
    return "\n".join(lines)


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


def _recorded(items: Iterable[Item]) -> dict[tuple[str, str], list[Item]]:
    """Files of records and ranges by device and evidence."""
    groups: dict[tuple[str, str], list[Item]] = defaultdict(list)
    for item in items:
        content = item.content
        if isinstance(content, Range):
            groups[content.device.name, f"ranges, {content.evidence}"].append(item)
        elif isinstance(content, KernelRecord):
            groups[content.device.name, "user kernels"].append(item)
        elif isinstance(content, OrderedRecord):
            groups[content.device.name, f"{content.evidence}, batch-invariant"].append(item)
        elif isinstance(content, FamilyRecord):
            groups[content.device.name, f"{content.evidence}, of one family"].append(item)
        elif content is not None:
            groups[content.device.name, content.evidence].append(item)
    return groups


def _table(title: str, *columns: str) -> FittedTable:
    from autotune.report.tables import FittedTable

    table = FittedTable(title=title, title_justify="left")
    for name in columns:
        table.add(name, "number" if name in ("files", "bytes") else "prose")
    return table


def _count(table: FittedTable, label: str, items: Sequence[Item]) -> None:
    table.add_row(label, f"{len(items):,}", f"{_bytes(items):,}")


def _bytes(items: Iterable[Item]) -> int:
    return sum(item.size for item in items)
