"""Deletions from a cache: unused programs, copies set aside, journals, records."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable

from autotune import compiler, files
from autotune.candidates import space
from autotune.errors import ConfigError
from autotune.families import registry
from autotune.families.config import Config
from autotune.families.plan import Template
from autotune.maintenance.inventory import Item
from autotune.records import Record

BUSY_S = 3600.0
"""A temporary file is deleted only after this long, when no running writer can still use it."""


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
    """The files of the chosen kinds.

    Args:
        items: the files of a cache.
        programs: programs that no record uses, of all devices.
        broken: copies of broken files.
        superseded: copies of replaced records.
        journals: the trials of searches.
        records: records of problems and of user kernels, and ranges.
        slug: the device of all but programs; None for any.

    Raises:
        MissingError: if programs are asked for, without a compiler.
    """
    selected = aside(items, "broken") if broken else []
    selected += aside(items, "superseded") if superseded else []
    kinds = ("journal",) * journals + ("record", "kernel", "range") * records
    selected += [item for item in items if item.kind in kinds]
    selected = [item for item in selected if slug in (None, item.path.parent.name)]
    return selected + (unused_programs(items) if programs else [])


def used(records: Iterable[Record]) -> frozenset[str]:
    """The names of the programs that the records' configurations compile to today.

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

    Programs of user kernels count as unused, because their sources are unknown here. A deleted
    program is compiled again when it is needed.

    Raises:
        MissingError: without a compiler.
    """
    keys = used(item.content for item in items if isinstance(item.content, Record))
    programs = [item for item in items if item.kind == "program" and item.path.stem not in keys]
    return programs + leftovers(items)


def leftovers(items: Iterable[Item]) -> list[Item]:
    """Temporary files of interrupted writers."""
    return older((item for item in items if item.kind == "leftover"), BUSY_S)


def aside(items: Iterable[Item], why: str) -> list[Item]:
    """Copies of replaced files: `broken` or `superseded` ones."""
    return [item for item in items if item.kind == "aside" and f".{why}-" in item.path.name]


def older(items: Iterable[Item], seconds: float) -> list[Item]:
    """The items last written at least so many seconds ago."""
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
    """The templates a configuration launches for the record's problem; none if illegal now."""
    try:
        if space.rejection(config, record.problem, record.device, recorded=True) is not None:
            return frozenset()
    except ConfigError:  # of a family that no longer exists
        return frozenset()
    plan = registry.plan(config, record.problem)
    return frozenset(launch.template for launch in plan.launches)
