"""A page with the curves of a block on several devices, and all kernels of a sweep as a table."""

from __future__ import annotations

from collections.abc import Mapping

from autotune.device import SmLimits
from autotune.occupancy import BlockDemand
from autotune.report.figures.curves import curve_figures
from autotune.report.page import Section, document, escape
from autotune.report.parts import plot
from autotune.report.sweep import Sweep

_SCRIPT = """page.draw(page.data("figures"));
page.table(document.getElementById("table"), page.data("kernels"));
"""


_COLUMNS = {
    "threads": ("threads", "number"),
    "registers": ("registers", "number"),
    "shared": ("shared bytes", "number"),
    "blocks_per_sm": ("blocks an SM", "number"),
    "occupancy": ("occupancy", "percent"),
    "limiter": ("limiter", "text"),
}
"""Fields of `OccupancyRow`: heading and kind of the column."""


def sweep_page(devices: Mapping[str, SmLimits], demand: BlockDemand, sweep: Sweep) -> str:
    """The text of the page.

    Args:
        devices: the devices by label.
        demand: the block that the curves go through.
        sweep: the kernels of the table.

    Raises:
        MissingError: if plotly is not installed or is too old.
    """
    names = {"threads": "threads", "registers": "registers", "shared": "shared memory"}
    plots = "".join(
        plot(
            resource,
            f"Resident warps of an SM by {name} of a block",
            f"Warps by {escape(name)}; the other resources are those of the marked block.",
            "short",
        )
        for resource, name in names.items()
    )
    block = (
        f"{demand.threads} threads, {demand.registers} registers and {demand.shared:,} bytes of "
        "shared memory a block"
    )
    return document(
        "Occupancy",
        [
            Section("curves", "Curves", f'<div class="columns thirds">{plots}</div>'),
            Section("kernels", "Kernels", '<div id="table"></div>'),
        ],
        head=f"<p>{escape(', '.join(devices))}: {block}.</p>",
        data={"figures": curve_figures(devices, demand), "kernels": _kernels(sweep)},
        script=_SCRIPT,
        footer="<p>Made by <code>autotune occupancy</code>.</p>",
    )


def _kernels(sweep: Sweep) -> dict[str, object]:
    """The table of all kernels, as `page.table` takes it."""
    columns = [("device", "text"), *_COLUMNS.values()]
    return {
        "columns": [{"name": heading, "kind": kind} for heading, kind in columns],
        "rows": [
            [label, *(getattr(row, name) for name in _COLUMNS)]
            for label, rows in sweep.rows.items()
            for row in rows
        ],
        "caption": "Every kernel of the sweep",
        "file": "occupancy.csv",
    }
