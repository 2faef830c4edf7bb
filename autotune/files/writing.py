"""Writes that a crash, a kill, a full disk or another process leaves whole."""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO

from autotune.errors import CacheError
from autotune.files import limits
from autotune.files.reading import opened

BLOCK = 2**16
"""Bytes that are searched at once for the end of the last whole line."""


class LocklessError(OSError):
    """A file system without file locks."""


def write(path: Path, data: bytes) -> None:
    """Replaces a file of the cache by `data`. The directory must be locked.

    Raises:
        CacheError: if the disk is full, read-only or broken; the file is then unchanged.
    """
    try:
        write_whole(path, data)
    except OSError as error:
        raise unwritable(path, len(data), error) from error


def write_whole(
    path: Path,
    content: bytes | BinaryIO,
    like: os.stat_result | None = None,
    *,
    durable: bool = True,
) -> None:
    """Replaces a file, or a link, or leaves it unchanged: readers never see half a file.

    The content goes to a temporary file in the same directory, which is renamed once. Its name
    cannot be guessed, so nobody else who can write there has put a link in its place. A killed
    writer leaves it; `cache prune` deletes such files.

    Args:
        path: the file; its directory exists.
        content: the new content.
        like: the status of the file whose mode and owner the new one takes; None for a file as the
            umask has it.
        durable: whether the content must survive a power cut, which costs two `fsync`.

    Raises:
        OSError: if the disk is full, read-only or broken, or the owner cannot be kept.
    """
    # The name stays short, whatever that of the file is.
    temporary = path.with_name(f"{path.name[:32]}.{os.urandom(8).hex()}.tmp")
    try:
        with os.fdopen(_created(temporary, like), "wb") as file:
            shutil.copyfileobj(io.BytesIO(content) if isinstance(content, bytes) else content, file)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if durable:
            _sync(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def _created(path: Path, like: os.stat_result | None) -> int:
    """A descriptor of a new file."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    if like is None:
        return os.open(path, flags, 0o666)
    descriptor = os.open(path, flags, 0o600)
    try:
        keep_access(descriptor, like)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def keep_access(descriptor: int, like: os.stat_result) -> None:
    """Gives a file the owner and the mode of another.

    Raises:
        OSError: if it is another user's.
    """
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != (like.st_uid, like.st_gid):
        os.fchown(descriptor, like.st_uid, like.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(like.st_mode))


def copy_aside(path: Path, reason: str) -> Path:
    """Copies the file to the first free `<name>.<reason>-1`, `-2`, ... and returns that path.

    It copies because a kill between a move and the next write would leave neither file. A link is
    moved: its target may be a file that those who share the cache must not read.

    Raises:
        CacheError: if the file cannot be read or is larger than any file of the package, or the
            copy cannot be written.
    """
    if path.is_symlink():
        return move_aside(path, reason)
    aside = _aside(path, reason)
    try:
        source = opened(path, follow=False)
    except OSError as error:
        raise CacheError(
            f"{path}: cannot be read ({error.strerror}), so not replaced; move it away"
        ) from error
    with source:
        if (size := os.fstat(source.fileno()).st_size) > limits.LARGEST:
            raise CacheError(f"{path}: has {size} bytes, so not copied or replaced; move it away")
        try:
            write_whole(aside, source)
        except OSError as error:
            raise unwritable(aside, size, error) from error
    return aside


def move_aside(path: Path, reason: str) -> Path:
    """Renames the file to the first free `<name>.<reason>-1`, `-2`, ... and returns that path.

    Raises:
        CacheError: if the disk is read-only or broken.
    """
    aside = _aside(path, reason)
    try:
        return path.rename(aside)
    except OSError as error:
        raise unwritable(aside, 0, error) from error


def _aside(path: Path, reason: str) -> Path:
    paths = (path.with_name(f"{path.name}.{reason}-{number}") for number in count(1))
    return next(candidate for candidate in paths if not os.path.lexists(candidate))


def delete(path: Path) -> None:
    """Deletes the file, which need not exist.

    Raises:
        CacheError: if the disk is read-only or broken.
    """
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise CacheError(f"{path}: cannot be deleted: {error.strerror}") from error


def cut_torn_line(file: BinaryIO) -> int:
    """Cuts off a last line without its newline, torn by a kill, and returns the file's size.

    Otherwise the next line would be glued to it. The file must be locked.

    Raises:
        OSError: if the disk is read-only or broken, or the line is longer than any of the package.
    """
    size = end = file.seek(0, os.SEEK_END)
    while end:
        if size - end > limits.LINE:
            raise OSError(errno.EFBIG, f"Its last line has more than {limits.LINE} bytes")
        start = max(0, end - BLOCK)
        file.seek(start)
        if newline := file.read(end - start).rfind(b"\n") + 1:
            end = start + newline
            break
        end = start
    if end < size:
        file.truncate(end)
    return end


def append(file: BinaryIO, data: bytes, *, sync: bool) -> int:
    """Appends lines, all or none, and returns the file's size. The file must be locked.

    A last line without its end, which a crash has torn, is cut off first. The lines are on the disk
    when this returns if `sync`.

    Raises:
        OSError: if the disk is full, read-only or broken.
    """
    size, written = cut_torn_line(file), 0
    try:
        while written < len(data):
            written += os.write(file.fileno(), data[written:])
        if sync:
            os.fsync(file.fileno())
    except OSError:
        with suppress(OSError):
            if os.fstat(file.fileno()).st_size == size + written:
                os.ftruncate(file.fileno(), size)
        raise
    return size + written


def append_line(path: Path, line: bytes) -> None:
    """Appends one line, which is on the disk when this returns. The directory must be locked.

    A torn last line is cut off first.

    Raises:
        CacheError: if the disk is full, read-only or broken.
    """
    try:
        with opened(path, append=True, create=True, follow=False) as file:
            append(file, line + b"\n", sync=True)
        _sync(path.parent)
    except OSError as error:
        raise unwritable(path, len(line) + 1, error) from error


def unwritable(path: Path, size: int, error: OSError) -> CacheError:
    """The error to raise when writing a file of the cache failed with `error`.

    `size` is the number of bytes to write, 0 if unknown.
    """
    if isinstance(error, LocklessError):
        return CacheError(
            f"{path}: its file system has no file locks ({error.strerror}), which several "
            "processes need; mount it with locks, or set AUTOTUNE_CACHE_DIR, or --storage, to a "
            "local disk"
        )
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
