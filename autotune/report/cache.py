"""What lies in a cache, what was found out about it and what became of it, as tables and JSON."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.maintenance.exchange import ImportResult
from autotune.maintenance.inventory import Item, Kind
from autotune.maintenance.retiming import Retimed
from autotune.records import KernelRecord, TuningRecord
from autotune.records.ranges import Range

if TYPE_CHECKING:
    from rich.table import Table

# Files as the overview counts them.
_LABELS: dict[Kind, str] = {
    "program": "compiled programs",
    "journal": "journals of trials",
    "rescued": "rescued trials",
    "quarantine": "quarantine",
    "aside": "kept aside",
    "leftover": "left by interrupted writers",
}


def overview(root: Path, items: Sequence[Item]) -> Table:
    """A row for the records of each device and kind of evidence, and for each other kind of file.

    `what` is a device with the evidence, or what the files hold; sizes are in bytes.
    """
    table = _table(str(root), "what", "files", "bytes")
    for (device, what), found in sorted(_recorded(items).items()):
        _count(table, f"{device}, {what}", found)
    for kind, label in _LABELS.items():
        if found := [item for item in items if item.kind == kind]:
            _count(table, label, found)
    if found := [item for item in items if item.fault is not None]:
        _count(table, "broken (`autotune cache verify` says why)", found)
    _count(table, "together", items)
    return table


def overview_json(root: Path, items: Sequence[Item]) -> dict[str, object]:
    """What `overview` shows."""
    return {
        "cache": str(root),
        "records": [
            {"device": device, "evidence": what, "files": len(found), "bytes": _bytes(found)}
            for (device, what), found in sorted(_recorded(items).items())
        ],
        "others": {
            kind: {"files": len(found), "bytes": _bytes(found)}
            for kind in _LABELS
            if (found := [item for item in items if item.kind == kind])
        },
        "broken": sum(item.fault is not None for item in items),
        "bytes": _bytes(items),
    }


def faults(items: Iterable[Item]) -> Table:
    """A row for each broken file."""
    table = _table("broken", "file", "why")
    for item in items:
        table.add_row(str(item.path), item.fault)
    return table


def stale(records: Iterable[tuple[TuningRecord, str]]) -> Table:
    """A row for each record that was made with something else than there is today."""
    table = _table("stale; `autotune cache verify --retime` measures again", "record", "changed")
    for record, why in records:
        table.add_row(f"{record.title}, {record.device.name}", why)
    return table


def verdict_json(
    items: Sequence[Item], records: Iterable[tuple[TuningRecord, str]], retimed: Iterable[Retimed]
) -> dict[str, object]:
    """All that `verify` finds out."""
    return {
        "files": len(items),
        "broken": [
            {"file": str(item.path), "why": item.fault} for item in items if item.fault is not None
        ],
        "stale": [
            {"record": record.title, "device": record.device.name, "changed": why}
            for record, why in records
        ],
        "retimed": [_retimed_json(one) for one in retimed],
    }


def outcome(one: Retimed) -> str:
    """What became of a record that was to be measured again, in one line."""
    title = one.old.title
    if one.trouble:
        return f"{title}: stays as it is: {one.trouble}"
    fell = "".join(
        f"; {config} fell: {failure.stage}: {failure.reason}" for config, failure in one.failed
    )
    if one.new is None:
        return f"{title}: nothing of it works any more, set aside; `autotune tune {title}`{fell}"
    before, now = one.old.best.measurement.time_us, one.new.best.measurement.time_us
    count = len(one.new.entries)
    return f"{title}: {count} measured again, best {now:.2f} us (was {before:.2f} us){fell}"


def arrivals(found: Sequence[ImportResult]) -> str:
    """How many were new, better, equal and passed over, and of the last ones which and why."""
    counts = Counter(one.change for one in found)
    shown = ", ".join(f"{counts[what]} {what}" for what in ("new", "better", "equal"))
    over = [one for one in found if one.change == "passed over"]
    lines = [f"{len(found)} records and ranges: {shown}, {len(over)} passed over"]
    lines += [f"passed over: {one.subject} on {one.device}: {one.why}" for one in over]
    return "\n".join(lines)


def _retimed_json(one: Retimed) -> dict[str, object]:
    return {
        "record": one.old.title,
        "device": one.old.device.name,
        "time_us": one.new.best.measurement.time_us if one.new else None,
        "before_us": one.old.best.measurement.time_us,
        "entries": len(one.new.entries) if one.new else 0,
        "failed": [
            {"config": str(config), "stage": failure.stage, "reason": failure.reason}
            for config, failure in one.failed
        ],
        "trouble": one.trouble or None,
    }


def _recorded(items: Iterable[Item]) -> dict[tuple[str, str], list[Item]]:
    """Files of records and ranges by device and what they rest on."""
    found: dict[tuple[str, str], list[Item]] = defaultdict(list)
    for item in items:
        content = item.content
        if isinstance(content, Range):
            found[content.device.name, f"ranges, {content.evidence}"].append(item)
        elif isinstance(content, KernelRecord):
            found[content.device.name, "kernels of yours"].append(item)
        elif content is not None:
            found[content.device.name, content.evidence].append(item)
    return found


def _table(title: str, *columns: str) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, header_style="dim")
    for name in columns:
        right = name in ("files", "bytes")
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    return table


def _count(table: Table, label: str, items: Sequence[Item]) -> None:
    table.add_row(label, f"{len(items):,}", f"{_bytes(items):,}")


def _bytes(items: Iterable[Item]) -> int:
    return sum(item.size for item in items)
