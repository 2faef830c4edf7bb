"""The verbs about a machine and its GPUs: doctor, device, occupancy, explore."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.options import (
    Verb,
    VerbArgument,
    VerbCommand,
    complete_devices,
    device_argument,
    json_option,
    path_option,
    refuse,
    show,
    show_json,
)
from autotune.errors import MissingError, UsageError

if TYPE_CHECKING:
    from autotune.device import SmLimits
    from autotune.occupancy import BlockDemand
    from autotune.report.occupancy import OccupancyRow


@click.command("doctor", cls=VerbCommand)
@json_option
def doctor(json: bool) -> None:
    """Check the installation, and print the missing packages.

    Exit status 1 if a check fails that this machine needs: the driver, the GPU and PyCUDA count
    only on a machine with a GPU.
    """
    from autotune.report import doctor

    checks = doctor.checks()
    broken = doctor.broken(checks)
    data = {"ok": not broken, "checks": [asdict(check) for check in checks]}
    show_json(data) if json else show(doctor.render(checks))
    if broken:
        raise click.exceptions.Exit(1)


@click.command("device", cls=VerbCommand)
@device_argument("Device, such as gpu or h100; see `autotune help devices`.")
@click.option("--list", "listing", is_flag=True, help="List the devices of the catalogue.")
@json_option
def device(name: str | None, device: str | None, listing: bool, json: bool) -> None:
    """Print the identity and limits of a GPU.

    Without a GPU and without a name, or with --list, it lists the catalogue. A compute capability
    such as sm_86 stands for the limits of its SM.
    """
    from autotune.device import sm_named
    from autotune.measure import devices, targets
    from autotune.report import device as report

    text = name or device
    if (name and device) or (text and listing):
        raise UsageError("one device at a time; give a name or --list")
    if text and (sm := sm_named(text)):
        show_json(asdict(sm)) if json else show(report.render_sm(sm))
        return
    if not listing:
        try:
            resolved = targets.resolve(text or devices.DEFAULT, enter=True)
        except MissingError:
            if text:
                raise
            click.echo("no GPU here: the devices of the catalogue", err=True)
            listing = True
    if listing:
        show_json(report.catalogue_json()) if json else show(report.render_catalogue())
    else:
        show_json(resolved.to_json()) if json else show(report.render(resolved))


WIDTHS = (4, 8, 12, 16, 20, 24, 28, 32)

MOST = 10_000
"""Kernels of a sweep; more would fill screens for minutes."""

_UNITS = {"": 1, "B": 1, "K": 1024, "KB": 1024, "KIB": 1024}
_AMOUNT = r"(\d{1,9})(|B|K|KB|KIB)"
_TEXT = re.compile(rf"{_AMOUNT}(?:\.\.{_AMOUNT}(?::{_AMOUNT})?)?", re.IGNORECASE)


def amounts(texts: Sequence[str], option: str, step: int) -> tuple[int, ...]:
    """The amounts that texts name, in their order and each once.

    A text is an amount, `LOW..HIGH` or `LOW..HIGH:STEP`; K is 1024. A range holds its ends, and
    between them the multiples of the step.

    Args:
        texts: the values of an option, each a list joined by commas.
        option: its name, for messages.
        step: the step of a range that states none.

    Raises:
        UsageError: for another form, a range that falls, or too many amounts.
    """
    words = [word for text in texts for word in text.split(",") if word]
    listed = [amount for word in words for amount in _amounts(word.strip(), option, step)]
    if not listed or len(listed) > MOST:
        raise UsageError(f"{option} names {len(listed)} amounts; give 1 to {MOST}")
    return tuple(dict.fromkeys(listed))


def _amounts(word: str, option: str, step: int) -> Sequence[int]:
    match = _TEXT.fullmatch(word)
    if match is None:
        raise UsageError(
            f"{option} is {word!r}; give an amount, such as 256 or 48K, or a range, such as "
            "64..1024 or 0..96K:8K"
        )
    low = _bytes(match[1], match[2])
    if match[3] is None:
        return (low,)
    high = _bytes(match[3], match[4])
    stated = step if match[5] is None else _bytes(match[5], match[6])
    if high < low or stated < 1:
        raise UsageError(f"{option} is {word!r}; give the smaller end first and a step above 0")
    first = (low // stated + 1) * stated
    if (high - low) // stated > MOST:
        raise UsageError(f"{option} is {word!r}: {(high - low) // stated} amounts; at most {MOST}")
    return (low, *range(first, high, stated), *([high] if high > low else []))


def _bytes(number: str, unit: str) -> int:
    return int(number) * _UNITS[unit.upper()]


def amounts_option(name: str, step: int, text: str) -> Callable[[Verb], Verb]:
    """An option for lists and ranges of amounts; without one its value is empty.

    Args:
        name: the option.
        step: the step of a range that states none.
        text: its help.
    """

    def parsed(_: click.Context, __: click.Parameter, texts: Sequence[str]) -> tuple[int, ...]:
        return amounts(texts, name, step) if texts else ()

    return click.option(name, multiple=True, metavar="N|LOW..HIGH,...", callback=parsed, help=text)


@click.command("occupancy", cls=VerbCommand)
@click.argument(
    "names",
    nargs=-1,
    cls=VerbArgument,
    metavar="[SPEC.py] [DEVICE]...",
    text="The file of a user kernel, for its configurations; devices, such as h100, or compute "
    "capabilities, such as sm_86 (see `autotune help devices`).",
    shell_complete=complete_devices,
)
@click.option("--device", multiple=True, hidden=True, shell_complete=complete_devices)
@amounts_option("--tile-width", 4, "TILE_WIDTHs of the tiled kernel, 4 to 32.")
@amounts_option("--threads", 32, "Threads a block of your kernel.")
@amounts_option("--registers", 8, "Registers a thread.")
@amounts_option("--shared", 1024, "Bytes of shared memory a block, such as 48K.")
@click.option(
    "--barriers", type=int, default=1, metavar="N", help="Named barriers a block.  [default: 1]"
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
@json_option
def occupancy(
    names: tuple[str, ...],
    device: tuple[str, ...],
    tile_width: tuple[int, ...],
    threads: tuple[int, ...],
    registers: tuple[int, ...],
    shared: tuple[int, ...],
    barriers: int,
    carve_out: int | None,
    cluster: int,
    json: bool,
) -> None:
    """Print the resident blocks of kernels and what limits them.

    The default is the square tiled kernel at several TILE_WIDTHs, with its compiled registers and
    the bound that its traffic sets. --threads and --registers describe a kernel of your own; lists
    and ranges such as 64..1024 or 0..96K:8K sweep it, without --threads over all block sizes.
    --cluster adds the clusters that are resident on the whole
    GPU, and the SMs that they leave idle.
    """
    from autotune.occupancy import BlockDemand

    specs = [name for name in names if name.endswith(".py")]
    texts = [name for name in (*names, *device) if name not in specs]
    if specs:
        refuse("a user kernel", threads=threads, registers=registers, shared=shared)
        refuse("a user kernel", tile_width=tile_width, json=json)
        _show_spec(specs, texts)
        return
    devices = _devices(texts)
    if not (threads or registers or shared):
        if barriers != 1 or carve_out is not None:
            raise UsageError("--barriers and --carve-out take a kernel; give --threads too")
        _show_tiled(devices, tile_width or WIDTHS, cluster, json)
        return
    if tile_width:
        raise UsageError(
            "--tile-width is of the tiled kernel; leave it out for a kernel of your own"
        )
    if not registers:
        raise UsageError("a kernel needs registers; give --registers 32, or --registers 32,40,48")
    base = BlockDemand(1, barriers=barriers, carve_out=carve_out, cluster=cluster)
    _show_kernels(devices, base, threads, registers, shared or (0,), json)


@click.command("explore", cls=VerbCommand)
@device_argument("Device to start with, such as gpu, h100 or sm_86.")
@path_option(
    "--out", "FILE", "File to write.  [default: explore.html]", default=Path("explore.html")
)
@click.option("--open", "opened", is_flag=True, help="Open it in the browser.")
def explore(name: str | None, device: str | None, out: Path, opened: bool) -> None:
    """Write a page that shows what limits the resident blocks of a kernel, and what a tile costs.

    The page works offline and has all devices of the catalogue. Without a GPU and without a device
    it starts with an H100.
    """
    from autotune.measure import devices, targets
    from autotune.report.pages import page
    from autotune.report.pages.explore import explorer

    if name and device:
        raise UsageError("one device at a time; the page has all of the catalogue")
    text = name or device
    try:
        own = targets.resolve_limits(text or devices.DEFAULT)
    except MissingError:
        if text:
            raise
        own = None
    page.write(out, explorer(own))
    print(f"{out}: open it in a browser")
    if opened:
        page.open_page(out)


def _devices(texts: Sequence[str]) -> dict[str, SmLimits]:
    from autotune.measure import devices, targets

    if number := next((text for text in texts if re.fullmatch(r"\d[\dKk.:]*", text)), None):
        raise UsageError(f"{number!r} is not a device; join lists by commas: --registers 32,40,48")
    return {text: targets.resolve_limits(text) for text in texts or [devices.DEFAULT]}


def _show_spec(specs: Sequence[str], devices: Sequence[str]) -> None:
    from autotune.api import specifications

    if len(specs) > 1 or len(devices) > 1:
        raise UsageError("one SPEC.py and one device at a time")
    print(specifications.spec_occupancy(Path(specs[0]), devices[0] if devices else None))


def _show_tiled(
    devices: Mapping[str, SmLimits], widths: Sequence[int], cluster: int, json: bool
) -> None:
    from autotune.measure import targets
    from autotune.report.occupancy import tile_width_rows, tiled_registers

    shown = []
    for device in devices.values():
        # The compiler does not support older devices; they get the registers of the oldest.
        arch = "sm_{}{}".format(*max(device.compute_capability, targets.OLDEST))
        rows = tile_width_rows(device, tiled_registers(arch, widths), cluster)
        shown.append((device, rows, f"; registers as compiled for {arch}", None))
    _show_rows(shown, json)


def _show_kernels(
    devices: Mapping[str, SmLimits],
    base: BlockDemand,
    threads: Sequence[int],
    registers: Sequence[int],
    shared: Sequence[int],
    json: bool,
) -> None:
    """Shows every combination of the amounts; without threads all block sizes and the best."""
    from autotune.occupancy import best_block_sizes, block_sizes
    from autotune.report.occupancy import kernel_row

    threads = threads or block_sizes(next(iter(devices.values())))
    if (kernels := len(threads) * len(registers) * len(shared)) > MOST:
        raise UsageError(f"{kernels} kernels; at most {MOST}: give fewer amounts or larger steps")
    shown = []
    for device in devices.values():
        rows = [
            kernel_row(device, replace(base, threads=n, registers=per_thread, shared=amount))
            for n, per_thread, amount in product(threads, registers, shared)
        ]
        alone = len(registers) == len(shared) == 1 < len(threads)
        demand = replace(base, registers=registers[0], shared=shared[0])
        shown.append((device, rows, "", best_block_sizes(device, demand) if alone else ()))
    _show_rows(shown, json)


def _show_rows(
    shown: Iterable[tuple[SmLimits, Sequence[OccupancyRow], str, Sequence[int] | None]], json: bool
) -> None:
    """Shows the rows of each device under its name and a remark; then the best block sizes, if
    they are known."""
    from autotune.report.occupancy import render

    results = list[dict[str, object]]()
    for device, rows, remark, best in shown:
        predicted = any(row.predicted for row in rows)
        unasked = "; clusters as expected of such cards, not asked of the driver" * predicted
        note = f"{device.name}{remark}{unasked}"
        result: dict[str, object] = {"device": device.name, "note": note}
        result["rows"] = [asdict(row) for row in rows]
        if best is not None:
            result["best_threads"] = [*best]
        results.append(result)
        if json:
            continue
        print(note)
        show(render(rows))
        if best:
            share = max(row.occupancy for row in rows)
            print(f"best block size: {', '.join(map(str, best))} ({share:.0%})")
    if json:
        show_json(results[0] if len(results) == 1 else {"devices": results})
