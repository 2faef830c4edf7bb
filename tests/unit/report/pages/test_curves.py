"""The curves of a block, as figures and as a page."""

from __future__ import annotations

from pathlib import Path

from support.chromium import opened

from autotune.device import SMS, SmLimits, find
from autotune.occupancy import BlockDemand
from autotune.report.occupancy import swept
from autotune.report.pages.occupancy import curve_figures, sweep_page
from autotune.report.pages.page import write

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


def test_page_draws_sorts_and_exports(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    sweep = swept(DEVICES, BlockDemand(1), range(64, 1025, 64), [40], [16384])
    write(path, sweep_page(DEVICES, sweep))
    with opened(path, width=400) as result:
        result.draw_everything()
        page = result.page
        page.get_by_role("button", name="occupancy").click()
        page.get_by_role("button", name="occupancy").click()
        cells = page.locator("#table-kernels tbody tr").first.locator("td").all_text_contents()
        with page.expect_download() as download:
            page.get_by_role("button", name="Save as CSV").click()
        saved = Path(download.value.path()).read_text("utf-8").splitlines()
        drawn = page.locator(".plot .main-svg").count()

    assert result.faults == []
    assert drawn >= 3
    highest = max(row.occupancy for rows in sweep.rows.values() for row in rows)
    assert cells[5] == f"{highest:.1%}"
    assert (len(saved), saved[0][:14]) == (1 + 2 * 16, "device,threads")
