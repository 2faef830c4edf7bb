"""Pictures for the student: the occupancy curves, the register cliff and the roofline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from autotune.device import find
from autotune.occupancy import BlockDemand, curve
from autotune.roofline import attainable
from pictures.picture import Picture, result
from pictures.style import BLUE, GREEN, INK, MUTED, RED, canvas, headline, panels, plain_ticks

# The kernel whose point each curve passes through: TILE_WIDTH 16, with 32 registers a thread.
TILE = BlockDemand(threads=256, registers=32, shared=2048)
LABELS = {
    "threads": "threads a block",
    "registers": "registers a thread",
    "shared": "KiB of shared memory a block",
}
CARDS = (("h100", "H100", BLUE), ("rtx 3090", "RTX 3090", GREEN))


def occupancy_values() -> Any:
    curves: dict[str, Any] = {}
    for resource in LABELS:
        for key, name, _ in CARDS:
            stairs = curve(find(key), TILE, resource)
            shares = [round(100 * share, 2) for share in stairs.shares]
            curves.setdefault(resource, {})[name] = [stairs.amounts, shares]
    return curves


def draw_occupancy(curves: Any) -> Figure:
    figure, drawings = panels(8.4, 3.1, 1, 3)
    for axes, (resource, label) in zip(drawings, LABELS.items(), strict=True):
        scale = 1024 if resource == "shared" else 1
        for _, name, colour in CARDS:
            amounts, shares = curves[resource][name]
            _stairs(axes, [amount / scale for amount in amounts], shares, colour, name)
        axes.axvline(getattr(TILE, resource) / scale, color=RED, linewidth=1, linestyle="--")
        axes.set_xlabel(label)
        axes.set_ylim(0, 105)
    drawings[0].set_ylabel("occupancy, %")
    headline(figure, "The tiled kernel with TILE_WIDTH 16 (dashed), one resource varied")
    drawings[0].legend(loc="lower right", fontsize=9)
    return figure


def _stairs(
    axes: Axes, amounts: Sequence[float], values: Sequence[float], colour: str, label: str
) -> None:
    """Draws an occupancy's `Curve`."""
    axes.step(amounts, values, where="pre", color=colour, label=label)


def cliff_values() -> Any:
    device, registers = find("textbook-d"), range(4, 33)
    threads: dict[str, list[int]] = {}
    for size in (128, 256, 512):
        stairs = curve(device, BlockDemand(size), "registers")
        blocks = dict(zip(stairs.amounts, stairs.resident, strict=True))
        threads[str(size)] = [size * blocks[count].blocks_per_sm for count in registers]
    return {"registers": [*registers], "threads": threads}


def draw_cliff(values: Any) -> Figure:
    figure, axes = canvas(8.4, 3.1)
    colours = dict(zip(values["threads"], (MUTED, GREEN, BLUE), strict=True))
    for size, threads in values["threads"].items():
        _stairs(axes, values["registers"], threads, colours[size], f"blocks of {size} threads")
    axes.annotate("10 registers:\n1,536 threads", (10, 1536), (12.2, 1400), size=9)
    axes.annotate("11 registers:\n1,024 threads", (11, 1024), (6.3, 760), size=9)
    axes.plot([10, 11], [1536, 1024], "o", color=RED, markersize=5)
    plain_ticks(axes, [0, 256, 512, 768, 1024, 1280, 1536], "y")
    axes.set_ylim(0, 1650)
    axes.set_xlabel("registers a thread")
    axes.set_ylabel("resident threads an SM")
    headline(figure, "Device D of the textbook: one register more costs a whole block")
    axes.legend(fontsize=9)
    return figure


RUNGS = {
    "naive, uncoalesced": ("naive, uncoalesced", (8, -6)),
    "naive, coalesced": ("naive, coalesced", (-20, 8)),
    "tiled, TILE_WIDTH 8": ("tiled 8", (4, -13)),
    "tiled, TILE_WIDTH 16": ("tiled 16", (0, -14)),
    "tiled, TILE_WIDTH 32": ("tiled 32", (8, -4)),
    "simt, the best": ("simt", (8, -10)),
    "tf32, wgmma": ("wgmma, tf32", (-74, -2)),
    "bf16, mma": ("mma, bf16", (6, -15)),
    "bf16, wgmma": ("wgmma, bf16", (-76, -2)),
}


def roofline_values() -> Any:
    device = find("h100")
    rungs = {rung["name"]: rung for rung in result("h100/ladder-4096.json")["rungs"]}
    intensities = [round(float(x), 4) for x in np.geomspace(0.125, 1024, 120)]
    roofs = {
        compute: [attainable(device, x, compute) / 1e12 for x in intensities]
        for compute in ("f32", "tf32", "bf16")
    }
    points = [
        {"name": name, "x": rungs[name]["flop_per_byte"], "y": rungs[name]["gflops"] / 1000}
        for name in RUNGS
    ]
    return {"x": intensities, "roofs": roofs, "points": points}


def draw_roofline(values: Any) -> Figure:
    figure, axes = canvas(8.4, 4.8)
    for compute, colour in (("bf16", GREEN), ("tf32", MUTED), ("f32", BLUE)):
        roof = values["roofs"][compute]
        axes.plot(values["x"], roof, color=colour, linewidth=1.6)
        axes.text(1000, roof[-1] * 1.1, f"peak {compute}, {roof[-1]:,.0f}", ha="right", size=9)
    axes.text(6.5, 31, "3,350 GB/s from memory", rotation=34, size=9, color=INK)
    for point in values["points"]:
        _mark(axes, point)
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    plain_ticks(axes, [0.25, 1, 2, 4, 8, 32, 128, 512])
    plain_ticks(axes, [0.5, 1, 5, 10, 50, 100, 500, 1000], "y")
    axes.set_ylim(0.3, 2000)
    axes.set_xlabel("FLOP for each byte that a block loads")
    axes.set_ylabel("TFLOP/s")
    headline(figure, "The ladder at 4096 cubed under the roofline of an H100")
    return figure


def _mark(axes: Axes, point: Any) -> None:
    label, offset = RUNGS[point["name"]]
    axes.plot(point["x"], point["y"], "o", color=RED, markersize=5, zorder=3)
    axes.annotate(
        label, (point["x"], point["y"]), offset, textcoords="offset points", size=9, zorder=4
    )


TEACHING = (
    Picture(
        "occupancy",
        "Occupancy of an H100 and an RTX 3090 against threads, registers and shared memory",
        occupancy_values,
        draw_occupancy,
    ),
    Picture(
        "register-cliff",
        "Resident threads of the textbook's device D against registers a thread",
        cliff_values,
        draw_cliff,
    ),
    Picture(
        "roofline",
        "The rungs of the ladder under the roofline of an H100",
        roofline_values,
        draw_roofline,
    ),
)
