"""Occupancy over the resources of a block, around a winner."""

from __future__ import annotations

from dataclasses import dataclass

from autotune.errors import DeviceError
from autotune.families.plan import Resources
from autotune.occupancy import RESOURCES, STAIRS, BlockDemand, curve
from autotune.report.pages.figures import COLOURS, WINNER, Figure, axis, figure, scatter, text
from autotune.report.pages.page import Section, paragraph, percent, plot
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
    device, best = subject.record.device, subject.record.best
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
