"""`autotune cache`: what lies in the cache, and how it is exchanged, checked and tidied."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.options import Json
from autotune.cli.output import SECONDS, show, show_json

if TYPE_CHECKING:
    from autotune.maintenance.exchange import ImportResult
    from autotune.maintenance.retiming import Retimed
    from autotune.records import Store, TuningRecord

STDOUT = "-"

OnDevice = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="Of this device alone: its name, its folder in the cache, or gpu.",
    ),
]


def app() -> typer.Typer:
    """The verbs below `autotune cache`."""
    verbs = typer.Typer(rich_markup_mode=None, invoke_without_command=True)
    verbs.callback()(_overview)
    for name, verb in (
        ("list", list_),
        ("export", export),
        ("import", import_),
        ("merge", merge),
        ("verify", verify),
        ("prune", prune),
    ):
        verbs.command(name)(verb)
    return verbs


def _overview(context: typer.Context) -> None:
    """What lies in the cache; export, import, merge, check and tidy it."""
    if context.invoked_subcommand is None:
        list_(json=False)


def list_(json: Json = False) -> None:
    """List what lies in the cache: records by device, programs, trials, and their bytes."""
    from autotune.maintenance.inventory import listed
    from autotune.report import cache

    root = _store().root
    items = listed(root)
    if json:
        show_json(cache.overview_json(root, items))
    else:
        show(cache.overview(root, items))


def export(
    file: Annotated[str, typer.Argument(metavar="FILE", help="To write; - for standard output.")],
    device: OnDevice = None,
    problem: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT...",
            help="These alone, such as 64x64x64:bf16:nn, or 64x64x64 for all of that shape.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write records and tuned ranges into one compact file; exit status 3 if there are none."""
    from autotune.errors import NotFoundError, UsageError
    from autotune.maintenance import exchange
    from autotune.records import bundle

    if json and file == STDOUT:
        raise UsageError("standard output takes the bundle or --json, not both; give a file")
    store = _store()
    found = exchange.chosen(store, _slug(store, device), problem or ())
    if not found.records and not found.ranges:
        raise NotFoundError(f"{store.root}: nothing recorded of what was asked for; see `list`")
    if file == STDOUT:
        sys.stdout.buffer.write(bundle.dumps(found.records, found.ranges))
        return
    size = exchange.write(Path(file), found)
    if json:
        counts = {"records": len(found.records), "ranges": len(found.ranges)}
        show_json({"file": file, **counts, "bytes": size})
    else:
        what = f"records {len(found.records)}, ranges {len(found.ranges)}"
        print(f"{file}: {what}, {size:,} bytes")


def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Bundles, or files of single records.")
    ],
    json: Json = False,
) -> None:
    """Merge bundles into the cache; nothing at all if one of them is broken."""
    from autotune.maintenance import exchange
    from autotune.targets import targets

    # All are read before the first is merged.
    found = [one for path in files for one in exchange.read(path)]
    _show_arrivals(exchange.absorb(_store(), found, targets.here()), json)


def merge(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Other cache directories.")
    ],
    json: Json = False,
) -> None:
    """Merge the records and ranges of other cache directories into this one."""
    from autotune.maintenance import exchange
    from autotune.targets import targets

    store, today = _store(), targets.here()
    found = [exchange.contents(root, store) for root in directories]
    for item in (item for _, broken in found for item in broken):
        print(f"warning: {item.path}: passed over: {item.fault}", file=sys.stderr)
    every = [one for contents, _ in found for one in contents]
    _show_arrivals(exchange.absorb(store, every, today), json)


def verify(
    retime: Annotated[
        bool,
        typer.Option("--retime", help="Measure the best of each stale record again, on the GPU."),
    ] = False,
    top: Annotated[int, typer.Option(min=1, help="So many of each.")] = 3,
    device: OnDevice = None,
    json: Json = False,
) -> None:
    """Check every file, and say which records are stale; exit status 1 if something is broken.

    A record is stale if it was measured with another driver, compiler or other kernels than this
    machine has today. It is still used.
    """
    from autotune.maintenance.inventory import inspect, stale_records
    from autotune.report import cache
    from autotune.targets import sources, targets

    store, today = _store(), targets.here()
    # Whether there is a GPU decides first: to look at all files may take a while.
    slug = targets.resolve(device or sources.DEFAULT).slug if retime else _slug(store, device)
    items = inspect(store.root)
    broken = [item for item in items if item.fault is not None]
    stale = [
        (record, why)
        for record, why in stale_records(items, today)
        if slug in (None, record.device.slug)
    ]
    if not json:
        if broken:
            show(cache.faults(broken))
        if stale and not retime:
            show(cache.stale(stale))
        print(f"{len(items)} files: {len(broken)} broken, {len(stale)} stale records")
    retimed = _retimed(store, stale, device, top, quiet=json) if retime else []
    if json:
        show_json(cache.verdict_json(items, stale, retimed))
    if broken or any(one.trouble for one in retimed):
        raise typer.Exit(1)


def prune(
    programs: Annotated[
        bool, typer.Option("--programs", help="Compiled programs that no record uses.")
    ] = False,
    broken: Annotated[bool, typer.Option("--broken", help="Broken files kept aside.")] = False,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Records that gave way to others.")
    ] = False,
    journals: Annotated[
        bool, typer.Option("--journals", help="Trials: a search begins anew without them.")
    ] = False,
    records: Annotated[
        bool, typer.Option("--records", help="Records and ranges, of --device alone.")
    ] = False,
    device: OnDevice = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="30d", help="Only what was written so long ago.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Delete nothing.")] = False,
    json: Json = False,
) -> None:
    """Delete what is not needed; by default --programs, --broken and --superseded.

    Never a record unless --records asks for it. Programs are compiled again when they are needed.
    """
    from autotune.errors import UsageError
    from autotune.maintenance import pruning
    from autotune.maintenance.inventory import listed

    if records and device is None:
        raise UsageError("--records deletes those of one device; give --device")
    if not (programs or broken or superseded or journals or records):
        programs = broken = superseded = True
    store = _store()
    doomed = pruning.chosen(
        listed(store.root),
        programs=programs,
        broken=broken,
        superseded=superseded,
        journals=journals,
        records=records,
        slug=_slug(store, device),
    )
    if older_than is not None:
        doomed = pruning.older(doomed, parse_age(older_than))
    size = sum(item.size for item in doomed) if dry_run else pruning.delete(doomed)
    if json:
        paths = [str(item.path) for item in doomed]
        show_json({"deleted": not dry_run, "files": paths, "bytes": size})
    else:
        print(f"{len(doomed)} files, {size:,} bytes {'to delete' if dry_run else 'deleted'}")


def parse_age(text: str) -> float:
    """Seconds of `30d`, `12h`, `90m` or `10s`.

    Raises:
        UsageError: for another form.
    """
    from autotune.errors import UsageError

    match = re.fullmatch(r"(\d{1,9})([smhd])", text.strip().lower())
    if match is None:
        raise UsageError(f"malformed age {text!r}; give 30d, 12h, 90m or 10s")
    return float(match[1]) * SECONDS[match[2]]


def _store() -> Store:
    from autotune import settings
    from autotune.records import Store

    return Store(settings.cache_dir())


def _slug(store: Store, device: str | None) -> str | None:
    """The name of a device's folders; None for all devices."""
    from autotune.targets import targets

    if device is None or any(path.name == device for path in store.root.glob("*/*/")):
        return device
    return targets.resolve(device).slug


def _show_arrivals(found: Sequence[ImportResult], json: bool) -> None:
    from dataclasses import asdict

    from autotune.report import cache

    if json:
        show_json({"arrivals": [asdict(one) for one in found]})
    else:
        print(cache.arrivals(found))


def _retimed(
    store: Store,
    stale: Sequence[tuple[TuningRecord, str]],
    device: str | None,
    top: int,
    *,
    quiet: bool,
) -> list[Retimed]:
    """Measures records of problems again, and says so one by one."""
    from autotune import compiler
    from autotune.maintenance.retiming import retime
    from autotune.records import Record
    from autotune.report import cache
    from autotune.targets import sources, targets

    records = [record for record, _ in stale if isinstance(record, Record)]
    opened = partial(targets.opened, device=device or sources.DEFAULT)
    compiled = partial(compiler.compile, cache=store.root)
    retimed = []
    for one in retime(records, opened, store, compiled, top=top):
        retimed.append(one)
        if not quiet:
            print(cache.outcome(one))
    return retimed
