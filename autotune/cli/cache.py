"""`autotune cache`: list, export, import, merge, verify and prune what is recorded."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from autotune.cli.comparing import fingerprint
from autotune.cli.listing import list_
from autotune.cli.options import Json, VerbCommand, VerbGroup
from autotune.cli.output import SECONDS, show, show_json, show_line
from autotune.cli.stores import Kernels, OnDevice, absorb, opened_store, slug_of

if TYPE_CHECKING:
    from autotune.maintenance.inventory import ChangedRecord, Item
    from autotune.maintenance.retiming import Retimed
    from autotune.records import Store, TuningRecord
    from autotune.records.ranges import Range

STDOUT = "-"


def app() -> typer.Typer:
    """The verbs below `autotune cache`."""
    verbs = typer.Typer(
        cls=VerbGroup, rich_markup_mode=None, add_completion=False, invoke_without_command=True
    )
    verbs.callback()(overview)
    for name, verb in (
        ("list", list_),
        ("export", export),
        ("import", import_),
        ("merge", merge),
        ("verify", verify),
        ("prune", prune),
        ("fingerprint", fingerprint),
    ):
        verbs.command(name, cls=VerbCommand)(verb)
    return verbs


def overview(context: typer.Context) -> None:
    """List the cache; export, import, merge, verify, prune and compare it."""
    if context.invoked_subcommand is None:
        list_(json=False)


def export(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Bundle; - for standard output.")],
    device: OnDevice = None,
    problem: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT...",
            help="Only these, such as 64x64x64:bf16:nn, or 64x64x64 for all of that shape.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write records and tuned ranges into one compact file; exit status 3 if there are none."""
    from autotune.errors import NotFoundError, UsageError
    from autotune.maintenance import exchange

    if json and file == STDOUT:
        raise UsageError("standard output takes the bundle or --json, not both; give a file")
    store = opened_store()
    chosen = exchange.chosen(store, slug_of(store, device), problem or ())
    if not chosen.records and not chosen.ranges:
        raise NotFoundError(f"{store.root}: no matching record or range; see `list`")
    if file == STDOUT:
        for piece in exchange.pieces(chosen):
            sys.stdout.buffer.write(piece)
        return
    size = exchange.write(Path(file), chosen)
    if json:
        counts = {"records": len(chosen.records), "ranges": len(chosen.ranges)}
        show_json({"file": file, **counts, "bytes": size})
    else:
        contents = f"records {len(chosen.records)}, ranges {len(chosen.ranges)}"
        show_line(f"{file}: {contents}, {size:,} bytes")


def import_(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Bundles, or files of single records.")
    ],
    kernels: Kernels = False,
    json: Json = False,
) -> None:
    """Merge bundles into the cache. If one is broken, nothing is merged."""
    from autotune.maintenance import exchange

    def contents() -> Iterator[TuningRecord | Range]:
        return chain.from_iterable(map(exchange.read, files))

    absorb(opened_store(), contents, kernels, json)


def merge(
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR...", help="Other cache directories.")
    ],
    kernels: Kernels = False,
    json: Json = False,
) -> None:
    """Merge the records and ranges of other cache directories into this one."""
    from autotune.maintenance import exchange

    store = opened_store()
    for root in directories:
        exchange.check_folder(root, store)

    faults: dict[Path, str] = {}

    def contents() -> Iterator[TuningRecord | Range]:
        for item in chain.from_iterable(map(exchange.contents, directories)):
            if item.fault is not None:
                faults[item.path] = item.fault
            elif item.content is not None:
                yield item.content

    absorb(store, contents, kernels, json)
    for path, fault in faults.items():
        show_line(f"warning: {path}: passed over: {fault}", sys.stderr)


def verify(
    retime: Annotated[
        bool,
        typer.Option("--retime", help="Time the best configurations of each changed record again."),
    ] = False,
    top: Annotated[int, typer.Option(min=1, help="Number of configurations of each record.")] = 3,
    device: OnDevice = None,
    json: Json = False,
) -> None:
    """Check every file and list changed records; exit status 1 if a file is broken.

    A record is stale if its kernel would be compiled from other sources now. It is still used.
    Another driver or compiler makes no record stale; --retime measures such records again too.
    """
    from autotune.maintenance.inventory import scan, verdict
    from autotune.report import cache
    from autotune.targets import sources, targets

    store, today = opened_store(), targets.here()
    # Fail early without a GPU: inspecting all files may take a while.
    slug = targets.resolve(device or sources.DEFAULT).slug if retime else slug_of(store, device)
    count, broken, changed = verdict(scan(store.root, thorough=True), today, slug)
    if not json:
        if broken:
            show(cache.faults(broken))
        for stale in () if retime else (True, False):
            if table := cache.changed(changed, stale=stale):
                show(table)
        stale_count = sum(row.stale for row in changed)
        print(f"{count} files: {len(broken)} broken, {stale_count} stale records")
    retimed = _retimed(store, changed, device, top, quiet=json) if retime else []
    if json:
        show_json(cache.verdict_json(count, broken, changed, retimed))
    if broken or any(result.trouble for result in retimed):
        raise typer.Exit(1)


def prune(
    programs: Annotated[
        bool, typer.Option("--programs", help="Delete compiled programs that no record uses.")
    ] = False,
    broken: Annotated[
        bool, typer.Option("--broken", help="Delete broken files set aside.")
    ] = False,
    mend: Annotated[
        bool, typer.Option("--mend", help="Mend the broken files that verify names.")
    ] = False,
    superseded: Annotated[
        bool, typer.Option("--superseded", help="Delete records that were replaced.")
    ] = False,
    journals: Annotated[
        bool, typer.Option("--journals", help="Delete trials; searches then start over.")
    ] = False,
    records: Annotated[
        bool, typer.Option("--records", help="Delete the records and ranges of --device.")
    ] = False,
    device: OnDevice = None,
    older_than: Annotated[
        str | None, typer.Option(metavar="30d", help="Only files older than this.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List files, delete none.")] = False,
    json: Json = False,
) -> None:
    """Delete files that are not needed; by default --programs, --broken, --superseded, --mend.

    A broken file is mended, or set aside, so that verify names it no more.

    Records are deleted with --records only. Programs are compiled again when they are needed.
    """
    from autotune.errors import UsageError
    from autotune.maintenance import pruning
    from autotune.maintenance.inventory import scan

    if records and device is None:
        raise UsageError("--records deletes those of one device; give --device")
    if not (programs or broken or superseded or journals or records or mend):
        programs = broken = superseded = mend = True
    store = opened_store()
    # Without their contents, which take gigabytes together.
    items = [replace(item, content=None) for item in scan(store.root, thorough=mend)]
    unneeded = pruning.chosen(
        items,
        programs=programs,
        broken=broken,
        superseded=superseded,
        journals=journals,
        records=records,
        slug=slug_of(store, device),
        tuned=(item.content for item in scan(store.root)),
    )
    age = None if older_than is None else parse_age(older_than)
    if age is not None:
        unneeded = pruning.older(unneeded, age)
    size = sum(item.size for item in unneeded) if dry_run else pruning.delete(unneeded)
    gone = {item.path for item in unneeded}
    rest = [item for item in items if item.path not in gone] if mend else []
    mended = _mended(rest, slug_of(store, device), age, dry_run)
    if json:
        paths = [str(item.path) for item in unneeded]
        also = {"mended": mended} if mend else {}
        show_json({"deleted": not dry_run, "files": paths, "bytes": size} | also)
        return
    for path, done in mended.items():
        show_line(f"{path}: {done}")
    print(f"{len(unneeded)} files, {size:,} bytes {'to delete' if dry_run else 'deleted'}")


def _mended(
    items: Sequence[Item], slug: str | None, age: float | None, dry_run: bool
) -> dict[str, str]:
    """A line for each broken file and its repair."""
    from autotune.maintenance import pruning
    from autotune.maintenance.mending import mend

    faults = [item for item in items if item.fault is not None]
    chosen = [item for item in faults if slug in (None, item.path.parent.name)]
    chosen = chosen if age is None else pruning.older(chosen, age)
    return {str(item.path): "to mend" if dry_run else mend(item) for item in chosen}


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


def _retimed(
    store: Store,
    changed: Sequence[ChangedRecord],
    device: str | None,
    top: int,
    *,
    quiet: bool,
) -> list[Retimed]:
    """Times the records of problems again and prints each result."""
    from autotune import compiler
    from autotune.maintenance.retiming import retime
    from autotune.records import Record
    from autotune.report import cache
    from autotune.targets import sources, targets

    records = [row.record for row in changed if isinstance(row.record, Record)]
    opened = partial(targets.opened, device=device or sources.DEFAULT)
    compiled = partial(compiler.compile, cache=store.root)
    retimed = []
    for result in retime(records, opened, store, compiled, top=top):
        retimed.append(result)
        if not quiet:
            show_line(cache.outcome(result))
    return retimed
