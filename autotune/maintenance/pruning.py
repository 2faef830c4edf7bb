"""What of a cache can be deleted: programs that no record uses, and files that were set aside."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable

from autotune import compiler
from autotune.candidates import space
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.maintenance.inventory import Item
from autotune.records import Record, files

BUSY_S = 3600.0
"""What an interrupted writer left is deleted only when no living one can be at it any more."""


def chosen(
    items: Collection[Item],
    *,
    programs: bool,
    broken: bool,
    superseded: bool,
    journals: bool,
    records: bool,
    slug: str | None,
) -> list[Item]:
    """What is asked for, of what lies in a cache.

    Args:
        items: what lies there.
        programs: those that no record uses; they are of no one device.
        broken: files that were kept aside as they were broken.
        superseded: records that gave way to others.
        journals: the trials of searches.
        records: records of problems and of kernels of the user's, and ranges.
        slug: of the device that all but programs must be of; None for any.

    Raises:
        MissingError: if programs are asked for, without a compiler.
    """
    found = aside(items, "broken") if broken else []
    found += aside(items, "superseded") if superseded else []
    kinds = ("journal",) * journals + ("record", "kernel", "range") * records
    found += [item for item in items if item.kind in kinds]
    found = [item for item in found if slug in (None, item.path.parent.name)]
    return found + (unused_programs(items) if programs else [])


def used(records: Iterable[Record]) -> frozenset[str]:
    """The names of the programs that today's kernels, compiler and the records' configurations
    make.

    Raises:
        MissingError: without a compiler, whose version is part of the names.
    """
    wanted: dict[str, set[Template]] = defaultdict(set)
    for record in records:
        for entry in record.entries:
            wanted[record.device.arch] |= _templates(entry.config, record)
    names = (compiler.keys(templates, arch) for arch, templates in wanted.items())
    return frozenset().union(*names)


def unused_programs(items: Collection[Item]) -> list[Item]:
    """Programs that no record uses, and what interrupted compilations left.

    Programs of kernels of the user's are among them: what they are made of is not known here. All
    that is deleted is compiled again when it is needed.

    Raises:
        MissingError: without a compiler.
    """
    keys = used(item.content for item in items if isinstance(item.content, Record))
    programs = [item for item in items if item.kind == "program" and item.path.stem not in keys]
    return programs + leftovers(items)


def leftovers(items: Iterable[Item]) -> list[Item]:
    """What interrupted writers left."""
    return older((item for item in items if item.kind == "leftover"), BUSY_S)


def aside(items: Iterable[Item], why: str) -> list[Item]:
    """Files that were kept when others took their places: `broken` or `superseded` ones."""
    return [item for item in items if item.kind == "aside" and f".{why}-" in item.path.name]


def older(items: Iterable[Item], seconds: float) -> list[Item]:
    """Those that were written last so long ago."""
    latest = time.time() - seconds
    return [item for item in items if item.modified <= latest]


def delete(items: Iterable[Item]) -> int:
    """Deletes files; returns how many bytes they took.

    Raises:
        CacheError: if the cache cannot be written.
    """
    freed = 0
    for item in items:
        files.delete(item.path)
        freed += item.size
    return freed


def _templates(config: Config, record: Record) -> frozenset[Template]:
    """What a configuration launches for the record's problem; nothing if it is not legal today."""
    try:
        if space.rejection(config, record.problem, record.device) is not None:
            return frozenset()
    except ConfigError:  # of a family that there is no more
        return frozenset()
    plan = registry.plan(config, record.problem)
    return frozenset(launch.template for launch in plan.launches)
