"""Curves of occupancy: what is drawn between two points is what the calculator says there."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import draw
from support.chromium import opened
from support.sample_records import H100
from support.sample_subject import by_hand

from autotune.device import SmLimits, find
from autotune.occupancy import RESOURCES, BlockDemand, curve, slot_threads
from autotune.report.pages.explore import START, explorer
from autotune.report.pages.occupancy import curve_figure, residency
from autotune.report.pages.page import write

DEMAND = BlockDemand(256, 40, 16384)
PLACES = {"threads": range(1, 513), "registers": range(1, 256), "shared": range(0, 16 * 1024, 96)}


def drawn(line: Mapping[str, Any], place: float) -> Any:
    """The height of a line of plotly above a place."""
    xs, ys, shape = line["x"], line["y"], line["line"]["shape"]
    right = bisect_left(xs, place)
    assert shape in ("vh", "hv"), f"a {shape} line is no staircase"
    return ys[right if shape == "vh" or xs[right] == place else right - 1]


def exact(device: SmLimits, demand: BlockDemand, resource: str) -> list[int]:
    """The resident warps at each place."""
    return [
        replace(demand, **{resource: place}).on(device).warps_per_sm for place in PLACES[resource]
    ]


def heights(line: Mapping[str, Any], resource: str) -> list[Any]:
    unit = 1024 if resource == "shared" else 1
    return [drawn(line, place / unit) for place in PLACES[resource]]


def test_33_registers_cost_an_h100_a_quarter() -> None:
    stairs = curve(H100, BlockDemand(256), "registers")
    shares = dict(zip(stairs.amounts, stairs.shares, strict=True))
    assert [shares[count] for count in (32, 33, 40, 41)] == [1.0, 0.75, 0.75, 0.625]


def test_report_draws_what_the_calculator_says() -> None:
    data = residency(by_hand())
    assert data is not None
    block = data.resources
    demand = BlockDemand(block.threads, block.registers, block.shared, block.barriers)
    for each in data.curves:
        line = curve_figure(each)["data"][0]
        warps = [64 * share for share in heights(line, each.resource)]
        assert warps == exact(H100, demand, each.resource)


def test_students_see_what_the_calculator_says() -> None:
    figure = draw.draw_occupancy(draw.occupancy_values())
    for axes, resource in zip(figure.axes, RESOURCES, strict=True):
        for line, device in zip(axes.get_lines(), (H100, find("rtx 3090")), strict=False):
            assert line.get_drawstyle() == "steps-pre"
            drawn_line = {"x": line.get_xdata(), "y": line.get_ydata(), "line": {"shape": "vh"}}
            warps = [round(share, 1) for share in heights(drawn_line, resource)]
            most = device.threads_per_sm // 32
            real = exact(device, draw.TILE, resource)
            assert warps == [round(100 * count / most, 1) for count in real]


# The corners of a curve of the explorer: amounts, and slots of the SM, such as warps, in use.
CORNERS = """([name, most, slots]) => {
  const chart = document.getElementById(`curve-${name}`), {area} = chart;
  return [...chart.querySelector("path").getAttribute("d").matchAll(/[ML]([\\d.]+) ([\\d.]+)/g)]
    .map(([, x, y]) => [Math.round((x - area.left) / area.width * most),
      Math.round((area.top + area.height - y) / area.height * slots)]);
}"""


def test_explorer_draws_what_the_calculator_says(tmp_path: Path) -> None:
    write(tmp_path / "page.html", explorer())
    with opened(tmp_path / "page.html") as shown:
        for card, resource in product(("h100-sxm", "textbook-d"), RESOURCES):
            device = find(card)
            most = {"threads": 1024, "registers": 255, "shared": device.shared_per_block_optin}
            slots = device.threads_per_sm // slot_threads(device)
            shown.page.select_option("#device", card)
            corners = shown.page.evaluate(CORNERS, [resource, most[resource], slots])
            assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(corners))
            xs, ys = zip(*corners[1::2], strict=True)
            for place in PLACES[resource]:
                share = replace(START, **{resource: place}).on(device).occupancy
                assert ys[bisect_left(xs, place)] == round(share * slots)


def test_amounts_between_two_points_change_nothing() -> None:
    device = H100
    for carve_out in (None, 30):
        demand = replace(DEMAND, carve_out=carve_out)
        stairs = curve(device, demand, "shared")
        _same_up_to_each(stairs.amounts, device, demand)


def _same_up_to_each(amounts: Sequence[int], device: SmLimits, demand: BlockDemand) -> None:
    for low, high in pairwise(amounts):
        first, last = (
            replace(demand, shared=size).on(device).blocks_per_sm for size in (low + 1, high)
        )
        assert first == last
