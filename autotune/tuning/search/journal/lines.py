"""The lines of a journal file, and how they get to the disk."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from autotune import files

STALE_S = 30.0
"""Seconds after which Optuna takes a lock file for left behind."""
PAUSES_S = (0.0005, 0.01)
"""The first and the longest pause before a lock is tried again."""


class Lines(JournalFileBackend):
    """Optuna's file of lines with a lock that the kernel lets go of when its holder is killed.

    Whoever writes first cuts off a last line that a kill has torn, since the next line would
    otherwise be glued to it and make the file unreadable. A file that has gone, or has become
    shorter than what was read of it, is not begun anew: what is written then would be lost among
    lines of which it knows nothing.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._size = 0
        super().__init__(str(path))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Appends lines; those that finish a trial are on the disk when this returns.

        Raises:
            OSError: if they cannot be written, the file is another one, or it stays locked.
        """
        self._check()
        data = b"".join(json.dumps(log, separators=(",", ":")).encode() + b"\n" for log in logs)
        with _locked(self._path.parent):
            files.cut_torn_line(self._path)
            self._check()
            with self._path.open("r+b") as file:
                file.seek(0, os.SEEK_END)
                file.write(data)
                file.flush()
                # A claim need not outlive a power cut, and what finishes it takes it along.
                if any(_finishes(log) for log in logs):
                    os.fsync(file.fileno())
                self._size = file.tell()

    def _check(self) -> None:
        found = self._path.stat()
        if stat.S_ISREG(found.st_mode) and found.st_size < self._size:
            raise OSError(errno.ESTALE, "another file has taken its place", str(self._path))


def make(path: Path) -> int:
    """Makes the file if there is none, mends a torn last line, and returns the file's inode.

    Raises:
        OSError: if the disk is full, read-only or broken.
        CacheError: if the directory cannot be made or stays locked.
    """
    with files.locked(path.parent):
        files.cut_torn_line(path)
        return path.stat().st_ino


def clear_locks(path: Path) -> None:
    """Removes the lock files that killed processes with Optuna's own locks have left."""
    for lock in path.parent.glob(f"{path.name}.lock*"):
        with suppress(OSError):
            if time.time() - lock.lstat().st_mtime > STALE_S:
                lock.unlink()


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Holds the same lock as `files.locked`, in a thirtieth of the time.

    Eight processes that poll for each other's lock would otherwise do little else.
    """
    descriptor = os.open(directory / ".lock", os.O_RDWR)
    try:
        deadline, pause = time.monotonic() + files.LOCK_SECONDS, PAUSES_S[0]
        while not _taken(descriptor):
            if time.monotonic() > deadline:
                raise TimeoutError(errno.ETIMEDOUT, "another process holds the lock")
            time.sleep(pause)
            pause = min(2 * pause, PAUSES_S[1])
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _finishes(log: Mapping[str, Any]) -> bool:
    return "state" in log and TrialState(log["state"]).is_finished()
