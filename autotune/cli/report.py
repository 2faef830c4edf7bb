"""The verb that shows results in pictures: report."""

from __future__ import annotations

from pathlib import Path

import click

from autotune.cli.options import (
    VerbCommand,
    complete_named,
    device_option,
    family_option,
    json_option,
    shape_argument,
    show_csv,
    show_json,
)
from autotune.errors import UsageError

DEFAULT_OUT = Path("report.html")


@click.command("report", cls=VerbCommand)
@shape_argument(
    "[MxNxK|KERNEL]...",
    "Shapes, ranges or user kernels; none reports the whole cache.",
    nargs=-1,
    shell_complete=complete_named,
)
@device_option
@family_option("Report searches of this kernel family alone.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The page.  [default: report.html]",
)
@click.option("--open", "open_page", is_flag=True, help="Open the page in a browser.")
@click.option(
    "--csv", "csv_rows", is_flag=True, help="Print the trials, or of several shapes a row each."
)
@json_option
def report(
    shapes: tuple[str, ...],
    device: str | None,
    family: str | None,
    out: Path | None,
    open_page: bool,
    csv_rows: bool,
    json: bool,
) -> None:
    """Write an offline page of pictures: why a kernel won, or how several shapes fare.

    One shape or user kernel shows its search, roofline, parameters, occupancy, leaders and
    trials; several show an overview. --json and --csv print the data instead, without plotly, and
    write a page only with --out. Exit status 3 if nothing is recorded.
    """
    from autotune import settings
    from autotune.records import Store
    from autotune.report import pages
    from autotune.report.selection import selected

    if json and csv_rows:
        raise UsageError("standard output takes --json or --csv, not both")
    printed = json or csv_rows
    if open_page and printed and out is None:
        raise UsageError("--json and --csv write no page to open; give --out")
    store = Store(settings.cache_dir())
    selection = selected(shapes, device, store, family)
    data = pages.analysed(selection, store)
    if out is not None or not printed:
        path = out or DEFAULT_OUT
        pages.write_page(path, data)
        if not printed:
            print(f"{path}: {data.summary}")
        if open_page:
            pages.open_page(path)
    if csv_rows:
        if data.note:
            click.echo(f"warning: {data.note}", err=True)
        show_csv(*data.table)
    if json:
        show_json(data.to_json())
