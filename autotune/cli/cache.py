"""The verbs below `autotune cache`: list, export, import, verify and prune records."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autotune.cli.options import (
    VerbArgument,
    VerbGroup,
    complete_devices,
    complete_named,
    json_option,
    names_kernel,
    refuse,
    seconds_of,
    shape_argument,
    show,
    show_json,
    show_line,
)
from autotune.errors import UsageError

if TYPE_CHECKING:
    from autotune.records import Store, TuningRecord
    from autotune.records.ranges import Range
    from autotune.tuning.retiming import Retimed

STDOUT = "-"

_AGES = "30d, 12h, 90m or 10s"

KINDS = ("programs", "broken", "superseded", "journals", "trials", "records")
"""The kinds of files that `prune` deletes."""

USUAL_KINDS = ("programs", "broken", "superseded", "journals")
"""The kinds that `prune` takes by default."""


device_filter = click.option(
    "--device",
    metavar="NAME",
    shell_complete=complete_devices,
    help="Only this device: its name, its folder in the cache, or gpu.",
)


@click.group(
    "cache", cls=VerbGroup, invoke_without_command=True, subcommand_metavar="[COMMAND] [ARGS]..."
)
@click.pass_context
def cache(context: click.Context) -> None:
    """List, export, import, verify and prune records.

    Without a verb it lists the cache.
    """
    if context.invoked_subcommand is None:
        _list_kinds(json=False)


@cache.command("list")
@shape_argument(
    "[MxNxK|KERNEL]...",
    "Only the records of these; none for all.",
    nargs=-1,
    shell_complete=complete_named,
)
@click.option("--problems", is_flag=True, help="Print a row for each record: its time and age.")
@click.option(
    "--fingerprint",
    is_flag=True,
    help="Print a hash of the kernels that look-ups choose; equal kernels have equal hashes.",
)
@click.option(
    "--batch-invariant",
    is_flag=True,
    help="With --fingerprint: answer from batch-invariant ranges alone.",
)
@device_filter
@json_option
def list_(
    shapes: tuple[str, ...],
    problems: bool,
    fingerprint: bool,
    batch_invariant: bool,
    device: str | None,
    json: bool,
) -> None:
    """List the cache: records by device, programs, trials, and their sizes.

    With shapes or --problems it lists the records.
    """
    if fingerprint:
        refuse("--fingerprint", problems=problems)
        _show_fingerprint(shapes, device, batch_invariant, json)
        return
    if batch_invariant:
        raise UsageError("--batch-invariant is of --fingerprint; give it too")
    if problems or shapes:
        _list_records(shapes, device, json)
        return
    if device is not None:
        raise UsageError("--device chooses among records; give --problems too")
    _list_kinds(json)


def _list_kinds(json: bool) -> None:
    from autotune.records.inventory import scan
    from autotune.report import cache

    root = _opened_store().root
    totals = cache.totals(scan(root))
    show_json(cache.overview_json(root, totals)) if json else show(cache.overview(root, totals))


def _list_records(shapes: Sequence[str], device: str | None, json: bool) -> None:
    from autotune.measure import devices, targets
    from autotune.records.inventory import recorded, scan
    from autotune.report import listing
    from autotune.report.selection import matching

    store = _opened_store()
    items = [*scan(store.root)]
    slug = _slug_of(store, device)
    for item in items:
        if item.fault is not None:
            show_line(f"warning: {item.path}: skipped: {item.fault}", sys.stderr)
    records = [
        record
        for record in recorded(items)
        if slug in (None, record.device.slug)
        and (not shapes or any([*matching(shape, (record,))] for shape in shapes))
    ]
    rows = listing.record_rows(records, targets.here())
    if json:
        show_json({"records": [asdict(row) for row in rows]})
    elif rows:
        show(listing.record_table(rows))
    elif shapes:
        print(f"no records of {', '.join(shapes)}")
    else:
        print(f"no records; `autotune tune 1024x1024x1024{devices.option_here()}` makes one")


def _show_fingerprint(
    shapes: Sequence[str], device: str | None, batch_invariant: bool, json: bool
) -> None:
    from autotune.api.lookups import fingerprint
    from autotune.measure.devices import DEFAULT
    from autotune.problem import problems_of
    from autotune.report import cache

    if named := [word for word in shapes if names_kernel(word)]:
        raise UsageError(f"{named[0]}: a fingerprint is of shapes; leave user kernels out")
    ours = fingerprint(
        *problems_of(shapes), device=device or DEFAULT, batch_invariant=batch_invariant
    )
    if json:
        show_json(cache.fingerprint_json(ours))
    elif shapes:
        show(cache.fingerprint_table(ours))
    else:
        print(ours)


@cache.command("export")
@click.argument(
    "file",
    cls=VerbArgument,
    metavar="FILE",
    text="Bundle; - for standard output.",
    type=click.Path(allow_dash=True),
)
@shape_argument(
    "[MxNxK]...",
    "Only these, such as 64x64x64:bf16:nn, or 64x64x64 for all of that shape.",
    nargs=-1,
)
@click.option(
    "--submit",
    is_flag=True,
    help="Write the measured records of one card and the tools that measured them, for the next "
    "release.",
)
@click.option(
    "--t4",
    is_flag=True,
    help="Write the trials of one shape or user kernel as T4 results, which other tuners read.",
)
@device_filter
@json_option
def export(
    file: str, shapes: tuple[str, ...], submit: bool, t4: bool, device: str | None, json: bool
) -> None:
    """Write records and tuned ranges into one compact file; exit status 3 if there are none."""
    from autotune.cuda import cublaslt
    from autotune.errors import NotFoundError
    from autotune.measure import targets
    from autotune.records import bundle, exchange

    if json and file == STDOUT:
        raise UsageError("standard output takes the bundle or --json, not both; give a file")
    store = _opened_store()
    if t4:
        refuse("--t4", submit=submit, json=json)
        _export_t4(Path(file), store, shapes, device)
        return
    chosen = exchange.chosen(store, _slug_of(store, device), shapes)
    if not chosen.records and not chosen.ranges:
        raise NotFoundError(f"{store.root}: no matching record or range; see `list`")
    if submit:
        chosen = exchange.submitted(chosen, targets.here(), cublaslt.version())
    if file == STDOUT:
        for piece in bundle.written(chosen):
            sys.stdout.buffer.write(piece)
        return
    size = exchange.write(Path(file), chosen)
    counts = {"records": len(chosen.records), "ranges": len(chosen.ranges)}
    if json:
        show_json({"file": file, **counts, "bytes": size})
        return
    show_line(f"{file}: records {counts['records']}, ranges {counts['ranges']}, {size:,} bytes")
    if chosen.submission:
        show_line(f"{chosen.submission}; CONTRIBUTING.md says where to send it")


def _export_t4(path: Path, store: Store, shapes: Sequence[str], device: str | None) -> None:
    from autotune.api.tuning import save_t4
    from autotune.report.selection import selected

    records = selected(shapes, device, store).records
    if len(records) != 1:
        raise UsageError(
            f"--t4 writes the trials of one record, {len(records)} match; give a shape or the name "
            "of a user kernel, and --device"
        )
    show_line(f"{path}: {save_t4(records[0], store, path)} trials of {records[0].title}")


@cache.command("import")
@click.argument(
    "paths",
    nargs=-1,
    required=True,
    cls=VerbArgument,
    metavar="FILE|DIR...",
    type=click.Path(path_type=Path),
    text="Bundles, files of single records, or other cache directories.",
)
@click.option(
    "--kernels", is_flag=True, help="Take user kernels too: list their sources and options first."
)
@json_option
def import_(paths: tuple[Path, ...], kernels: bool, json: bool) -> None:
    """Merge bundles and other cache directories into the cache.

    If a bundle is broken, nothing is merged; a broken file of a directory is skipped.
    """
    from autotune.measure import targets
    from autotune.records import KernelRecord, exchange, inventory
    from autotune.report import cache

    store, faults = _opened_store(), dict[Path, str]()
    folders = {path for path in paths if path.is_dir()}
    for folder in folders:
        if store.root.exists() and folder.samefile(store.root):
            raise UsageError(f"{folder} is the cache itself; give another directory")

    def contents() -> Iterator[TuningRecord | Range]:
        for path in paths:
            if path not in folders:
                yield from exchange.read(path)
                continue
            for item in inventory.scan(path):
                if item.fault is not None:
                    faults[item.path] = item.fault
                elif item.content is not None:
                    yield item.content

    # All of it is read once before any is merged.
    own = [content for content in contents() if isinstance(content, KernelRecord)]
    if own and not json:
        left_out = f"user kernels skipped: {len(own)}; they bring source code, --kernels takes them"
        print(cache.kernels(own) if kernels else left_out)
    results = exchange.absorb(store, contents(), targets.here(), kernels=kernels)
    if json:
        listed = {"kernels": cache.kernels_json(own), "kernels_skipped": not kernels} if own else {}
        show_json({"arrivals": [asdict(result) for result in results]} | listed)
    else:
        print(cache.import_summary(results))
    for path, fault in faults.items():
        show_line(f"warning: {path}: skipped: {fault}", sys.stderr)


@cache.command("verify")
@click.option(
    "--retime", is_flag=True, help="Time the best configurations of each changed record again."
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    metavar="N",
    help="Number of configurations of each record.",
)
@device_filter
@json_option
def verify(retime: bool, top: int, device: str | None, json: bool) -> None:
    """Check every file and list changed records; exit status 1 if a file is broken.

    A record is stale if the sources of its kernel changed and the machine code did not stay the
    same. It is still used. verify compiles kernels of changed sources, and keeps records of the
    same code. Another driver or compiler makes no record stale; --retime measures such records
    again too.
    """
    from autotune.cuda import compiler
    from autotune.measure import devices, targets
    from autotune.records import Record
    from autotune.records.inventory import renewed, scan, stamp, verification
    from autotune.report import cache

    store, today = _opened_store(), targets.here()
    # Fail early without a GPU: inspecting all files may take a while.
    slug = targets.resolve(device or devices.DEFAULT).slug if retime else _slug_of(store, device)
    count, broken, changed = verification(scan(store.root, thorough=True), today, slug)
    stale_records = [row.record for row in changed if row.stale]
    compiled = partial(compiler.compile, cache=store.root)
    stamped = stamp(stale_records, today, store, compiled)
    changed = renewed(changed, stamped, today)
    if not json:
        if broken:
            show(cache.faults(broken))
        for stale in () if retime else (True, False):
            if table := cache.changed(changed, stale=stale):
                show(table)
        stale_count = sum(row.stale for row in changed)
        same = f", {len(stamped)} stamped (same machine code)" if stamped else ""
        print(f"{count} files: {len(broken)} broken, {stale_count} stale records{same}")
    retimed: list[Retimed] = []
    if retime:
        from autotune.tuning import retiming

        records = [row.record for row in changed if isinstance(row.record, Record)]
        opened = partial(targets.opened, device=device or devices.DEFAULT)
        for result in retiming.retime(records, opened, store, compiled, top=top):
            retimed.append(result)
            if not json:
                show_line(cache.outcome(result))
    if json:
        show_json(cache.verification_json(count, broken, changed, retimed, len(stamped)))
    if broken or any(result.trouble for result in retimed):
        raise click.exceptions.Exit(1)


@cache.command("prune")
@click.argument(
    "kinds",
    nargs=-1,
    cls=VerbArgument,
    metavar="[KIND]...",
    type=click.Choice(KINDS),
    text="programs: compiled programs that no record uses; broken: copies of broken files; "
    "superseded: records that were replaced; journals: trials of earlier versions, which are not "
    "read; trials: logs of trials, so that searches start over; records: the records and ranges of "
    "--device.  [default: programs, broken, superseded, journals]",
)
@device_filter
@click.option("--older-than", metavar="30d", help="Only files older than this.")
@click.option("--dry-run", is_flag=True, help="List files, delete none.")
@json_option
def prune(
    kinds: tuple[str, ...], device: str | None, older_than: str | None, dry_run: bool, json: bool
) -> None:
    """Delete files that are not needed; by default programs, broken, superseded, journals.

    Records are deleted by name only. Programs are compiled again when they are needed.
    """
    from autotune.records import inventory

    wanted = {*kinds} or {*USUAL_KINDS}
    if "records" in wanted and device is None:
        raise UsageError("prune deletes the records of one device; give --device")
    store = _opened_store()
    # Without their contents, which take gigabytes together.
    items = [replace(item, content=None) for item in inventory.scan(store.root)]
    tuned = (item.content for item in inventory.scan(store.root))
    unneeded = inventory.chosen(items, wanted, _slug_of(store, device), tuned)
    if older_than is not None:
        age = seconds_of(older_than, "age", _AGES, units="smhd")
        unneeded = inventory.older(unneeded, age)
    size = sum(item.size for item in unneeded) if dry_run else inventory.delete(unneeded)
    if json:
        paths = [str(item.path) for item in unneeded]
        show_json({"deleted": not dry_run, "files": paths, "bytes": size})
        return
    print(f"{len(unneeded)} files, {size:,} bytes {'to delete' if dry_run else 'deleted'}")


def _opened_store() -> Store:
    from autotune import settings
    from autotune.records import Store

    return Store(settings.cache_dir())


def _slug_of(store: Store, device: str | None) -> str | None:
    """The folder name of a device; None for all devices."""
    from autotune.measure import targets

    if device is None or any(path.name == device for path in store.root.glob("*/*/")):
        return device
    return targets.resolve(device).slug
