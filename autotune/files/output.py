"""Files that the user named: what they hold is never replaced unless the package wrote it.

Each kind of file begins in a way of its own, by which later runs know their own files.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.files.reading import KINDS, first_stream, opened
from autotune.files.writing import write_whole

HEAD = 2**16
"""Bytes at the beginning of a file that tell its kind."""


@dataclass(frozen=True)
class OutputKind:
    """A kind of file that the package writes where the user says.

    Attributes:
        noun: the kind in a word, such as `page`.
        starts: the beginnings of such files, or of the text in them if they are compressed.
    """

    noun: str
    starts: tuple[bytes, ...]


def write(path: Path, data: bytes, kind: OutputKind) -> None:
    """Writes a file that the user named, whole or not at all.

    An existing file is replaced only if it is empty or of the kind, and keeps its mode and owner. A
    link stays, and its target is written. A device or a named pipe is written into.

    Raises:
        AutotuneError: if it cannot be written, or something else is there.
    """
    try:
        status = _status(path)
        if status is None or stat.S_ISREG(status.st_mode):
            if status is not None:
                _require_own(path, kind)
            # Not for devices: what `/dev/stdout` leads to may have no name.
            write_whole(path.resolve() if path.is_symlink() else path, data, status)
        elif stat.S_ISCHR(status.st_mode) or stat.S_ISFIFO(status.st_mode):
            _pour(path, data)
        else:
            raise OSError(f"it is {KINDS[stat.S_IFMT(status.st_mode)]}")
    except OSError as error:
        unread = error.errno == errno.ENXIO
        reason = "nobody reads this pipe" if unread else error.strerror or error
        raise AutotuneError(
            f"cannot write {path}: {reason} ({len(data)} bytes); give another path"
        ) from error


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _require_own(path: Path, kind: OutputKind) -> None:
    with opened(path, append=True) as file:
        head = start = file.read(HEAD)
    with suppress(ValueError):  # it is not compressed
        start, _ = first_stream(head, HEAD)
    if head and not start.startswith(kind.starts):
        raise AutotuneError(
            f"{path} exists and is not a {kind.noun} of autotune; give another path, or remove it"
        )


def _pour(path: Path, data: bytes) -> None:
    """Writes into a device or a named pipe, which has to have a reader."""
    descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        os.set_blocking(descriptor, True)
        while data:
            data = data[os.write(descriptor, data) :]
    finally:
        os.close(descriptor)
