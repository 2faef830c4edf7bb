"""The verb that shows results in pictures: report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autotune.cli.options import (
    VerbCommand,
    complete_named,
    device_option,
    family_option,
    json_option,
    shape_argument,
    show_json,
)
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.records import Store
    from autotune.report.analysis.whole import Analysis
    from autotune.report.overview_page import Overview
    from autotune.report.selection import Selection

DEFAULT_OUT = Path("report.html")


@click.command("report", cls=VerbCommand)
@shape_argument(
    "[MxNxK|KERNEL]...",
    "Shapes, ranges of them or user kernels; none for everything in the cache.",
    nargs=-1,
    shell_complete=complete_named,
)
@device_option
@family_option("Searches that were asked for this kernel family alone.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The page.  [default: report.html]",
)
@click.option(
    "--svg",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write each picture as SVG too; needs Chrome.",
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
    svg: Path | None,
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
    from autotune.report.selection import selected

    if json and csv_rows:
        raise UsageError("standard output takes --json or --csv, not both")
    printed = json or csv_rows
    if open_page and printed and out is None:
        raise UsageError("--json and --csv write no page to open; give --out")
    store = Store(settings.cache_dir())
    selection = selected(shapes, device, {}, store, family)
    if csv_rows:
        _print_csv(selection, store)
    if csv_rows and out is svg is None:
        return  # the analysis takes seconds
    data = _analysis(selection, store) if selection.single else _overview(selection, store)
    if svg is not None:
        _write_svgs(data, svg, quiet=printed)
    if out is not None or not printed:
        _write_page(data, out or DEFAULT_OUT, quiet=printed, open_page=open_page)
    if json:
        show_json(data.to_json())


def _analysis(selection: Selection, store: Store) -> Analysis:
    from datetime import datetime, timezone

    from autotune.maintenance.inventory import change, stale_change
    from autotune.report.analysis.subject import subject_of
    from autotune.report.analysis.whole import analysed
    from autotune.report.selection import device_option
    from autotune.targets import targets

    (record,), today = selection.records, targets.here()
    return analysed(
        subject_of(record, store.root),
        stale=stale_change(record, today),
        now=datetime.now(timezone.utc),
        device_option=device_option(record, selection.device_option),
        changed=change(record, today),
    )


def _overview(selection: Selection, store: Store) -> Overview:
    from datetime import datetime, timezone

    from autotune.maintenance.inventory import change, stale_change
    from autotune.report.analysis import overview
    from autotune.report.overview_page import Overview
    from autotune.targets import targets

    today, now = targets.here(), datetime.now(timezone.utc)
    records = selection.records
    rows = [
        *(
            overview.record_row(
                record,
                stale=stale_change(record, today),
                now=now,
                changed=change(record, today),
            )
            for record in records
        ),
        *(overview.answer_row(answer) for answer in selection.answers),
    ]
    return Overview(
        tuple(rows),
        overview.size_curves(records),
        tuple(overview.range_row(tuned) for tuned in selection.ranges(store)),
        overview.suggestions(rows, selection.device_option),
    )


def _write_svgs(data: Analysis | Overview, folder: Path, *, quiet: bool) -> None:
    from autotune.report.page.svg import write_svgs

    paths = write_svgs(_figures(data), folder)
    if not quiet:
        print(f"{folder}: {len(paths)} pictures")


def _figures(data: Analysis | Overview) -> dict[str, Any]:
    from autotune.report import overview_page, record_page
    from autotune.report.analysis.whole import Analysis

    if isinstance(data, Analysis):
        return record_page.record_figures(data)
    return overview_page.overview_figures(data)


def _write_page(data: Analysis | Overview, path: Path, *, quiet: bool, open_page: bool) -> None:
    from autotune.report import overview_page, record_page
    from autotune.report.analysis.whole import Analysis
    from autotune.report.page import write

    if isinstance(data, Analysis):
        text = record_page.record_page(data)
    else:
        text = overview_page.overview_page(data)
    write(path, text)
    if not quiet:
        print(f"{path}: {data.summary}")
    if open_page:
        import webbrowser

        if not webbrowser.open(path.resolve().as_uri()):
            print(f"no browser here; open {path.resolve()}", file=sys.stderr)


def _print_csv(selection: Selection, store: Store) -> None:
    import csv

    from autotune.report.analysis.subject import subject_of
    from autotune.report.analysis.trials import trial_table

    writer = csv.writer(sys.stdout)
    if selection.single:
        subject = subject_of(selection.records[0], store.root)
        if subject.note:
            print(f"warning: {subject.note}", file=sys.stderr)
        table = trial_table(subject)
        writer.writerow(column.name for column in table.columns)
        writer.writerows(table.rows)
    else:
        names, rows = _overview(selection, store).table
        writer.writerow(names)
        writer.writerows(rows)
