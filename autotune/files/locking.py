"""Locks among processes: of a directory of the cache, of one file, of a folder of the user.

The kernel releases them when their holder is killed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

from autotune.errors import CacheError
from autotune.files.folders import ensure
from autotune.files.reading import opened
from autotune.files.writing import LocklessError, unwritable

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
                "that one has ended"
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


@contextmanager
def locked_folder(directory: Path) -> Iterator[None]:
    """Locks a folder that is not ours, without a file in it; does nothing where that is impossible.

    Raises:
        OSError: if it stays locked for 30 s.
    """
    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        yield
        return
    try:
        try:
            _lock(descriptor)
        except TimeoutError:
            raise
        except OSError:  # NFS locks only what is open for writing
            pass
        yield
    finally:
        os.close(descriptor)


def _is_at(file: BinaryIO, path: Path) -> bool:
    """Whether the path is that of the open file."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _lock(descriptor: int) -> None:
    """Locks an open file; closing it releases the lock."""
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
