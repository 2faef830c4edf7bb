"""The folders, locks and files of the cache, which a crash, a kill or a full disk leaves whole.

The kernel releases a lock when its holder is killed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import BinaryIO

from autotune import settings
from autotune.errors import CacheError
from autotune.files import limits
from autotune.files.reading import opened, read

FULL = {errno.ENOSPC, errno.EDQUOT}


def ensure(directory: Path) -> Path:
    """Creates a directory of the cache and its parents.

    The umask decides who else has access. In a home it is this user only (0700); but what is made
    in a directory that a group may write is the group's too.

    Raises:
        CacheError: if it cannot be created, is not a directory, cannot be written to, or is a link
            that another user has put into the cache.
    """
    try:
        if not directory.parent.exists():
            ensure(directory.parent)
        directory.mkdir(mode=0o700 if _is_of_a_home(directory) else 0o777, exist_ok=True)
    except OSError as error:
        raise settings.unusable(directory, "write to", error) from error
    _refuse_planted(directory)
    if not os.access(directory, os.W_OK | os.X_OK):
        raise settings.unusable(directory, "write to", "not writable")
    return directory


def _is_of_a_home(directory: Path) -> bool:
    """Whether a new directory lies in this user's home, outside what is shared with a group."""
    if (home := settings.home()) is None:
        return True
    inside = directory.absolute().is_relative_to(home)
    return inside and not directory.parent.stat().st_mode & stat.S_IWGRP


def _refuse_planted(directory: Path) -> None:
    """Refuses a folder of the cache that another user's link leads elsewhere: whoever shares the
    cache could have this user write there."""
    root = settings.cache_place()
    inside = (place for place in (directory, *directory.parents) if root in place.parents)
    for place in inside:
        status = place.lstat()
        if stat.S_ISLNK(status.st_mode) and status.st_uid not in (0, os.geteuid()):
            owner = f"a link of user {status.st_uid}"
            raise settings.unusable(place, "write to", f"{owner}; remove it")


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """An empty folder, deleted with its content at the end.

    Raises:
        CacheError: if neither a directory for temporary files nor the cache takes it, or its disk
            is full.
    """
    parent = temporary_dir()
    try:
        with tempfile.TemporaryDirectory(prefix="autotune-", dir=parent) as name:
            yield Path(name)
    except OSError as error:
        if error.errno not in FULL and Path(error.filename or "").parent != parent:
            raise
        raise CacheError(
            f"cannot write temporary files to {parent}: {error.strerror}; make room or set TMPDIR"
        ) from error


def temporary_dir() -> Path:
    """The directory for temporary files: that of Python's `tempfile` (`$TMPDIR`, /tmp, ...), else
    one in the cache.

    Raises:
        CacheError: if the cache cannot be written either.
    """
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError:
        return ensure(settings.cache_dir() / "temporary")


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
    path: Path, content: bytes, like: os.stat_result | None = None, *, durable: bool = True
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
            file.write(content)
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
    paths = (path.with_name(f"{path.name}.{reason}-{number}") for number in count(1))
    aside = next(candidate for candidate in paths if not os.path.lexists(candidate))
    try:
        if path.is_symlink():
            return path.rename(aside)
    except OSError as error:
        raise unwritable(aside, 0, error) from error
    try:
        content = read(path, limits.LARGEST)
    except OSError as error:
        raise CacheError(
            f"{path}: cannot be read ({error.strerror}), so not replaced; move it away"
        ) from error
    write(aside, content)
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


def cut_torn_line(file: BinaryIO) -> int:
    """Cuts off a last line without its newline, torn by a kill, and returns the file's size.

    Otherwise the next line would be glued to it. The file must be locked.

    Raises:
        OSError: if the disk is read-only or broken, or the line is longer than any of the package.
    """
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - limits.LINE - 1))
    torn = len(file.read().rpartition(b"\n")[2])
    if torn > limits.LINE:
        raise OSError(errno.EFBIG, f"Its last line has more than {limits.LINE} bytes")
    if torn:
        file.truncate(size - torn)
    return size - torn


def append(file: BinaryIO, data: bytes, *, sync: bool) -> int:
    """Appends lines, all or none, and returns the file's size. The file must be locked.

    The lines are on the disk when this returns if `sync`.

    Raises:
        OSError: if the disk is full, read-only or broken.
    """
    size, written = os.fstat(file.fileno()).st_size, 0
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

    A last line without its end, which a crash has torn, is cut off first.

    Raises:
        CacheError: if the disk is full, read-only or broken.
    """
    try:
        with opened(path, append=True, create=True, follow=False) as file:
            cut_torn_line(file)
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


LOCK = ".lock"
LOCK_SECONDS = 30.0
POLL_SECONDS = (0.0005, 0.01)
"""The first and the longest pause before a lock is tried again; most are held for 2 ms."""
LOCKLESS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
"""Errors of `flock` on file systems without locks: NFS without its daemon, Lustre, FUSE."""


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Locks the directory, made if needed, against other processes; a kill releases the lock.

    Raises:
        CacheError: if the directory cannot be made or written, or stays locked for 30 s.
    """
    ensure(directory)
    with ExitStack() as stack:
        try:
            lock = opened(directory / LOCK, append=True, create=True, follow=False)
            _lock(stack.enter_context(lock).fileno())
        except TimeoutError as error:
            raise CacheError(
                f"{directory}: another process held it for {LOCK_SECONDS:.0f} s; try again when "
                "that process has ended"
            ) from error
        except OSError as error:
            raise unwritable(Path(error.filename or directory), 0, error) from error
        yield


@contextmanager
def locked_file(path: Path) -> Iterator[BinaryIO]:
    """A regular file, open for reading and appending, locked against other processes.

    The file is created, with its directory, if it is missing. The file itself is locked, so that no
    lock file lies beside it. A kill releases the lock.

    Raises:
        CacheError: if its directory cannot be made.
        OSError: if it cannot be opened, is not a regular file, or stays locked for 30 s.
    """
    ensure(path.parent)
    while True:
        with opened(path, append=True, create=True, follow=False) as file:
            _lock(file.fileno())
            # Another process may have replaced or removed the file while this one waited.
            if _is_at(file, path):
                yield file
                return


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether the path is that of the open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _lock(descriptor: int) -> None:
    deadline, pause = time.monotonic() + LOCK_SECONDS, POLL_SECONDS[0]
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        except OSError as error:
            if error.errno in LOCKLESS:
                raise LocklessError(error.errno, error.strerror) from error
            raise
        if time.monotonic() > deadline:
            raise TimeoutError(errno.ETIMEDOUT, "another process holds the lock")
        time.sleep(pause)
        pause = min(2 * pause, POLL_SECONDS[1])
