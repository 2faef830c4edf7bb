"""The curves of a block, as figures and as SVG."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.chromium import NAMES

from autotune.device import SMS, SmLimits, find
from autotune.errors import AutotuneError
from autotune.occupancy.sweeps import BlockDemand
from autotune.report.pages.figures import write_svgs
from autotune.report.pages.occupancy import combined_figure, curve_figures

DEVICES: dict[str, SmLimits] = {"h100": find("h100"), "</script> & <b>": SMS[8, 6]}
DEMAND = BlockDemand(256, 40, 16384)


def test_curves_are_those_of_the_calculator() -> None:
    figures = curve_figures(DEVICES, DEMAND)
    threads, mark = figures["threads"]["data"][:2]
    shared = figures["shared"]["data"][2]

    assert threads["y"] == [
        BlockDemand(n, 40, 16384).on(DEVICES["h100"]).warps_per_sm for n in threads["x"]
    ]
    assert (mark["x"], mark["y"]) == ([256], [DEMAND.on(DEVICES["h100"]).warps_per_sm])
    assert shared["y"] == [
        BlockDemand(256, 40, int(kib * 1024)).on(SMS[8, 6]).warps_per_sm for kib in shared["x"]
    ]
    assert shared["x"][-1] == 99


def test_combined_figure_has_three_pairs_of_axes() -> None:
    combined = combined_figure(curve_figures(DEVICES, DEMAND))

    assert {trace["xaxis"] for trace in combined["data"]} == {"x", "x2", "x3"}
    assert {name for name in combined["layout"] if "axis" in name} == {
        *("xaxis", "yaxis", "xaxis2", "yaxis2", "xaxis3", "yaxis3")
    }


NO_SVG = find_spec("kaleido") is None or not any(map(shutil.which, NAMES))


@pytest.mark.skipif(NO_SVG, reason="no Kaleido or no Chromium")
def test_curves_are_written_as_svg(tmp_path: Path) -> None:
    (path,) = write_svgs({"curves": combined_figure(curve_figures(DEVICES, DEMAND))}, tmp_path)

    text = path.read_text("utf-8")
    assert text.startswith("<svg")
    assert "registers a thread" in text


@pytest.mark.skipif(NO_SVG, reason="no Kaleido or no Chromium")
def test_svg_that_cannot_be_written_is_an_error() -> None:
    with pytest.raises(AutotuneError, match=r"cannot write .*/proc"):
        write_svgs({"curves": combined_figure(curve_figures(DEVICES, DEMAND))}, Path("/proc"))
