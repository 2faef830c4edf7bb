"""Draws the pictures of the documents into `docs/pictures`.

    python scripts/draw/draw.py            every picture
    python scripts/draw/draw.py ladder     one by name
    python scripts/draw/draw.py --check    says which are out of date, with status 1
    python scripts/draw/draw.py screenshots "build/explore.html#registers=34&against=h100-sxm" \\
        docs/screenshots/explore --heights 1320 2850

Each is drawn from files of `docs/results` or from the package's arithmetic, and carries a SHA-256
of what it was drawn from. `pip install --group docs` brings matplotlib. `screenshots` takes
pictures of a page of autotune, such as `autotune explore "rtx 3060" --out build/explore.html`, in
headless Chromium; the explorer's state follows the `#`.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pictures import (
    BLUE,
    FOLDER,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    RED,
    RESULTS,
    SKY,
    Picture,
    canvas,
    headline,
    panels,
    plain_ticks,
    result,
)

from autotune.device import find
from autotune.occupancy import BlockDemand, curve
from autotune.roofline import attainable
from autotune.tuning.ladder import load

SPACES = (
    ("xgemm", "", "Xgemm on an RTX 3090"),
    ("4096x4096x4096-f32-nn", "-blind", "fp32, 4096 x 4096 x 4096"),
    ("64x4096x4096-f32-nn", "-blind", "fp32, 64 x 4096 x 4096"),
    ("1023x1025x1027-f32-nn", "-blind", "fp32, 1023 x 1025 x 1027"),
    ("4096x4096x4096-bf16-nn", "-blind", "bf16, 4096 x 4096 x 4096"),
    ("16x4096x4096-bf16-nn", "-blind", "bf16, 16 x 4096 x 4096"),
)
METHODS = {
    "guided": ("autotune, with the cost model", BLUE, "-"),
    "gp": ("autotune, blind", SKY, "-"),
    "kernel-tuner:adaptive_tabu_greywolf": ("Kernel Tuner, adaptive_tabu_greywolf", RED, "-"),
    "kernel-tuner:hybrid_vndx": ("Kernel Tuner, hybrid_vndx", ORANGE, "--"),
}


def replay_values() -> Any:
    spaces = []
    for name, suffix, label in SPACES:
        rows = result(f"h100/search/replay-{name}{suffix}.json")["rows"]
        curves = {row["method"]: row["curve"] for row in rows}
        if suffix:
            guided = result(f"h100/search/replay-{name}.json")["rows"][0]
            curves["guided"] = guided["curve"]
        spaces.append({"label": label, "curves": curves})
    return spaces


def draw_replay(spaces: Any) -> Figure:
    figure, drawings = panels(8.4, 5.2, 2, 3)
    for axes, space in zip(drawings, spaces, strict=True):
        for method, (label, colour, line) in METHODS.items():
            if method in space["curves"]:
                shares = [100 * share for share in space["curves"][method]]
                axes.plot(
                    range(1, len(shares) + 1),
                    shares,
                    line,
                    color=colour,
                    label=label,
                    linewidth=1.8,
                )
        axes.set_ylim(60, 101)
        axes.set_xlim(0, 100)
        axes.set_title(space["label"], size=9.5)
    for axes in drawings[3:]:
        axes.set_xlabel("configurations tried")
    for axes in drawings[::3]:
        axes.set_ylabel("% of the optimum")
    handles = {
        label: handle
        for axes in drawings
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend([*handles.values()], [*handles], loc="outside lower center", ncols=2, fontsize=9)
    return figure


def live_values() -> Any:
    rows = []
    for row in result("h100/search/live.json")["rows"]:
        seconds = {run: row[run]["good_s"] for run in ("cold", "warm")}
        rows.append({"problem": row["problem"].removesuffix(":nn"), **seconds})
    return rows


def draw_live(rows: Any) -> Figure:
    figure, axes = canvas(8.4, 5.4)
    for place, row in enumerate(reversed(rows)):
        if row["warm"] is not None:
            axes.plot([row["warm"], row["cold"]], [place] * 2, color=MUTED, linewidth=1)
            axes.scatter(row["warm"], place, color=SKY, s=34, zorder=3)
        axes.scatter(row["cold"], place, color=BLUE, s=34, zorder=3)
    axes.scatter([], [], color=BLUE, s=34, label="from an empty cache")
    axes.scatter([], [], color=SKY, s=34, label="with the programs of the first run (5 s)")
    axes.set_yticks(range(len(rows)), [row["problem"] for row in reversed(rows)], size=8.5)
    axes.set_xlim(0, 9)
    axes.margins(y=0.02)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("seconds from the command to a kernel within 2 % of the best known", color=INK)
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    return figure


SEARCH = (
    Picture(
        "replay",
        "Share of the fastest recorded time against configurations tried, beside Kernel Tuner",
        replay_values,
        draw_replay,
    ),
    Picture(
        "live",
        "Seconds until tuning holds a kernel within 2 % of the best known, 24 problems on an H100",
        live_values,
        draw_live,
    ),
)


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
    "1 naive": ("1 naive", (8, -6)),
    "2 coalesced": ("2 coalesced", (8, -4)),
    "3 tiled": ("3 tiled", (8, -4)),
    "5 registers": ("5 registers", (8, -8)),
    "9 fragments": ("9 fragments", (8, -6)),
    "10 mma": ("10 mma", (6, 5)),
    "11 swizzle": ("11 swizzle", (-62, -2)),
    "12 ring": ("12 ring", (-48, -2)),
    "13 wgmma": ("13 wgmma", (-62, -2)),
    "17 persistent": ("17 persistent", (-76, 2)),
}


def roofline_values() -> Any:
    device = find("h100")
    rungs = {rung.name: rung for rung in load("h100", 4096).rungs}
    intensities = [round(float(x), 4) for x in np.geomspace(0.125, 1024, 120)]
    roofs = {
        compute: [attainable(device, x, compute) / 1e12 for x in intensities]
        for compute in ("f32", "bf16")
    }
    points = [
        {"name": name, "x": rungs[name].flop_per_byte, "y": (rungs[name].gflops or 0) / 1000}
        for name in RUNGS
    ]
    return {"x": intensities, "roofs": roofs, "points": points}


def draw_roofline(values: Any) -> Figure:
    figure, axes = canvas(8.4, 4.8)
    for compute, colour in (("bf16", GREEN), ("f32", BLUE)):
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


PICTURES: tuple[Picture, ...] = (*RESULTS, *SEARCH, *TEACHING)
"""Every picture, by the order of the documents."""


def main(arguments: list[str]) -> int:
    names = [picture.name for picture in PICTURES]
    parser = argparse.ArgumentParser(description="Draws the pictures of the documents.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--check", action="store_true", help="draw nothing, name outdated ones")
    options = parser.parse_args(arguments)
    if unknown := sorted({*options.names} - {*names}):
        parser.error(f"no picture {', '.join(unknown)}; there are {', '.join(names)}")
    chosen = [p for p in PICTURES if not options.names or p.name in options.names]
    if options.check:
        stale = [picture.name for picture in chosen if not picture.current()]
        for name in stale:
            print(f"{name}: out of date; `python scripts/draw/draw.py {name}` draws it again")
        return 1 if stale else 0
    FOLDER.mkdir(exist_ok=True)
    for picture in chosen:
        picture.path.write_text(picture.svg(), encoding="utf-8")
        print(picture.path.relative_to(FOLDER.parents[1]))
    return 0


NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS = (1600, 400)
HEIGHTS = (1960, 1360)
"""Heights of the pictures in pixels, unless stated."""


def screenshots(words: list[str]) -> int:
    """Pictures of a page in headless Chromium: OUT-1600.png (light) and OUT-400.png (dark)."""
    from playwright.sync_api import sync_playwright

    arguments = argparse.ArgumentParser(description="Draws a page of autotune at two widths.")
    arguments.add_argument("page", help="file, with the state of the explorer behind a #")
    arguments.add_argument("out", type=Path, help="start of the pictures' names")
    arguments.add_argument("--heights", type=int, nargs=2, default=HEIGHTS, help="in pixels")
    options = arguments.parse_args(words)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    program = next(filter(None, map(shutil.which, NAMES)), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        for width, height in zip(WIDTHS, options.heights, strict=True):
            page = browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme="light" if width > 1000 else "dark",
            )
            path, mark, state = options.page.partition("#")
            page.goto(Path(path).resolve().as_uri() + mark + state)
            page.locator("svg path").first.wait_for(state="attached")
            for figure in page.locator("[data-figure]").all():  # drawn when they come near
                figure.scroll_into_view_if_needed()
                figure.locator(".main-svg").first.wait_for(state="attached")
            page.evaluate("scrollTo(0, 0)")
            page.wait_for_timeout(500)
            page.screenshot(path=f"{options.out}-{width}.png")
        browser.close()
    return 0


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(screenshots(words[1:]) if words[:1] == ["screenshots"] else main(words))
