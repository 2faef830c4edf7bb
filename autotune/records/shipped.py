"""Records that come with the package.

autotune/data/shipped/nvidia-h100-80gb-hbm3.json    a bundle for each model of GPU
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

from autotune import settings
from autotune.device import Device, same_model
from autotune.problem import Problem
from autotune.records import bundle
from autotune.records.bundle import Bundle
from autotune.records.ranges import Range
from autotune.records.record import Record


def record(device: Device, problem: Problem) -> Record | None:
    """The shipped record of a problem on the device's model; None if there is none."""
    return next((found for found in records(device) if found.problem == problem), None)


def records(device: Device) -> tuple[Record, ...]:
    """The shipped records of the device's model, by problem."""
    by_problem = {
        record.problem: record
        for record in records_where(lambda candidate: same_model(candidate, device))
    }
    return tuple(by_problem[problem] for problem in sorted(by_problem))


def records_where(serves: Callable[[Device], bool]) -> Iterator[Record]:
    """The shipped records of all devices for which `serves` is true."""
    for shipped in _bundles():
        yield from (record for record in shipped.records if serves(record.device))


def ranges(device: Device) -> tuple[Range, ...]:
    """The shipped tuned ranges of the device's model."""
    shipped = (tuned for found in _bundles() for tuned in found.ranges)
    return tuple(tuned for tuned in shipped if same_model(tuned.device, device))


def _bundles() -> list[Bundle]:
    return [_bundle(path) for path in sorted(settings.shipped_dir().glob("*.json"))]


@lru_cache(maxsize=16)
def _bundle(path: Path) -> Bundle:
    """The file, read once in a process; empty, with a warning, if it is broken."""
    try:
        return bundle.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        warnings.warn(f"{path}: passed over: {error}", stacklevel=2)
        return Bundle(())
