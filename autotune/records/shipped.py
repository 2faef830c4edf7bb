"""Records that come with the package, and those of a site before them.

    autotune/data/shipped/nvidia-h100-80gb-hbm3.jsonl.xz    a bundle for each model of GPU
    $AUTOTUNE_SITE_DIR                                      folders of bundles, separated as in PATH

A file is read again only when it changes, and a bundle in it only if its header names the device's
model. A file that is broken, or has more than look-ups read (`limits.BUNDLE_RECORDS` records,
`limits.BUNDLE_TEXT` bytes), is skipped with a warning.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

from autotune import files, settings
from autotune.device import Device, same_model
from autotune.files import limits
from autotune.problem import Problem
from autotune.records.bundle import IMPORT_IT, BundleReader, chunks
from autotune.records.ranges import Range
from autotune.records.record import Record, first_of_best, first_of_each_problem
from autotune.settings import warn_once

T = TypeVar("T")

PATTERNS = ("*.jsonl.xz", "*.jsonl.gz")
"""Files in the directory that are bundles; those of earlier versions are gzip."""


def record(device: Device, problem: Problem) -> Record | None:
    """The shipped record of a problem on the device's model, of those with the best evidence that
    of the first folder; None if there is none."""
    serves = partial(same_model, device)
    return first_of_best(decoded(serves, lambda _, reader: reader.record(serves, problem)))


def records(device: Device) -> tuple[Record, ...]:
    """The shipped record of each problem on the device's model (see `record`), by problem."""
    return tuple(first_of_each_problem(records_where(partial(same_model, device))))


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

    A broken file, and a folder of a site that is missing, is skipped with a warning.
    """
    for path in bundles():
        try:
            file = _file(path, files.identity(path.stat()))
        except OSError as error:
            warn_once(f"{path}: skipped: cannot be read: {error.strerror}")
            continue
        try:
            for reader in () if file.fault else file.readers:
                if any(map(serves, reader.devices)):
                    yield decode(path, reader)
        except ValueError as error:
            file.fault = str(error)
        if file.fault:
            warn_once(f"{path}: skipped: {file.fault}")


def bundles() -> Iterator[Path]:
    """The files of bundles, in the order in which look-ups read them."""
    return chain.from_iterable(map(paths, _folders()))


def _folders() -> Iterator[Path]:
    for folder in settings.site_dirs():
        if folder.is_dir():
            yield folder
        else:
            warn_once(f"AUTOTUNE_SITE_DIR: {folder} is not a folder: skipped")
    yield settings.shipped_dir()


class _File:
    """The bundles of a file, whose headers were read, and why the file is skipped, if it is."""

    def __init__(self, path: Path) -> None:
        self.readers: list[BundleReader] = []
        self.fault = ""
        try:
            parts = [*chunks(io.BytesIO(files.read(path, limits.BUNDLE)))]
            most = limits.BUNDLE_TEXT // len(parts)
            self.readers = [BundleReader(part, most) for part in parts]
        except OSError as error:
            advice = f"; {IMPORT_IT}" if error.errno == errno.EFBIG else ""
            self.fault = f"cannot be read: {error.strerror}{advice}"
        except ValueError as error:
            self.fault = str(error)
        if (count := sum(map(len, self.readers))) > limits.BUNDLE_RECORDS:
            self.fault = f"it has {count} records, over {limits.BUNDLE_RECORDS}; {IMPORT_IT}"


@lru_cache(maxsize=64)
def _file(path: Path, identity: tuple[int, ...]) -> _File:
    del identity  # a file that changed is another
    return _File(path)
