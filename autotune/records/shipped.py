"""Records that come with the package, and those of a site before them.

    autotune/data/shipped/nvidia-h100-80gb-hbm3.jsonl.xz    a bundle for each model of GPU
    $AUTOTUNE_WISDOM_DIR                                    folders of bundles, separated as in PATH

A bundle is read once in a process, and only if its header names the device's model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

from autotune import files, settings
from autotune.device import Device, same_model
from autotune.files import limits
from autotune.problem import Problem
from autotune.records.bundle import BundleReader
from autotune.records.ranges import Range
from autotune.records.record import Record

T = TypeVar("T")

PATTERNS = ("*.jsonl.xz", "*.jsonl.gz", "*.json")
"""Files in the directory that are bundles; those of earlier versions are gzip, or plain JSON."""


def record(device: Device, problem: Problem) -> Record | None:
    """The shipped record of a problem on the device's model; None if there is none."""
    serves = partial(same_model, device)
    candidates = decoded(serves, lambda _, reader: reader.record(serves, problem))
    return next(filter(None, candidates), None)


def records(device: Device) -> tuple[Record, ...]:
    """The shipped records of the device's model, by problem."""
    listed = [*records_where(partial(same_model, device))]
    shipped = {record.problem: record for record in reversed(listed)}  # the first folder's stays
    return tuple(shipped[problem] for problem in sorted(shipped))


def records_where(serves: Callable[[Device], bool]) -> Iterator[Record]:
    """The shipped records of all devices for which `serves` is true."""
    return chain.from_iterable(decoded(serves, lambda _, reader: tuple(reader.records(serves))))


def ranges(device: Device) -> tuple[Range, ...]:
    """The shipped tuned ranges of the device's model."""
    serves = partial(same_model, device)
    shipped = chain.from_iterable(decoded(serves, lambda _, reader: tuple(reader.ranges())))
    return tuple(tuned for tuned in shipped if serves(tuned.device))


def paths(directory: Path) -> list[Path]:
    """The bundles in a directory of shipped records."""
    return sorted(path for pattern in PATTERNS for path in directory.glob(pattern))


def decoded(
    serves: Callable[[Device], bool], decode: Callable[[Path, BundleReader], T]
) -> Iterator[T]:
    """Decodes each bundle that names a device for which `serves` is true.

    A broken bundle, and a folder of a site that is missing, is skipped with a warning.
    """
    for path in chain.from_iterable(map(paths, _folders())):
        try:
            reader = _reader(path)
            if not any(map(serves, reader.devices)):
                continue
            content = decode(path, reader)
        except (OSError, ValueError) as error:
            warnings.warn(f"{path}: passed over: {error}", stacklevel=2)
        else:
            yield content


def _folders() -> Iterator[Path]:
    """The folders of a site, then that of the package."""
    for folder in settings.wisdom_dirs():
        if folder.is_dir():
            yield folder
        else:
            warnings.warn(f"AUTOTUNE_WISDOM_DIR: {folder} is no folder: passed over", stacklevel=2)
    yield settings.shipped_dir()


@lru_cache(maxsize=64)
def _reader(path: Path) -> BundleReader:
    """The bundle, of which the header was read."""
    return BundleReader(files.read(path, limits.BUNDLE))
