"""Built code in the cache: is it whole, and could anybody else have written it?

A checksum finds damage, no more: whoever can write a file can write its checksum. Code that this
process runs must also be a file that nobody but this user or root can have written.
"""

from __future__ import annotations

import errno
import os
import stat
from hashlib import sha256
from pathlib import Path

from autotune.errors import CacheError
from autotune.files.reading import content, opened

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def sealed(name: str, code: bytes) -> bytes:
    """The code behind a line with the SHA-256 of its name and itself."""
    return _checksum(name, code) + b"\n" + code


def unsealed(name: str, data: bytes) -> bytes:
    """The code that `sealed` was given.

    Raises:
        ValueError: if the data is damaged or was sealed under another name.
    """
    checksum, newline, code = data.partition(b"\n")
    if not newline or checksum != _checksum(name, code):
        raise ValueError("its checksum is wrong; the file was changed, renamed or cut short")
    return code


def read_own(path: Path, limit: int) -> bytes:
    """The content of a file that only this user or root can have written, and its directory too.

    The descriptor that is read is the one that is checked, so a later swap changes nothing.

    Raises:
        CacheError: if other users can write in the directory.
        OSError: if there is no such file, other users can have written it, it is not a regular
            file or it is larger than the limit.
    """
    if (reason := _foreign(path.parent.stat())) is not None:
        raise CacheError(
            f"{path.parent}: {reason}, so no code in it is run; delete the directory, or make it "
            "yours with chown and chmod go-w"
        )
    with opened(path) as file:
        if (reason := _foreign(os.fstat(file.fileno()))) is not None:
            raise PermissionError(errno.EPERM, reason, str(path))
        return content(file, path, limit)


def _foreign(status: os.stat_result) -> str | None:
    """Why other users can have written a file or in a directory; None if they cannot."""
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {status.st_uid}"
    if status.st_mode & _OTHERS_WRITE:
        return f"other users can write it (mode {stat.S_IMODE(status.st_mode):04o})"
    return None


def _checksum(name: str, code: bytes) -> bytes:
    return sha256(name.encode() + b"\n" + code).hexdigest().encode()
