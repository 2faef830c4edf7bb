"""Tables of a device's identity and limits, of an SM's limits, and of the catalogue."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.text import Text

from autotune.device import CLUSTER_SIZES, Device, SmLimits, catalogue, entries
from autotune.problem.precision import PRECISIONS
from autotune.report.tables import FittedTable

_LABELS = {
    "sms": "SMs",
    "l2_bytes": "L2 cache",
    "memory_bytes": "memory",
    "sm_clock": "SM clock",
    "memory_clock": "memory clock",
    "memory_bandwidth": "memory bandwidth",
    "clusters": "resident clusters",
}


def render(device: Device) -> RenderableType:
    """A row for each property; sizes in bytes. A device of the catalogue also has its sources."""
    table = _facts(_rows(device))
    sources = [Text(line, style="dim") for line in _sources(device)]
    return Group(table, *sources) if sources else table


def render_sm(sm: SmLimits) -> FittedTable:
    """A row for each limit of an SM; sizes in bytes."""
    return _facts([("SM", sm.name), *_limits(sm)])


def render_catalogue() -> FittedTable:
    """A row for each device of the catalogue, in the catalogue's order."""
    table = FittedTable()
    table.add("key", "sm", kind="text")
    table.add("SMs", "L2\nMiB", "memory\nGiB", "GB/s", "fp32\nTFLOP/s", "bf16\nTFLOP/s")
    for key, card in catalogue().items():
        tensor = card.tensor_rate("bf16") is not None
        table.add_row(
            key,
            card.arch.removeprefix("sm_") if card.granularity is None else "",
            str(card.sms),
            f"{card.l2_bytes / 2**20:.3g}",
            f"{card.memory_bytes / 2**30:.0f}",
            f"{card.memory_bandwidth / 1e9:,.0f}",
            f"{card.peak_fp32 / 1e12:.1f}",
            f"{card.peak('bf16') / 1e12:,.0f}" if tensor else "",
        )
    return table


def catalogue_json() -> dict[str, object]:
    """The catalogue: aliases, the device file and the source of each value, by key."""
    return {
        key: {
            "aliases": list(entry.aliases),
            "device": entry.device.to_json(),
            "sources": dict(entry.sources),
        }
        for key, entry in entries().items()
    }


def _facts(rows: Iterable[tuple[str, str]]) -> FittedTable:
    table = FittedTable(show_header=False)
    table.add("", kind="prose")
    table.add("", worth=math.inf)
    for label, value in rows:
        table.add_row(label, value)
    return table


def _sources(device: Device) -> list[str]:
    entry = next((entry for entry in entries().values() if entry.device == device), None)
    if entry is None:
        return []
    lines: dict[str, list[str]] = {}
    for name, source in entry.sources.items():
        lines.setdefault(source, []).append(_LABELS.get(name, name.replace("_", " ")))
    if "threads_per_sm" not in entry.sources:
        lines["CUDA C++ Programming Guide, Technical Specifications"] = ["limits of an SM"]
    return [f"{', '.join(labels)}: {source}" for source, labels in lines.items()]


def _rows(device: Device) -> list[tuple[str, str]]:
    memory_clock = f"{device.memory_clock / 1e6:,.0f} MHz" if device.memory_clock else "unknown"
    return [
        ("name", device.name),
        ("compute capability", "{}.{}".format(*device.compute_capability)),
        ("SMs", str(device.sms)),
        *_clusters(device),
        *_limits(device),
        ("L2 cache", f"{device.l2_bytes:,} B"),
        ("memory", f"{device.memory_bytes:,} B"),
        ("SM clock", f"{device.sm_clock / 1e6:,.0f} MHz"),
        ("memory clock", memory_clock),
        ("memory bandwidth", f"{device.memory_bandwidth / 1e9:,.1f} GB/s"),
        ("peak fp32", f"{device.peak_fp32 / 1e12:,.2f} TFLOP/s"),
        *(
            (
                f"peak {row.label}",
                f"{device.peak(row.name) / 1e12:,.2f} TFLOP/s"
                if device.tensor_rate(row.name) is not None
                else "no tensor cores for it",
            )
            for row in PRECISIONS.values()
            if row.on_tensor_cores and row.products == 1
        ),
    ]


def _limits(sm: SmLimits) -> list[tuple[str, str]]:
    return [
        ("warp size", str(sm.warp_size)),
        ("registers per block", f"{sm.registers_per_block:,}"),
        ("registers per SM", f"{sm.registers_per_sm:,}"),
        ("shared memory per block", f"{sm.shared_per_block:,} B"),
        ("  with the opt-in", f"{sm.shared_per_block_optin:,} B"),
        ("  reserved", f"{sm.reserved_shared_per_block:,} B"),
        ("shared memory per SM", f"{sm.shared_per_sm:,} B"),
        ("threads per block", f"{sm.threads_per_block:,}"),
        ("threads per SM", f"{sm.threads_per_sm:,}"),
        ("blocks per SM", str(sm.blocks_per_sm)),
    ]


def _clusters(device: Device) -> list[tuple[str, str]]:
    if not device.has_clusters:
        return []
    label = f"resident clusters of {', '.join(map(str, CLUSTER_SIZES))}"
    counts = ", ".join(str(device.resident_clusters(size)) for size in CLUSTER_SIZES)
    return [(label, counts if device.knows_clusters else f"{counts} expected, driver not asked")]
