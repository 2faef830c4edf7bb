"""Table of a device's identity and limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autotune.device import CLUSTER_SIZES, Device
from autotune.problem.precision import PRECISIONS

if TYPE_CHECKING:
    from rich.table import Table


def render(device: Device) -> Table:
    """A row for each property; sizes in bytes."""
    from rich.table import Table

    table = Table(box=None, show_header=False)
    table.add_column(style="dim")
    table.add_column(justify="right")
    for label, value in _rows(device):
        table.add_row(label, value)
    return table


def _rows(device: Device) -> list[tuple[str, str]]:
    memory_clock = f"{device.memory_clock / 1e6:,.0f} MHz" if device.memory_clock else "unknown"
    return [
        ("name", device.name),
        ("compute capability", "{}.{}".format(*device.compute_capability)),
        ("SMs", str(device.sms)),
        *_clusters(device),
        ("warp size", str(device.warp_size)),
        ("registers per block", f"{device.registers_per_block:,}"),
        ("registers per SM", f"{device.registers_per_sm:,}"),
        ("shared memory per block", f"{device.shared_per_block:,} B"),
        ("  with the opt-in", f"{device.shared_per_block_optin:,} B"),
        ("  reserved", f"{device.reserved_shared_per_block:,} B"),
        ("shared memory per SM", f"{device.shared_per_sm:,} B"),
        ("threads per block", f"{device.threads_per_block:,}"),
        ("threads per SM", f"{device.threads_per_sm:,}"),
        ("blocks per SM", str(device.blocks_per_sm)),
        ("L2 cache", f"{device.l2_bytes:,} B"),
        ("memory", f"{device.memory_bytes:,} B"),
        ("SM clock", f"{device.sm_clock / 1e6:,.0f} MHz"),
        ("memory clock", memory_clock),
        ("memory bandwidth", f"{device.memory_bandwidth / 1e9:,.1f} GB/s"),
        ("peak fp32", f"{device.peak_fp32 / 1e12:,.2f} TFLOP/s"),
        *(
            (f"peak {row.label}", _tensor_peak(device, row.name))
            for row in PRECISIONS.values()
            if row.on_tensor_cores and row.products == 1
        ),
    ]


def _clusters(device: Device) -> list[tuple[str, str]]:
    if not device.has_clusters:
        return []
    label = f"resident clusters of {', '.join(map(str, CLUSTER_SIZES))}"
    counts = ", ".join(str(device.resident_clusters(size)) for size in CLUSTER_SIZES)
    return [(label, counts if device.clusters else f"{counts} predicted")]


def _tensor_peak(device: Device, compute: str) -> str:
    if device.tensor_rate(compute) is None:
        return "no tensor cores for it"
    return f"{device.peak(compute) / 1e12:,.2f} TFLOP/s"
