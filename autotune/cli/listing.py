"""`autotune cache list`: the kinds of files in the cache, or a row for each record."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import Json
from autotune.cli.output import show, show_json, show_line
from autotune.cli.stores import OnDevice, opened_store, slug_of

if TYPE_CHECKING:
    from autotune.maintenance.inventory import Item


def list_(
    problems: Annotated[
        bool, typer.Option("--problems", help="A row for each record, with its time and age.")
    ] = False,
    device: OnDevice = None,
    json: Json = False,
) -> None:
    """List the cache: records by device, programs, trials, and their sizes."""
    from autotune.errors import UsageError
    from autotune.maintenance.inventory import scan
    from autotune.report import cache

    if device is not None and not problems:
        raise UsageError("--device chooses among records; give --problems too")
    store = opened_store()
    root = store.root
    if problems:
        _list_problems([*scan(root)], slug_of(store, device), json)
        return
    totals = cache.totals(scan(root))
    if json:
        show_json(cache.overview_json(root, totals))
    else:
        show(cache.overview(root, totals))


def _list_problems(items: Sequence[Item], slug: str | None, json: bool) -> None:
    from autotune.maintenance.inventory import recorded
    from autotune.report import listing
    from autotune.targets import local, targets

    for item in items:
        if item.fault is not None:
            show_line(f"warning: {item.path}: passed over: {item.fault}", sys.stderr)
    records = [record for record in recorded(items) if slug in (None, record.device.slug)]
    rows = listing.rows(records, targets.here())
    if json:
        show_json({"records": listing.to_json(rows)})
    elif rows:
        show(listing.render(rows))
    else:
        print(f"no records; `autotune tune 1024x1024x1024{local.option_here()}` makes one")
