"""Deletions from a cache: unused programs, copies set aside, trials, records."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable

from autotune import files
from autotune.candidates.legality import Legality
from autotune.cuda import compiler
from autotune.families import registry
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
    trials: bool,
    records: bool,
    slug: str | None,
    tuned: Iterable[object] = (),
) -> list[Item]:
    """The files of the chosen kinds.

    Args:
        items: the files of a cache.
        programs: programs that no record uses, of all devices.
        broken: copies of broken files.
        superseded: copies of replaced records.
        journals: the trials of earlier versions.
        trials: the trials of searches.
        records: records of problems and of user kernels, and ranges.
        slug: the device of all but programs; None for any.
        tuned: the records and ranges of the cache, which are read if it has programs.

    Raises:
        MissingError: if programs are asked for and there are some, without a compiler.
    """
    selected = aside(items, "broken") if broken else []
    selected += aside(items, "superseded") if superseded else []
    kinds = ("journal",) * journals + ("trials",) * trials
    kinds += ("record", "kernel", "range") * records
    selected += [item for item in items if item.kind in kinds]
    selected = [item for item in selected if slug in (None, item.path.parent.name)]
    return selected + (unused_programs(items, tuned) if programs else [])


def used(records: Iterable[Record]) -> frozenset[str]:
    """The names of the programs that the records' configurations compile to today.

    Raises:
        MissingError: without a compiler, whose version is part of the names.
    """
    wanted: dict[str, set[Template]] = defaultdict(set)
    for record in records:
        legal = Legality(record.problem, record.device)
        for config in (entry.config for entry in record.entries if legal(entry.config)):
            launches = registry.plan(config, record.problem).launches
            wanted[record.device.arch].update(launch.template for launch in launches)
    names = (compiler.named_keys(templates, arch).values() for arch, templates in wanted.items())
    return frozenset().union(*names)


def unused_programs(items: Collection[Item], tuned: Iterable[object]) -> list[Item]:
    """Programs that no record uses, and what interrupted compilations left.

    Programs of user kernels count as unused, because their sources are unknown here. A deleted
    program is compiled again when it is needed.

    Raises:
        MissingError: without a compiler.
    """
    programs = [item for item in items if item.kind == "program"]
    if programs:
        keys = used(record for record in tuned if isinstance(record, Record))
        programs = [item for item in programs if item.path.stem not in keys]
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
