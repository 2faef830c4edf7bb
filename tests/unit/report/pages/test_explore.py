"""The occupancy explorer: what its sliders show is exactly what Python computes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from support.chromium import OpenedPage, opened

from autotune import roofline
from autotune.device import SMS, Device, SmLimits, catalogue, find
from autotune.occupancy import BlockDemand
from autotune.problem.precision import PRECISIONS
from autotune.report.pages.explore import SIDES, explorer
from autotune.report.pages.page import percent, write

SETTINGS = 1000
ODD = replace(find("h100"), name='</script><b>"O\'Neil" & \u03bc', sms=131)
DEVICES: dict[str, SmLimits] = {
    ODD.name: ODD,
    **catalogue(),
    **{sm.name: sm for sm in SMS.values()},
}

# Moves each control as a user would, and reads what the page shows.
MOVE = """settings => settings.map(setting => {
  for (const id of ["device", "cluster", "carve-out", "compute", "rows", "columns"]) {
    const select = document.getElementById(id);
    select.value = setting[id];
    select.dispatchEvent(new Event("change"));
  }
  for (const name of ["threads", "registers", "shared", "barriers"]) {
    const slider = document.getElementById(name);
    slider.value = setting[name];
    slider.dispatchEvent(new Event("input"));
    if (Number(slider.value) === setting[name]) continue;
    const number = document.getElementById(`${name}-number`);
    number.value = setting[name];
    number.dispatchEvent(new Event("change"));
  }
  const text = id => document.getElementById(id).textContent;
  const value = id => document.getElementById(id).dataset.value;
  return {
    ...Object.fromEntries(["blocks", "warps", "occupancy", "limiters", "clusters", "idle"]
      .map(id => [id, text(id)])),
    limits: [...document.querySelectorAll("#limits tr")].map(row => row.cells[1].textContent),
    intensity: Number(value("intensity")),
    attainable: value("attainable") === "" ? null : Number(value("attainable")),
  };
})"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedPage]:
    path = tmp_path_factory.mktemp("explorer") / "explore.html"
    write(path, explorer(ODD))
    with opened(path) as result:
        yield result


def drawn_setting(draw: random.Random) -> dict[str, Any]:
    key = draw.choice([*DEVICES])
    device = DEVICES[key]
    largest = device.shared_per_block_optin
    return {
        "device": key,
        "threads": draw.choice((32 * draw.randint(1, 32), draw.randint(1, 1024))),
        "registers": draw.choice((8 * draw.randint(0, 31), draw.randint(0, 255))),
        "shared": draw.choice((128 * draw.randint(0, largest // 128), draw.randint(0, largest))),
        "barriers": draw.choice((1, draw.randint(0, 16))),
        "cluster": str(draw.choice((1, 1, 2, 4, 8)) if isinstance(device, Device) else 1),
        "carve-out": draw.choice(("", "", str(draw.randint(0, 100)))),
        "compute": draw.choice([*PRECISIONS]),
        "rows": str(draw.choice(SIDES)),
        "columns": str(draw.choice(SIDES)),
    }


def expected(setting: Mapping[str, Any]) -> dict[str, Any]:
    """The figures that the page has to show, from `occupancy` and `roofline`."""
    device, compute = DEVICES[setting["device"]], setting["compute"]
    carve_out = int(setting["carve-out"]) if setting["carve-out"] else None
    demand = BlockDemand(
        threads=setting["threads"],
        registers=setting["registers"],
        shared=setting["shared"],
        barriers=setting["barriers"],
        carve_out=carve_out,
        cluster=int(setting["cluster"]),
    )
    resident = demand.on(device)
    flop_per_byte = roofline.intensity(
        int(setting["rows"]),
        int(setting["columns"]),
        element_bytes=PRECISIONS[compute].operand.bytes,
    )
    card = device if isinstance(device, Device) else None
    predicted = ", expected" if card and not card.knows_clusters else ""
    clusters = resident.clusters
    return {
        "blocks": str(resident.blocks_per_sm),
        "warps": f"{resident.warps_per_sm} of {device.threads_per_sm // 32}",
        "occupancy": percent(resident.occupancy),
        "limiters": ("" if resident.blocks_per_sm else "does not fit: ") + resident.limiter,
        "clusters": "\u2013" if clusters is None else f"{clusters}{predicted}",
        "idle": "\u2013" if clusters is None else str(resident.idle_sms),
        "limits": [
            shown_limit(resident.limits.get(name), device.blocks_per_sm)
            for name in ("warps", "blocks", "registers", "shared memory", "barriers")
        ],
        "intensity": flop_per_byte,
        "attainable": card and roofline.attainable(card, flop_per_byte, compute),
    }


def shown_limit(limit: int | None, slots: int) -> str:
    if limit is None:
        return "no limit"
    return str(limit) if limit <= slots else f"more than {slots}"


def test_sliders_show_what_python_computes(browser: OpenedPage) -> None:
    draw = random.Random(0)
    settings = [drawn_setting(draw) for _ in range(SETTINGS)]
    shown = browser.page.evaluate(MOVE, settings)

    differing = [
        (setting, each, exact)
        for setting, each in zip(settings, shown, strict=True)
        if each != (exact := expected(setting))
    ]
    assert differing[:2] == []
    assert len({each["limiters"] for each in shown}) > 10
    assert browser.faults == []


def test_every_device_is_offered(browser: OpenedPage) -> None:
    options = browser.page.locator("#device option").evaluate_all("all => all.map(o => o.value)")

    assert set(options) == set(DEVICES)


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1600, "light")])
def test_page_fits_the_window(browser: OpenedPage, width: int, scheme: Any) -> None:
    browser.page.set_viewport_size({"width": width, "height": 900})
    browser.page.emulate_media(color_scheme=scheme)
    browser.page.reload()
    browser.page.locator("#roof .main-svg").first.wait_for(state="attached")

    assert browser.page.locator(".plot .main-svg").count() >= 4
    assert (browser.faults, browser.overflow) == ([], 0)


def test_command_repeats_the_setting(browser: OpenedPage) -> None:
    setting = drawn_setting(random.Random(1)) | {
        **{"device": "h100-sxm", "threads": 96, "registers": 40, "shared": 1000},
        **{"barriers": 2, "cluster": "4", "carve-out": "25"},
    }
    browser.page.evaluate(MOVE, [setting])

    assert browser.page.locator("#command").text_content() == (
        "autotune occupancy h100-sxm --threads 96 --registers 40 --shared 1000 --barriers 2 "
        "--carve-out 25 --cluster 4"
    )


@pytest.mark.parametrize(
    ("number", "value"), [("5000", "1024"), ("0", "1"), ("", "1"), ("96.4", "96")]
)
def test_impossible_numbers_are_clamped(browser: OpenedPage, number: str, value: str) -> None:
    field = browser.page.locator("#threads-number")
    field.fill(number)
    field.dispatch_event("change")

    assert field.input_value() == value


def test_smaller_device_takes_less_shared_memory(browser: OpenedPage) -> None:
    setting = drawn_setting(random.Random(2)) | {"device": "h100-sxm", "shared": 200_000}
    browser.page.evaluate(MOVE, [setting])
    browser.page.select_option("#device", "gtx-980")

    assert browser.page.locator("#shared-number").input_value() == "49152"


def test_lone_sm_has_neither_clusters_nor_roofline(browser: OpenedPage) -> None:
    browser.page.select_option("#device", "sm_90")

    assert browser.page.locator("#cluster").is_disabled()
    assert browser.page.locator("#attainable").text_content() == "\u2013"


def test_own_device_comes_first(browser: OpenedPage) -> None:
    browser.page.reload()

    assert browser.page.locator("#device").input_value() == ODD.name
    assert browser.page.locator("b").count() == 0
