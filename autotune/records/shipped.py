"""Records that come with the package.

    autotune/data/shipped/nvidia-h100-80gb-hbm3.jsonl.gz    a bundle for each model of GPU

A bundle is read once in a process, and only if its header names the device's model.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path

from autotune import settings
from autotune.device import Device, same_model
from autotune.problem import Problem
from autotune.records.bundle import BundleReader
from autotune.records.ranges import Range
from autotune.records.record import Record

PATTERNS = ("*.jsonl.gz", "*.json")
"""Files in the directory that are bundles; those of earlier versions end in `.json`."""


def record(device: Device, problem: Problem) -> Record | None:
    """The shipped record of a problem on the device's model; None if there is none."""
    serves = partial(same_model, device)
    return next(
        (found for reader in _readers(serves) if (found := reader.record(serves, problem))), None
    )


def records(device: Device) -> tuple[Record, ...]:
    """The shipped records of the device's model, by problem."""
    shipped = {found.problem: found for found in records_where(partial(same_model, device))}
    return tuple(shipped[problem] for problem in sorted(shipped))


def records_where(serves: Callable[[Device], bool]) -> Iterator[Record]:
    """The shipped records of all devices for which `serves` is true."""
    for reader in _readers(serves):
        yield from reader.records(serves)


def ranges(device: Device) -> tuple[Range, ...]:
    """The shipped tuned ranges of the device's model."""
    serves = partial(same_model, device)
    shipped = (tuned for reader in _readers(serves) for tuned in reader.ranges())
    return tuple(tuned for tuned in shipped if serves(tuned.device))


def paths(directory: Path) -> list[Path]:
    """The bundles in a directory of shipped records."""
    return sorted(path for pattern in PATTERNS for path in directory.glob(pattern))


def _readers(serves: Callable[[Device], bool]) -> Iterator[BundleReader]:
    """The readable bundles with records or ranges of a device for which `serves` is true."""
    for path in paths(settings.shipped_dir()):
        reader = _reader(path)
        if reader is not None and any(map(serves, reader.devices)) and _is_whole(path):
            yield reader


@lru_cache(maxsize=16)
def _reader(path: Path) -> BundleReader | None:
    """The bundle, whose header was read; None, with a warning, if it is broken."""
    try:
        return BundleReader(path.read_bytes())
    except (OSError, ValueError) as error:
        warnings.warn(f"{path}: passed over: {error}", stacklevel=2)
        return None


@lru_cache(maxsize=16)
def _is_whole(path: Path) -> bool:
    """Whether all lines of a bundle can be read; if not, it warns."""
    reader = _reader(path)
    try:
        if reader is not None:
            reader.verify()
    except ValueError as error:
        warnings.warn(f"{path}: passed over: {error}", stacklevel=2)
        return False
    return reader is not None
