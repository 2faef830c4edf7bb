"""The classic curves of the occupancy calculator, for a block on several devices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.device import SmLimits
from autotune.occupancy import STAIRS, BlockDemand, Curve, curve
from autotune.report.figures.base import COLOURS, Figure, axis, figure, text
from autotune.report.figures.residency import TITLES

KIB = 1024


def curve_figures(devices: Mapping[str, SmLimits], demand: BlockDemand) -> dict[str, Figure]:
    """Warps of an SM over threads, registers and shared memory, by the name of the resource.

    Each device, by its label, has a line; the other resources are those of `demand`, whose own
    place is marked.
    """
    return {
        resource: figure(_traces(devices, demand, resource), axis(title), _warps())
        for resource, title in TITLES.items()
    }


def combined_figure(figures: Mapping[str, Figure]) -> Figure:
    """The curves side by side in one figure."""
    columns = [(start / 100, start / 100 + 0.27) for start in (0, 36, 72)]
    data: list[dict[str, Any]] = []
    layout: dict[str, Any] = {}
    for place, (each, domain) in enumerate(zip(figures.values(), columns, strict=True), 1):
        suffix = "" if place == 1 else str(place)
        layout = {**each["layout"], **layout}
        layout[f"xaxis{suffix}"] = {**each["layout"]["xaxis"], "domain": domain}
        layout[f"yaxis{suffix}"] = {**each["layout"]["yaxis"], "anchor": f"x{suffix}"}
        data += [
            {**trace, "xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
            | ({} if place == 1 else {"showlegend": False})
            for trace in each["data"]
        ]
    return {"data": data, "layout": {**layout, "height": 340}}


def _warps() -> dict[str, Any]:
    return {**axis("warps an SM"), "rangemode": "tozero"}


def _traces(
    devices: Mapping[str, SmLimits], demand: BlockDemand, resource: str
) -> list[dict[str, Any]]:
    traces = []
    for (label, device), colour in zip(devices.items(), _colours(devices), strict=True):
        line = _line(label, curve(device, demand, resource), resource)
        traces.append(line | {"line": {"color": colour, "shape": STAIRS}})
        own = Curve((getattr(demand, resource),), (demand.on(device),))
        marker = {"color": colour, "size": 11, "symbol": "diamond"}
        mark = {"mode": "markers", "marker": marker, "showlegend": False}
        traces.append(_line(label, own, resource) | mark)
    return traces


def _line(label: str, stairs: Curve, resource: str) -> dict[str, Any]:
    unit = KIB if resource == "shared" else 1
    return {
        "type": "scatter",
        "mode": "lines",
        "name": text(label),
        "x": [amount / unit for amount in stairs.amounts],
        "y": [each.warps_per_sm for each in stairs.resident],
        "text": [
            f"{each.blocks_per_sm} blocks, {each.occupancy:.0%}, limited by {text(each.limiter)}"
            for each in stairs.resident
        ],
        "hovertemplate": "%{x}: %{y} warps, %{text}",
    }


def _colours(devices: Mapping[str, SmLimits]) -> list[str]:
    return [COLOURS[place % len(COLOURS)] for place in range(len(devices))]
