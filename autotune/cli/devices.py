"""The verbs about this machine: doctor, device."""

from __future__ import annotations

from dataclasses import asdict

import click

from autotune.cli import completion
from autotune.cli.options import VerbArgument, VerbCommand, hidden_device_option, json_option
from autotune.cli.output import show, show_json
from autotune.errors import MissingError, UsageError


@click.command("doctor", cls=VerbCommand)
@json_option
def doctor(json: bool) -> None:
    """Check what autotune depends on, and print what to install.

    Exit status 1 if a check fails that this machine needs: the driver, the GPU and PyCUDA count
    only on a machine with a GPU.
    """
    from autotune.report import doctor

    checks = doctor.checks()
    broken = doctor.broken(checks)
    if json:
        show_json({"ok": not broken, "checks": [asdict(check) for check in checks]})
    else:
        show(doctor.render(checks))
    if broken:
        raise click.exceptions.Exit(1)


@click.command("device", cls=VerbCommand)
@click.argument(
    "name",
    cls=VerbArgument,
    required=False,
    metavar="[DEVICE]",
    text="Device, such as gpu or h100; see `autotune help devices`.",
    shell_complete=completion.devices,
)
@hidden_device_option
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
        return
    if json:
        show_json(resolved.to_json())
    else:
        show(report.render(resolved))
