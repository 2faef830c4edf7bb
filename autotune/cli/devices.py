"""The verbs that need no problem: doctor, device, occupancy."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import DeviceSpec, Json
from autotune.cli.output import show, show_json

if TYPE_CHECKING:
    from autotune.device import Device
    from autotune.report.occupancy import OccupancyRow

WIDTHS = (4, 8, 12, 16, 20, 24, 28, 32)

# Checks that may fail on a machine without a GPU.
HARDWARE = {"driver", "GPU", "PyCUDA"}


def doctor(json: Json = False) -> None:
    """Check what autotune depends on, and print what to install.

    Exit status 1 if a check fails that this machine needs: the driver, the GPU and PyCUDA count
    only on a machine with a GPU.
    """
    from autotune.report import doctor

    checks = doctor.checks()
    gpu = any(check.name == "GPU" and check.ok for check in checks)
    broken = any(check.ok is False and (gpu or check.name not in HARDWARE) for check in checks)
    if json:
        show_json({"ok": not broken, "checks": [asdict(check) for check in checks]})
    else:
        show(doctor.render(checks))
    if broken:
        raise typer.Exit(1)


def device(device: DeviceSpec = None, json: Json = False) -> None:
    """Print the identity and limits of a GPU."""
    from autotune.report.device import render
    from autotune.targets import sources, targets

    resolved = targets.resolve(device or sources.DEFAULT, clusters=True)
    if json:
        show_json(resolved.to_json())
    else:
        show(render(resolved))


def occupancy(
    device: DeviceSpec = None,
    tile_width: Annotated[
        list[int] | None,
        typer.Option(metavar="N...", help="TILE_WIDTHs of the tiled kernel, 4 to 32."),
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads a block of your kernel.")] = None,
    registers: Annotated[int | None, typer.Option(help="Registers a thread.")] = None,
    shared: Annotated[int | None, typer.Option(help="Bytes of shared memory a block.")] = None,
    cluster: Annotated[int, typer.Option(help="Blocks of a cluster: 1, 2, 4 or 8.")] = 1,
    json: Json = False,
) -> None:
    """Print the resident blocks of kernels and what limits them.

    The default is the square tiled kernel at several TILE_WIDTHs, with its compiled registers and
    the bound that its traffic sets. --threads and --registers describe a kernel of your own.
    --cluster adds the clusters that are resident on the whole GPU, and the SMs that they leave
    idle.
    """
    from autotune.errors import UsageError
    from autotune.report.occupancy import kernel_row, tile_width_rows, tiled_registers
    from autotune.targets import sources, targets

    resolved = targets.resolve(device or sources.DEFAULT, clusters=cluster > 1)
    if threads is registers is shared is None:
        # The compiler does not support older devices; they get the registers of the oldest.
        arch = "sm_{}{}".format(*max(resolved.compute_capability, targets.OLDEST))
        compiled = tiled_registers(arch, tile_width or WIDTHS)
        note = f"{resolved.name}; registers as compiled for {arch}"
        _show_rows(resolved, tile_width_rows(resolved, compiled, cluster), note, json)
        return
    if threads is None or registers is None or tile_width:
        raise UsageError("one kernel takes --threads and --registers, and no --tile-width")
    row = kernel_row(
        resolved, threads=threads, registers=registers, shared=shared or 0, cluster=cluster
    )
    _show_rows(resolved, (row,), resolved.name, json)


def _show_rows(resolved: Device, rows: tuple[OccupancyRow, ...], note: str, json: bool) -> None:
    from autotune.report.occupancy import render

    if any(row.predicted for row in rows):
        note = f"{note}; clusters predicted from the number of SMs"
    if json:
        show_json({"device": resolved.name, "note": note, "rows": [asdict(row) for row in rows]})
        return
    print(note)
    show(render(rows))
