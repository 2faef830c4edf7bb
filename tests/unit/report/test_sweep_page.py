"""The curves of a block, as figures, as a page and as SVG."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.chromium import NAMES, opened

from autotune.device import SMS, SmLimits, find
from autotune.errors import AutotuneError
from autotune.occupancy import BlockDemand
from autotune.report.figures.curves import combined_figure, curve_figures
from autotune.report.page import write
from autotune.report.page.svg import write_svgs
from autotune.report.sweep import swept
from autotune.report.sweep_page import sweep_page

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


def test_page_draws_sorts_and_exports(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    sweep = swept(DEVICES, BlockDemand(1), range(64, 1025, 64), [40], [16384])
    write(path, sweep_page(DEVICES, sweep.first, sweep))
    with opened(path, width=400) as result:
        result.draw_everything()
        page = result.page
        page.get_by_role("button", name="occupancy").click()
        page.get_by_role("button", name="occupancy").click()
        cells = page.locator("#table tbody tr").first.locator("td").all_text_contents()
        with page.expect_download() as download:
            page.get_by_role("button", name="Save as CSV").click()
        saved = Path(download.value.path()).read_text("utf-8").splitlines()
        drawn = page.locator(".plot .main-svg").count()

    assert result.faults == []
    assert drawn >= 3
    highest = max(row.occupancy for rows in sweep.rows.values() for row in rows)
    assert cells[5] == f"{highest:.1%}"
    assert (len(saved), saved[0][:14]) == (1 + 2 * 16, "device,threads")


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
