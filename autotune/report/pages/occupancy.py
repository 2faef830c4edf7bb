"""Occupancy over the resources of a block: around a winner, and of swept kernels on devices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.device import SmLimits
from autotune.errors import DeviceError
from autotune.families.plan import Resources
from autotune.occupancy import RESOURCES, STAIRS, BlockDemand, Curve, curve
from autotune.report.occupancy import Sweep
from autotune.report.pages.figures import COLOURS, WINNER, Figure, axis, figure, scatter, text
from autotune.report.pages.page import Section, escape, paragraph, percent, pictures_page, plot
from autotune.report.trials import Subject

KIB = 1024


@dataclass(frozen=True)
class OccupancyCurve:
    """The occupancy over one resource of a block, with the others those of the winner: the
    staircase that `occupancy.Curve` describes.

    Attributes:
        resource: `threads`, `registers` or `shared`, as in `Resources`.
        values: amounts of the resource: threads a block, registers a thread, bytes a block.
        occupancy: occupancy at each value, a share (0..1).
        blocks: resident blocks an SM at each value.
        limiters: limiters at each value.
        winner: the winner's value.
    """

    resource: str
    values: tuple[int, ...]
    occupancy: tuple[float, ...]
    blocks: tuple[int, ...]
    limiters: tuple[str, ...]
    winner: int


@dataclass(frozen=True)
class Residency:
    """The occupancy around a winner.

    Attributes:
        resources: resources of the winner's block.
        occupancy: the winner's, a share (0..1).
        curves: over threads, registers and shared memory.
    """

    resources: Resources
    occupancy: float
    curves: tuple[OccupancyCurve, ...]


def residency(subject: Subject) -> Residency | None:
    """The occupancy around the winner; None if the rules of its device are unknown, or the
    resources of a library's kernel."""
    device, best = subject.device, subject.record.best
    block = best.resources
    if best.library:
        return None
    demand = BlockDemand(block.threads, block.registers, block.shared, block.barriers)
    try:
        stairs = {name: curve(device, demand, name) for name in RESOURCES}
    except DeviceError:
        return None
    curves = (
        OccupancyCurve(
            name,
            each.amounts,
            each.shares,
            tuple(row.blocks_per_sm for row in each.resident),
            tuple(row.limiter for row in each.resident),
            getattr(demand, name),
        )
        for name, each in stairs.items()
    )
    return Residency(block, best.occupancy, tuple(curves))


TITLES = {
    "threads": "threads a block",
    "registers": "registers a thread",
    "shared": "shared memory a block in KiB",
}


def curve_figure(curve: OccupancyCurve) -> Figure:
    """The occupancy over one resource, with the winner's mark."""
    unit = KIB if curve.resource == "shared" else 1
    index = curve.values.index(curve.winner)
    labels = [
        f"{blocks} blocks an SM, limited by {text(limiter)}"
        for blocks, limiter in zip(curve.blocks, curve.limiters, strict=True)
    ]
    line = scatter(
        "occupancy",
        (value / unit for value in curve.values),
        curve.occupancy,
        "%{x}: %{y:.1%}, %{text}<extra></extra>",
        mode="lines",
        showlegend=False,
        text=labels,
        line={"color": COLOURS[0], "shape": STAIRS},
    )
    mark = scatter(
        "winner",
        [curve.winner / unit],
        [curve.occupancy[index]],
        "winner, %{x}: %{y:.1%}, %{text}<extra></extra>",
        showlegend=False,
        text=[labels[index]],
        marker={"symbol": "star", "size": 14, "color": WINNER},
    )
    y = axis("occupancy") | {"tickformat": ".0%", "rangemode": "tozero"}
    return figure([line, mark], axis(TITLES[curve.resource]), y)


def residency_section(residency: Residency, limiter: str) -> Section:
    """The curves of a winner's occupancy, which `limiter` limits."""
    block = residency.resources
    sentence = (
        f"A block of the winner has {block.threads} threads of {block.registers} registers and "
        f"{block.shared:,} bytes of shared memory: {percent(residency.occupancy)} of the warps "
        f"that an SM can hold, limited by {limiter}. Each curve varies one of the three."
    )
    curves = "".join(
        plot(
            f"occupancy-{curve.resource}",
            f"Occupancy over {curve.resource}; the winner has {curve.winner}.",
            "",
            "short",
        )
        for curve in residency.curves
    )
    content = paragraph(sentence) + f'<div class="columns">{curves}</div>'
    return Section("occupancy", "Occupancy", content)


def curve_figures(devices: Mapping[str, SmLimits], demand: BlockDemand) -> dict[str, Figure]:
    """Warps of an SM over threads, registers and shared memory, by the name of the resource.

    Each device, by its label, has a line; the other resources are those of `demand`, whose own
    place is marked.
    """
    warps = axis("warps an SM") | {"rangemode": "tozero"}
    return {
        resource: figure(_traces(devices, demand, resource), axis(title), warps)
        for resource, title in TITLES.items()
    }


def _traces(
    devices: Mapping[str, SmLimits], demand: BlockDemand, resource: str
) -> list[dict[str, Any]]:
    traces = []
    for number, (label, device) in enumerate(devices.items()):
        colour = COLOURS[number % len(COLOURS)]
        line = _line(label, curve(device, demand, resource), resource)
        traces.append(line | {"line": {"color": colour, "shape": STAIRS}})
        own = Curve((getattr(demand, resource),), (demand.on(device),))
        marker = {"color": colour, "size": 11, "symbol": "diamond"}
        mark = {"mode": "markers", "marker": marker, "showlegend": False}
        traces.append(_line(label, own, resource) | mark)
    return traces


def _line(label: str, stairs: Curve, resource: str) -> dict[str, Any]:
    unit = KIB if resource == "shared" else 1
    return scatter(
        label,
        (amount / unit for amount in stairs.amounts),
        (each.warps_per_sm for each in stairs.resident),
        "%{x}: %{y} warps, %{text}",
        mode="lines",
        text=[
            f"{each.blocks_per_sm} blocks, {each.occupancy:.0%}, limited by {text(each.limiter)}"
            for each in stairs.resident
        ],
    )


_COLUMNS = {
    "threads": ("threads", "number"),
    "registers": ("registers", "number"),
    "shared": ("shared bytes", "number"),
    "blocks_per_sm": ("blocks an SM", "number"),
    "occupancy": ("occupancy", "percent"),
    "limiter": ("limiter", "text"),
}
"""Fields of `OccupancyRow`: heading and kind of the column."""


def sweep_page(devices: Mapping[str, SmLimits], sweep: Sweep) -> str:
    """The page of a sweep: the curves through its first kernel, and all kernels as a table.

    Args:
        devices: the devices by label.
        sweep: the kernels of the table.

    Raises:
        MissingError: if plotly is not installed or is too old.
    """
    demand = sweep.first
    names = {"threads": "threads", "registers": "registers", "shared": "shared memory"}
    plots = "".join(
        plot(
            resource,
            f"Resident warps of an SM by {name} of a block",
            f"Warps by {escape(name)}; the other resources are as in the marked block.",
            "short",
        )
        for resource, name in names.items()
    )
    block = (
        f"{demand.threads} threads, {demand.registers} registers and {demand.shared:,} bytes of "
        "shared memory a block"
    )
    return pictures_page(
        "Occupancy",
        [
            Section("curves", "Curves", f'<div class="columns thirds">{plots}</div>'),
            Section("kernels", "Kernels", '<div id="table-kernels"></div>'),
        ],
        head=f"<p>{escape(', '.join(devices))}: {block}.</p>",
        figures=curve_figures(devices, demand),
        tables={"kernels": _kernels(sweep)},
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
