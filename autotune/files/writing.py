"""Writes that a crash, a kill, a full disk or another process leaves whole."""

from __future__ import annotations

import errno
import fcntl
import io
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO

from autotune import settings
from autotune.errors import CacheError
from autotune.files.reading import opened

LOCK = ".lock"
LOCK_SECONDS = 30.0
POLL_SECONDS = (0.0005, 0.01)
"""The first and the longest pause before a lock is tried again; most are held for 2 ms."""


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Locks the directory, made if needed, against other processes; a kill releases the lock.

    Raises:
        CacheError: if the directory cannot be made or written, or stays locked for 30 s.
    """
    settings.ensure(directory)
    try:
        (directory / LOCK).touch()
        descriptor = _acquired(directory)
    except TimeoutError as error:
        raise CacheError(
            f"{directory}: another process held it for {LOCK_SECONDS:.0f} s; try again when "
            "that one has ended"
        ) from error
    except OSError as error:
        raise unwritable(directory, 0, error) from error
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def locked_existing(directory: Path) -> Iterator[None]:
    """The same lock, of a directory that was locked before; it is not made again if it is gone.

    Raises:
        OSError: if the directory is gone, or stays held for 30 s.
    """
    descriptor = _acquired(directory)
    try:
        yield
    finally:
        os.close(descriptor)


def _acquired(directory: Path) -> int:
    """A descriptor of the lock file; closing it, or a kill, releases the lock."""
    descriptor = os.open(directory / LOCK, os.O_RDWR)
    deadline, pause = time.monotonic() + LOCK_SECONDS, POLL_SECONDS[0]
    try:
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process holds the lock")
            time.sleep(pause)
            pause = min(2 * pause, POLL_SECONDS[1])
    except BaseException:
        os.close(descriptor)
        raise


def write_whole(path: Path, data: bytes, *, durable: bool = True, mode: int = 0o666) -> None:
    """Replaces the file by `data`, or leaves it unchanged: readers never see half a file.

    The data goes to a temporary file in the same directory, which is renamed once.

    Args:
        path: the file; its directory exists.
        data: the new content.
        durable: whether the data must survive a power cut, which costs two `fsync`.
        mode: permissions of the file, less those that the umask denies.

    Raises:
        OSError: if the disk is full, read-only or broken.
    """
    temporary = path.with_name(f"{path.name}.{os.urandom(4).hex()}.tmp")
    _replace(path, temporary, io.BytesIO(data), durable=durable, mode=mode)


def write(path: Path, data: bytes) -> None:
    """Replaces a file of the cache by `data`. The directory must be locked.

    Raises:
        CacheError: if the disk is full, read-only or broken; the file is then unchanged.
    """
    try:
        _replace(path, _temporary(path), io.BytesIO(data))
    except OSError as error:
        raise unwritable(path, len(data), error) from error


def _temporary(path: Path) -> Path:
    """The temporary file of a lock's holder: the next one overwrites what a killed one left."""
    return path.with_name(f"{path.name}.tmp")


def _replace(
    path: Path,
    temporary: Path,
    content: BinaryIO,
    *,
    durable: bool = True,
    mode: int = 0o666,
) -> None:
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, mode), "wb") as file:
            shutil.copyfileobj(content, file)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            _sync(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def copy_aside(path: Path, reason: str) -> Path:
    """Copies the file to the first free `<name>.<reason>-1`, `-2`, ... and returns that path.

    It copies because a kill between a move and the next write would leave neither file.

    Raises:
        CacheError: if the file cannot be read or the copy cannot be written.
    """
    paths = (path.with_name(f"{path.name}.{reason}-{number}") for number in count(1))
    aside = next(candidate for candidate in paths if not candidate.exists())
    try:
        source = opened(path)
    except OSError as error:
        raise CacheError(
            f"{path}: cannot be read ({error.strerror}), so not replaced; move it away"
        ) from error
    with source:
        try:
            _replace(aside, _temporary(aside), source)
        except OSError as error:
            raise unwritable(aside, os.fstat(source.fileno()).st_size, error) from error
    return aside


def delete(path: Path) -> None:
    """Deletes the file, which need not exist.

    Raises:
        CacheError: if the disk is read-only or broken.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise CacheError(f"{path}: cannot be deleted: {error.strerror}") from error


def cut_torn_line(path: Path) -> None:
    """Cuts off a last line without its newline, torn by a kill; makes the file if it is missing.

    Otherwise the next line would be glued to it. The directory must be locked.

    Raises:
        OSError: if the disk is full, read-only or broken.
    """
    with path.open("a+b") as file:
        if file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            if file.read() != b"\n":
                file.seek(0)
                file.truncate(file.read().rfind(b"\n") + 1)


def append(path: Path, data: bytes, *, sync: bool) -> int:
    """Appends lines and returns the file's size. The directory must be locked.

    A last line without its end, which a crash has torn, is cut off first. The lines are on the disk
    when this returns if `sync`.

    Raises:
        OSError: if the disk is full, read-only or broken.
    """
    cut_torn_line(path)
    with path.open("ab") as file:
        file.write(data)
        file.flush()
        if sync:
            os.fsync(file.fileno())
        return file.tell()


def append_line(path: Path, line: bytes) -> None:
    """Appends one line, which is on the disk when this returns. The directory must be locked.

    A torn last line is cut off first.

    Raises:
        CacheError: if the disk is full, read-only or broken.
    """
    try:
        append(path, line + b"\n", sync=True)
        _sync(path.parent)
    except OSError as error:
        raise unwritable(path, len(line) + 1, error) from error


def unwritable(path: Path, size: int, error: OSError) -> CacheError:
    """The error to raise when writing a file of the cache failed with `error`.

    `size` is the number of bytes to write, 0 if unknown.
    """
    needed = f"{size} bytes to write, " if size else ""
    free = "unknown"
    with suppress(OSError):
        free = str(shutil.disk_usage(path if path.is_dir() else path.parent).free)
    return CacheError(
        f"{path}: cannot be written: {error.strerror} ({needed}{free} free); "
        "make room or set AUTOTUNE_CACHE_DIR to another directory"
    )


def _sync(directory: Path) -> None:
    """Makes new names in the directory survive a power cut."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
