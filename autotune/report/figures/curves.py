"""The classic curves of the occupancy calculator, for a block on several devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from autotune.device import SmLimits
from autotune.occupancy.sweeps import LARGEST_REGISTERS, BlockDemand, block_sizes
from autotune.report.figures.base import COLOURS, Figure, axis, figure, text
from autotune.report.figures.residency import TITLES

KIB = 1024
SHARED_STEP = 512
"""Bytes between two points of the curve of shared memory."""


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
        line = _line(label, device, demand, resource, _values(device, resource))
        traces.append(line | {"line": _shape(colour, resource)})
        mark = _line(label, device, demand, resource, [getattr(demand, resource)])
        marker = {"color": colour, "size": 11, "symbol": "diamond"}
        traces.append(mark | {"mode": "markers", "marker": marker, "showlegend": False})
    return traces


def _line(
    label: str, device: SmLimits, demand: BlockDemand, resource: str, values: Sequence[int]
) -> dict[str, Any]:
    resident = [replace(demand, **{resource: value}).on(device) for value in values]
    unit = KIB if resource == "shared" else 1
    return {
        "type": "scatter",
        "mode": "lines",
        "name": text(label),
        "x": [value / unit for value in values],
        "y": [each.warps_per_sm for each in resident],
        "text": [
            f"{each.blocks_per_sm} blocks, {each.occupancy:.0%}, limited by {text(each.limiter)}"
            for each in resident
        ],
        "hovertemplate": "%{x}: %{y} warps, %{text}",
    }


def _shape(colour: str, resource: str) -> dict[str, Any]:
    return {"color": colour, "shape": "linear" if resource == "threads" else "vh"}


def _values(device: SmLimits, resource: str) -> Sequence[int]:
    """The amounts of a resource that a curve goes through."""
    if resource == "threads":
        return block_sizes(device)
    if resource == "registers":
        return range(1, LARGEST_REGISTERS + 1)
    return range(0, device.shared_per_block_optin + 1, SHARED_STEP)


def _colours(devices: Mapping[str, SmLimits]) -> list[str]:
    return [COLOURS[place % len(COLOURS)] for place in range(len(devices))]
