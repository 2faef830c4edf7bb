"""The occupancy explorer: what it shows is exactly what Python computes."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import pytest
from support.chromium import OpenedPage, opened

from autotune import roofline
from autotune.device import SMS, Device, SmLimits, catalogue, find
from autotune.families.ladder import RUNGS
from autotune.families.shared.tiling import buffer_bytes
from autotune.families.textbook import shared_bytes
from autotune.model.cost import fitted
from autotune.occupancy import (
    LARGEST_REGISTERS,
    BlockDemand,
    allocated_registers,
    allocated_shared,
    sm_shared,
)
from autotune.problem.integers import ceil_div
from autotune.problem.precision import PRECISIONS
from autotune.report.pages import explore
from autotune.report.pages.explore import NUMBERS, explorer
from autotune.report.pages.page import percent, write

SETTINGS = 1000
ODD = replace(find("h100"), name='</script><b>"O\'Neil" & \u03bc', sms=131)
DEVICES: dict[str, SmLimits] = {
    ODD.name: ODD,
    **catalogue(),
    **{sm.name: sm for sm in SMS.values()},
}
LIMITS = ("warps", "blocks", "registers", "shared memory", "barriers")

# Goes to an address of the page, as a link or the history does.
GO = """hash => {
  const arrived = new Promise(done => addEventListener("popstate", done, {once: true}));
  const before = location.hash;
  location.hash = hash;
  if (location.hash === before) dispatchEvent(new Event("popstate"));
  return arrived;
}"""

# What the page computes from each setting, without drawing it.
COMPUTE = """settings => settings.map(setting => {
  const {blocks, warps, text, limits, limiters, clusters, idle} = model.evaluate(setting);
  const {resident, block, bytes, ...tile} = model.tile(setting);
  return {blocks, warps, text, limits, limiters, clusters, idle,
    allocation: model.allocation(setting), tile: {...tile, blocks: resident.blocks,
      occupancy: resident.text, limiters: resident.limiters}};
})"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenedPage]:
    path = tmp_path_factory.mktemp("explorer") / "explore.html"
    write(path, explorer(ODD))
    with opened(path) as result:
        yield result


@pytest.fixture
def shown(browser: OpenedPage) -> OpenedPage:
    """The page as it starts, with an H100."""
    go(browser, device="h100-sxm")
    return browser


def go(shown: OpenedPage, **words: object) -> None:
    """Opens an address of the page: the fields that differ from those it starts with."""
    shown.page.evaluate(GO, "#" + urlencode({"tab": "block", **words}))


def text(shown: OpenedPage, name: str) -> str:
    return str(shown.page.locator(f"#{name}").text_content())


def row(shown: OpenedPage, selector: str) -> list[str]:
    cells = shown.page.locator(f"{selector} td")
    return [str(cell) for cell in cells.evaluate_all("all => all.map(cell => cell.textContent)")]


def drawn_setting(draw: random.Random) -> dict[str, Any]:
    key = draw.choice([*DEVICES])
    device = DEVICES[key]
    largest = device.shared_per_block_optin
    numbers = {
        name: draw.choice((typical, draw.randint(*NUMBERS[name][:2])))
        for name, typical in {
            **{"tile_m": 8 * draw.randint(1, 16), "tile_n": 8 * draw.randint(1, 16)},
            **{"tile_k": draw.choice((1, 8, 16, 64)), "stages": draw.randint(1, 4)},
            **{"tile_threads": 32 * draw.randint(1, 32), "other": draw.randint(0, 64)},
        }.items()
    }
    return {
        "device": key,
        "threads": draw.choice((32 * draw.randint(1, 32), draw.randint(1, 1024))),
        "registers": draw.choice((8 * draw.randint(0, 31), draw.randint(0, 255))),
        "shared": draw.choice((128 * draw.randint(0, largest // 128), draw.randint(0, largest))),
        "barriers": draw.choice((1, draw.randint(0, 16))),
        "cluster": str(draw.choice((1, 1, 2, 4, 8)) if isinstance(device, Device) else 1),
        "carveOut": draw.choice(("", "", str(draw.randint(0, 100)))),
        "compute": draw.choice([*PRECISIONS]),
        **numbers,
    }


def demand_of(setting: Mapping[str, Any]) -> BlockDemand:
    carve_out = int(setting["carveOut"]) if setting["carveOut"] else None
    names = ("threads", "registers", "shared", "barriers")
    return BlockDemand(
        **{name: setting[name] for name in names},
        carve_out=carve_out,
        cluster=int(setting["cluster"]),
    )


def expected(setting: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a block from `autotune.occupancy`."""
    device, demand = DEVICES[setting["device"]], demand_of(setting)
    resident = demand.on(device)
    limits = {name: resident.limits.get(name) for name in LIMITS}
    most = device.blocks_per_sm + 1
    return {
        "blocks": resident.blocks_per_sm,
        "warps": resident.warps_per_sm,
        "text": percent(resident.occupancy),
        # The page's tables end at one more than the block slots.
        "limits": {
            name: blocks
            if blocks is None or name not in ("registers", "shared memory")
            else min(blocks, most)
            for name, blocks in limits.items()
        },
        "limiters": [*resident.limiters],
        "clusters": resident.clusters,
        "idle": resident.idle_sms,
        "allocation": {
            "warps": ceil_div(demand.threads, 32),
            "registers": allocated_registers(device, demand.threads, demand.registers),
            "shared": allocated_shared(device, demand.shared),
            "sm": sm_shared(device, demand.carve_out, demand.shared),
        },
        "tile": expected_tile(device, setting),
    }


def expected_tile(device: SmLimits, setting: Mapping[str, Any]) -> dict[str, Any]:
    """The figures of a tile from the kernel families, `autotune.occupancy` and `roofline`."""
    m, n, compute = setting["tile_m"], setting["tile_n"], setting["compute"]
    size, threads = PRECISIONS[compute].operand.bytes, setting["tile_threads"]
    shared = buffer_bytes(m, n, setting["tile_k"], size, setting["stages"])
    sums = ceil_div(m * n, threads)
    registers = sums + setting["other"]
    resident = BlockDemand(threads, min(registers, LARGEST_REGISTERS), shared).on(device)
    flop_per_byte = roofline.intensity(m, n, element_bytes=size)
    figures: dict[str, Any] = {
        "sums": sums,
        "registers": registers,
        "shared": shared,
        "intensity": flop_per_byte,
        "blocks": resident.blocks_per_sm,
        "occupancy": percent(resident.occupancy),
        "limiters": [*resident.limiters],
    }
    if registers > LARGEST_REGISTERS:  # of a thread, whatever the SM has
        unfit = [name for name, blocks in resident.limits.items() if not blocks]
        limiters = [name for name in LIMITS if name in {*unfit, "registers"}]
        figures |= {"blocks": 0, "occupancy": percent(0.0), "limiters": limiters}
    if isinstance(device, Device):
        memory = roofline.bandwidth_bound(device.memory_bandwidth, flop_per_byte)
        attainable = roofline.attainable(device, flop_per_byte, compute)
        peak = device.peak(compute)
        figures |= {"memory": memory, "attainable": attainable, "peak": peak}
        figures["l2"] = fitted().l2 * memory
    return figures


def test_page_computes_what_python_computes(browser: OpenedPage) -> None:
    draw = random.Random(0)
    settings = [drawn_setting(draw) for _ in range(SETTINGS)]
    computed = browser.page.evaluate(COMPUTE, settings)

    differing = [
        (setting, each, exact)
        for setting, each in zip(settings, computed, strict=True)
        if each != (exact := expected(setting))
    ]
    assert differing[:1] == []
    assert len({str(each["limiters"]) for each in computed}) > 10
    assert len({str(each["tile"]["limiters"]) for each in computed}) > 5
    assert sum(each["tile"]["blocks"] > 0 for each in computed) > SETTINGS / 10


def test_page_shows_what_it_computes(browser: OpenedPage) -> None:
    draw = random.Random(1)
    for setting in [drawn_setting(draw) for _ in range(6)]:
        device, exact = DEVICES[setting["device"]], expected(setting)
        go(browser, **setting)
        reason = " and ".join(exact["limiters"])
        assert text(browser, "blocks") == str(exact["blocks"])
        assert text(browser, "warps") == f"{exact['warps']} of {device.threads_per_sm // 32}"
        assert text(browser, "occupancy") == exact["text"]
        assert text(browser, "limiters") == ("" if exact["blocks"] else "does not fit: ") + reason
        go(browser, **setting, tab="tile")
        assert text(browser, "tile-blocks") == str(exact["tile"]["blocks"])
        assert row(browser, "[data-cost=shared]")[0] == f"{exact['tile']['shared']:,} bytes"
        assert row(browser, "[data-cost=registers]")[0] == str(exact["tile"]["registers"])
    assert text(browser, "notice") == ""


def test_every_device_is_offered(shown: OpenedPage) -> None:
    for name in ("device", "against"):
        options = shown.page.locator(f"#{name} option").evaluate_all("all => all.map(o => o.value)")
        assert {*options} - {"", "kept"} == set(DEVICES)


@pytest.mark.parametrize(("width", "scheme"), [(400, "dark"), (1000, "light"), (1600, "light")])
def test_page_is_fit_for_every_window_and_reader(
    browser: OpenedPage, width: int, scheme: Any
) -> None:
    browser.page.set_viewport_size({"width": width, "height": 900})
    browser.page.emulate_media(color_scheme=scheme)
    for tab in ("tile", "card", "block"):
        go(browser, tab=tab, device="h100-sxm", against="rtx-3090", threads=9999)
        assert browser.page.locator(f"#{tab} svg:not([aria-label]:has(path))").count() == 0
        assert (browser.faults, browser.overflow) == ([], 0)
        if width == 1600:
            assert browser.violations() == []
    if scheme == "dark":
        assert browser.violations("color-contrast") == []


def test_command_repeats_the_setting(browser: OpenedPage) -> None:
    fields = {"threads": 96, "registers": 40, "shared": 1000, "barriers": 2}
    go(browser, device="h100-sxm", cluster=4, carveOut=25, **fields)

    assert text(browser, "command") == (
        "autotune occupancy h100-sxm --threads 96 --registers 40 --shared 1000 --barriers 2 "
        "--carve-out 25 --cluster 4"
    )


@pytest.mark.parametrize(
    ("number", "value", "remark"),
    [
        ("96", "96", ""),
        ("5000", "1024", "5,000 is too much; 1,024, the most, counts."),
        ("0", "1", "0 is too little; 1, the least, counts."),
        ("", "256", "Not a number; 256 counts."),
        ("96.4", "96", "96.4 is not whole; 96 counts."),
    ],
)
def test_numbers_act_as_they_are_typed(
    shown: OpenedPage, number: str, value: str, remark: str
) -> None:
    go(shown, device="h100-sxm", threads=256)
    field = shown.page.locator("#threads-number")
    field.fill(number)

    assert field.input_value() == number, "the text under the cursor changed"
    assert f"--threads {value} " in text(shown, "command")
    assert shown.page.locator("#threads-note [role=status]").text_content() == remark
    assert field.get_attribute("aria-invalid") == ("true" if remark else None)
    field.blur()
    assert field.input_value() == value
    assert shown.page.locator("#threads-note [role=status]").text_content() == remark


def test_sliders_act_as_they_move(shown: OpenedPage) -> None:
    shown.page.locator("#registers").fill("34")
    assert text(shown, "registers-note") == "34 registers, allocated as 40"
    assert row(shown, "[data-limit=registers]")[2:5] == ["34 a thread", "10,240", "65,536"]


def test_smaller_device_takes_less_shared_memory(browser: OpenedPage) -> None:
    go(browser, device="h100-sxm", shared=200_000)
    browser.page.select_option("#device", "gtx-980")

    assert browser.page.locator("#shared-number").input_value() == "49152"
    assert "200,000 is too much for this card; 49,152" in text(browser, "shared-note")


def test_lone_sm_has_neither_clusters_nor_roofline(browser: OpenedPage) -> None:
    go(browser, device="sm_90", tab="tile")

    assert browser.page.locator("#cluster").is_disabled()
    assert text(browser, "attainable") == "\u2013"
    assert browser.page.locator("#roof").is_hidden()


# The baseline


def test_second_card_is_a_baseline(browser: OpenedPage) -> None:
    go(browser, device="h100-sxm", registers=34, against="rtx-3060")

    other = BlockDemand(256, 34, 16384).on(find("rtx 3060"))
    assert browser.page.locator("#blocks + small").text_content() == "baseline 5"
    assert text(browser, "said") == (
        "Against the baseline (NVIDIA GeForce RTX 3060): blocks 6 instead of 5; warps 48 of 64 "
        "instead of 40 of 48; occupancy 75.0% instead of 83.3%; limited by registers instead of "
        f"{other.limiter}."
    )
    assert row(browser, "[data-limit=warps]")[:2] == ["8", "6"]
    assert browser.page.locator(".columns .line.base").count() == 3
    go(browser, device="h100-sxm", against="rtx-3060", tab="card")
    assert row(browser, "[data-key=threads_per_sm]") == ["2,048", "1,536", "1.33x"]
    assert row(browser, "[data-key=registers_per_sm]") == ["65,536", "65,536", ""]


def test_kept_block_is_a_baseline(shown: OpenedPage) -> None:
    go(shown, device="h100-sxm", registers=32)
    shown.page.get_by_role("button", name="Keep as baseline").click()
    assert text(shown, "said").endswith("no difference.")
    shown.page.locator("#registers-number").fill("33")

    assert "occupancy 75.0% instead of 100.0%" in text(shown, "said")
    shown.page.locator("#registers-number").fill("32")
    shown.page.select_option("#against", "")
    assert text(shown, "said") == ""


# The address


def test_address_restores_the_page(shown: OpenedPage) -> None:
    shown.page.locator("#registers-number").fill("77")
    shown.page.get_by_role("button", name="Keep as baseline").click()
    shown.page.get_by_role("tab", name="A GEMM tile").click()
    shown.page.locator("#tile_m-number").fill("96")
    shown.page.wait_for_url(re.compile("tile_m=96"))
    before = text(shown, "tile-said"), text(shown, "costs")
    shown.page.reload()

    assert (text(shown, "tile-said"), text(shown, "costs")) == before
    shown.page.get_by_role("tab", name="A block").click()
    assert shown.page.locator("#registers-number").input_value() == "77"


def test_back_returns_to_the_step_before(browser: OpenedPage) -> None:
    go(browser, device="h100-sxm", registers=40)
    browser.page.select_option("#device", "rtx-3060")
    for count in (41, 42, 43):  # moves of one slider are no steps
        browser.page.locator("#registers").fill(str(count))
    browser.page.get_by_role("tab", name="The card").click()
    browser.page.go_back()
    assert browser.page.get_by_role("tab", selected=True).text_content() == "A block"
    assert browser.page.locator("#registers-number").input_value() == "43"
    browser.page.go_back()
    assert browser.page.locator("#device").input_value() == "h100-sxm"
    assert browser.page.locator("#registers-number").input_value() == "40"


@pytest.mark.parametrize(
    "address",
    [
        "threads=0&registers=999&shared=-1&barriers=1e3",
        "threads=99999999999999999999&registers=NaN&tile_m=0x10&stages= 2",
        "device=__proto__&compute=constructor&tab=toString&against=kept",
        "device=%E0%A4%A&cluster=3&carveOut=101&%00=%ff&kept.device=none&against=kept",
        "device=<img src=x onerror=alert(1)>&<b>=1&threads=256;alert(1)",
        "a=" + "x" * 100_000,
    ],
)
def test_bad_addresses_leave_what_the_page_starts_with(browser: OpenedPage, address: str) -> None:
    go(browser, device=ODD.name)
    command = text(browser, "command")
    browser.page.evaluate(GO, "#" + address)

    assert text(browser, "command") == command
    assert browser.page.get_by_role("tab", selected=True).text_content() == "A block"
    assert browser.page.locator("#against").input_value() == ""
    notice = text(browser, "notice")
    assert notice.startswith("Not understood in the address")
    assert len(notice) < 200
    assert (browser.page.locator("b, img").count(), browser.faults) == (0, [])


def test_own_device_comes_first(browser: OpenedPage) -> None:
    browser.page.evaluate("history.replaceState(null, '', location.pathname)")
    browser.page.reload()

    assert browser.page.locator("#device").input_value() == ODD.name
    assert browser.page.locator("b").count() == 0


# Terms and tabs


def test_terms_are_explained_on_hover_and_on_focus(shown: OpenedPage) -> None:
    tip = shown.page.get_by_role("tooltip")
    shown.page.locator("#registers-number").fill("34")
    term = shown.page.locator("#limits thead .term", has_text="Allocated")
    term.focus()
    assert "34 registers are allocated as 40" in str(tip.text_content())
    assert "Here: 34 registers a thread are allocated as 40." in str(tip.text_content())
    shown.page.keyboard.press("Escape")
    assert tip.is_hidden()
    shown.page.locator("label .term", has_text="Carve-out").hover()
    assert "the SM has 228 KiB" in str(tip.text_content())
    tip.hover()
    shown.page.wait_for_timeout(300)
    assert tip.is_visible()
    term = shown.page.locator("label .term", has_text="Named barriers")
    term.click()
    assert term.evaluate("term => term === document.activeElement"), "the label's field took it"
    undescribed = shown.page.locator("dfn").evaluate_all(
        "all => all.filter(term => term.tabIndex !== 0"
        " || !document.getElementById(term.getAttribute('aria-describedby')).textContent)"
    )
    assert undescribed == []


def test_term_without_a_row_in_the_glossary_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"docs/glossary.md has no row for gizmo; add one"):
        explore._terms('<dfn data-term="gizmo">')


def test_tabs_follow_the_arrow_keys(shown: OpenedPage) -> None:
    shown.page.get_by_role("tab", selected=True).focus()
    for key, name in [("ArrowLeft", "card"), ("ArrowRight", "block"), ("End", "card")]:
        shown.page.keyboard.press(key)
        focused = shown.page.evaluate("document.activeElement.id")
        visible = shown.page.get_by_role("tabpanel").evaluate_all("all => all.map(p => p.id)")
        assert (focused, visible) == (f"tab-{name}", [name])


# The tile


def test_tiles_of_the_textbook_have_its_figures(browser: OpenedPage) -> None:
    go(browser, device="rtx-3090", tab="tile")
    card, rows = find("rtx 3090"), browser.page.locator("#presets tbody tr")
    for index, width in enumerate(explore.TILE_WIDTHS):
        flop_per_byte = roofline.intensity(width, width)
        bound = roofline.bandwidth_bound(card.memory_bandwidth, flop_per_byte)
        resident = BlockDemand(width**2, 32, shared_bytes(width)).on(card)
        figures = rows.nth(index).locator("td").all_text_contents()
        assert figures[:3] == [
            f"{width / 4:.2f}",
            f"{bound / 1e9:,.0f}",
            percent(bound / card.peak_fp32),
        ]
        assert figures[3:5] == [str(resident.blocks_per_sm), percent(resident.occupancy)]
        assert figures[-2:] == [f"{width**2:,}", f"{shared_bytes(width):,}"]


def test_rungs_take_the_registers_they_are_compiled_to(browser: OpenedPage) -> None:
    go(browser, device="h100-sxm", tab="tile")
    for rung in (rung for rung in RUNGS if rung.kernel in explore.KERNELS):
        browser.page.get_by_role("button", name=f"rung {rung.name}").click()
        assert row(browser, "[data-cost=registers]")[0] == str(rung.registers)
    browser.page.get_by_role("button", name="Show as a block").click()
    assert "--threads 384 --registers 168 --shared 196608" in text(browser, "command")
