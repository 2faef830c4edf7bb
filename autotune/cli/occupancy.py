"""The verbs about resident blocks: occupancy, explore."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli import completion
from autotune.cli.amounts import MOST, amounts
from autotune.cli.options import (
    VerbArgument,
    VerbCommand,
    hidden_device_option,
    json_option,
    refuse,
)
from autotune.cli.output import show, show_json
from autotune.errors import MissingError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from autotune.device import SmLimits
    from autotune.occupancy import BlockDemand
    from autotune.report.sweep import Sweep

WIDTHS = (4, 8, 12, 16, 20, 24, 28, 32)

STEPS = {"--threads": 32, "--registers": 8, "--shared": 1024, "--blocks": 1, "--tile-width": 4}
"""The steps of ranges: a warp, the unit in which registers are allocated, 1 KiB, a block, and the
widths that are compared by default."""

LIST = "N|LOW..HIGH,..."


@click.command("occupancy", cls=VerbCommand)
@click.argument(
    "names",
    nargs=-1,
    cls=VerbArgument,
    metavar="[SPEC.py] [DEVICE]...",
    text="The file of a user kernel, for its configurations; devices, such as h100, or compute "
    "capabilities, such as sm_86 (see `autotune help devices`).",
    shell_complete=completion.devices,
)
@click.option("--device", multiple=True, hidden=True, shell_complete=completion.devices)
@click.option(
    "--tile-width",
    multiple=True,
    metavar=LIST,
    help="TILE_WIDTHs of the tiled kernel, 4 to 32.",
)
@click.option("--threads", multiple=True, metavar=LIST, help="Threads a block of your kernel.")
@click.option("--registers", multiple=True, metavar=LIST, help="Registers a thread.")
@click.option(
    "--shared", multiple=True, metavar=LIST, help="Bytes of shared memory a block, such as 48K."
)
@click.option(
    "--blocks",
    multiple=True,
    metavar=LIST,
    help="Blocks an SM: print the most registers and shared memory that allow them.",
)
@click.option(
    "--barriers",
    type=int,
    default=1,
    metavar="N",
    help="Named barriers a block.  [default: 1]",
)
@click.option(
    "--carve-out",
    type=int,
    metavar="PERCENT",
    help="Preferred share of shared memory, 0 to 100 per cent.",
)
@click.option(
    "--cluster",
    type=int,
    default=1,
    metavar="N",
    help="Blocks of a cluster: 1, 2, 4 or 8.  [default: 1]",
)
@click.option(
    "--plot",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw the curves of the kernel: a .html or .svg file.",
)
@json_option
def occupancy(
    names: tuple[str, ...],
    device: tuple[str, ...],
    tile_width: tuple[str, ...],
    threads: tuple[str, ...],
    registers: tuple[str, ...],
    shared: tuple[str, ...],
    blocks: tuple[str, ...],
    barriers: int,
    carve_out: int | None,
    cluster: int,
    plot: Path | None,
    json: bool,
) -> None:
    """Print the resident blocks of kernels and what limits them.

    The default is the square tiled kernel at several TILE_WIDTHs, with its compiled registers and
    the bound that its traffic sets. --threads and --registers describe a kernel of your own; lists
    and ranges such as 64..1024 or 0..96K:8K sweep it, without --threads over all block sizes.
    Several devices stand side by side. --cluster adds the clusters that are resident on the whole
    GPU, and the SMs that they leave idle.
    """
    from autotune.occupancy import BlockDemand

    specs = [name for name in names if name.endswith(".py")]
    texts = [name for name in (*names, *device) if name not in specs]
    if specs:
        refuse("a user kernel", threads=threads, registers=registers, shared=shared, blocks=blocks)
        refuse("a user kernel", tile_width=tile_width, plot=plot, json=json)
        _show_spec(specs, texts)
        return
    devices = _devices(texts)
    if not (threads or registers or shared or blocks):
        if barriers != 1 or carve_out is not None or plot:
            raise UsageError("--barriers, --carve-out and --plot take a kernel; give --threads too")
        widths = (
            amounts(tile_width, "--tile-width", STEPS["--tile-width"]) if tile_width else WIDTHS
        )
        _show_tiled(devices, widths, cluster, json)
        return
    if tile_width:
        raise UsageError(
            "--tile-width is of the tiled kernel; leave it out for a kernel of your own"
        )
    base = BlockDemand(1, barriers=barriers, carve_out=carve_out, cluster=cluster)
    if blocks:
        if registers or shared or plot or cluster > 1:
            raise UsageError("--blocks finds registers and shared memory; give --threads only")
        _show_headroom(devices, base, threads, blocks, json)
        return
    if not registers:
        raise UsageError("a kernel needs registers; give --registers 32, or --registers 32,40,48")
    sweep = _sweep(devices, base, threads, registers, shared)
    if plot:
        _plot(plot, devices, sweep)
    _show_sweep(devices, sweep, json)


@click.command("explore", cls=VerbCommand)
@click.argument(
    "name",
    cls=VerbArgument,
    required=False,
    metavar="[DEVICE]",
    text="Device to start with, such as gpu, h100 or sm_86.",
    shell_complete=completion.devices,
)
@hidden_device_option
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("explore.html"),
    metavar="FILE",
    help="File to write.  [default: explore.html]",
)
@click.option("--open", "opened", is_flag=True, help="Open it in the browser.")
def explore(name: str | None, device: str | None, out: Path, opened: bool) -> None:
    """Write a page with sliders that show what limits the resident blocks of a kernel.

    The page works offline and has all devices of the catalogue; it needs plotly, the extra
    `report`. Without a GPU and without a device it starts with an H100.
    """
    from autotune.report.explore import explorer
    from autotune.report.page import write
    from autotune.targets import sources, targets

    if name and device:
        raise UsageError("one device at a time; the page has all of the catalogue")
    text = name or device
    try:
        own = targets.resolve_limits(text or sources.DEFAULT)
    except MissingError:
        if text:
            raise
        own = None
    write(out, explorer(own))
    print(f"{out}: open it in a browser")
    if opened:
        click.launch(str(out))


def _devices(texts: Sequence[str]) -> dict[str, SmLimits]:
    """The devices by the texts that name them."""
    from autotune.targets import sources, targets

    if number := next((text for text in texts if re.fullmatch(r"\d[\dKk.:]*", text)), None):
        raise UsageError(f"{number!r} is no device; join lists by commas: --registers 32,40,48")
    return {text: targets.resolve_limits(text) for text in texts or [sources.DEFAULT]}


def _show_spec(specs: Sequence[str], devices: Sequence[str]) -> None:
    """Prints what each configuration of a user kernel occupies; needs no GPU."""
    from autotune.api import kernel_specs

    if len(specs) > 1 or len(devices) > 1:
        raise UsageError("one SPEC.py and one device at a time")
    print(kernel_specs.spec_occupancy(Path(specs[0]), devices[0] if devices else None))


def _show_tiled(
    devices: Mapping[str, SmLimits], widths: Sequence[int], cluster: int, json: bool
) -> None:
    from autotune.report.occupancy import render, tile_width_rows, tiled_registers
    from autotune.targets import targets

    results = []
    for device in devices.values():
        # The compiler does not support older devices; they get the registers of the oldest.
        arch = "sm_{}{}".format(*max(device.compute_capability, targets.OLDEST))
        rows = tile_width_rows(device, tiled_registers(arch, widths), cluster)
        note = f"{device.name}; registers as compiled for {arch}"
        if any(row.predicted for row in rows):
            note = f"{note}; clusters as expected of such cards, not asked of the driver"
        results.append({"device": device.name, "note": note, "rows": [asdict(r) for r in rows]})
        if not json:
            print(note)
            show(render(rows))
    if json:
        show_json(results[0] if len(results) == 1 else {"devices": results})


def _sweep(
    devices: Mapping[str, SmLimits],
    base: BlockDemand,
    threads: tuple[str, ...],
    registers: tuple[str, ...],
    shared: tuple[str, ...],
) -> Sweep:
    from autotune.report import sweep as report

    return report.swept(devices, base, *_amounts(devices, threads, registers, shared))


def _plot(path: Path, devices: Mapping[str, SmLimits], sweep: Sweep) -> None:
    """Draws the curves through the first kernel of a sweep."""
    from autotune.report.figures.curves import combined_figure, curve_figures
    from autotune.report.page import write
    from autotune.report.page.svg import write_svgs
    from autotune.report.sweep_page import sweep_page

    if path.suffix == ".svg":
        figure = combined_figure(curve_figures(devices, sweep.first))
        write_svgs({path.stem: figure}, path.parent)
    elif path.suffix == ".html":
        write(path, sweep_page(devices, sweep.first, sweep))
    else:
        raise UsageError(f"--plot is {str(path)!r}; give a file that ends in .html or .svg")
    click.echo(f"{path}: written", err=True)


def _show_sweep(devices: Mapping[str, SmLimits], sweep: Sweep, json: bool) -> None:
    from autotune.report import sweep as report
    from autotune.report.occupancy import render

    predicted = any(row.predicted for rows in sweep.rows.values() for row in rows)
    suffix = "; clusters as expected of such cards, not asked of the driver" if predicted else ""
    if json:
        results = report.sweep_json(sweep, devices)
        note = f"{next(iter(devices.values())).name}{suffix}"
        single = {**results[0], "note": note}
        show_json(single if len(results) == 1 else {"devices": results})
        return
    titles = ", ".join(device.name for device in devices.values())
    alike = f"; {sweep.note}" if sweep.swept and sweep.note else ""
    print(f"{titles}{suffix}{alike}")
    rows = next(iter(sweep.rows.values()))
    show(render(rows) if len(rows) == len(sweep.rows) == 1 else report.render(sweep))
    for line in report.best_lines(sweep):
        print(line)


def _amounts(
    devices: Mapping[str, SmLimits],
    threads: tuple[str, ...],
    registers: tuple[str, ...],
    shared: tuple[str, ...],
) -> tuple[Sequence[int], Sequence[int], Sequence[int]]:
    """The block sizes, registers and bytes of a sweep; without threads all block sizes."""
    from autotune.occupancy import block_sizes

    sizes = (
        amounts(threads, "--threads", STEPS["--threads"])
        if threads
        else block_sizes(next(iter(devices.values())))
    )
    counts = amounts(registers, "--registers", STEPS["--registers"])
    room = amounts(shared or ["0"], "--shared", STEPS["--shared"])
    if (kernels := len(sizes) * len(counts) * len(room)) > MOST:
        raise UsageError(f"{kernels} kernels; at most {MOST}: give fewer amounts or larger steps")
    return sizes, counts, room


def _show_headroom(
    devices: Mapping[str, SmLimits],
    base: BlockDemand,
    threads: tuple[str, ...],
    blocks: tuple[str, ...],
    json: bool,
) -> None:
    from autotune.report import sweep as report

    if not threads:
        raise UsageError("--blocks takes --threads; give the threads of a block")
    sizes = amounts(threads, "--threads", STEPS["--threads"])
    counts = amounts(blocks, "--blocks", STEPS["--blocks"])
    rooms = report.headrooms(devices, base, sizes, counts)
    if json:
        listed = [
            {
                "device": devices[label].name,
                "rows": [{"threads": size, **asdict(room)} for size, room in pairs],
            }
            for label, pairs in rooms.items()
        ]
        show_json(listed[0] if len(listed) == 1 else {"devices": listed})
        return
    print(", ".join(device.name for device in devices.values()))
    show(report.render_headrooms(rooms))
