"""Folders that the package makes: those of the cache, and for temporary files."""

from __future__ import annotations

import errno
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from autotune import environment, settings
from autotune.errors import CacheError

FULL = {errno.ENOSPC, errno.EDQUOT}


def ensure(directory: Path) -> Path:
    """Creates a directory of the cache and its parents.

    The umask decides who else has access. In a home it is this user only (0700); but what is made
    in a directory that a group may write is the group's too.

    Raises:
        CacheError: if it cannot be created, is no directory, cannot be written to, or is a link
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
    if (home := environment.home()) is None:
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
