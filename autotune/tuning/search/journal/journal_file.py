"""Optuna's journal in a file: one JSON object a line, appended under a lock of the file."""

from __future__ import annotations

import errno
import json
import os
import re
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from zlib import crc32

from optuna.storages.journal import BaseJournalBackend
from optuna.trial import TrialState

from autotune import files, settings
from autotune.errors import UsageError
from autotune.files import limits

BROKEN = "broken"
"""The suffix under which a damaged journal is kept: `<file>.broken-1`."""
START = b'{"op_code":'
"""How Optuna begins every line."""
STALE_S = 30.0
"""Optuna takes a lock file this old for left behind."""
# The names of Optuna's locks, after the journal's: the lock, and the lock while it is released.
_LOCK, _RELEASED = ".lock", re.compile(r"\.lock[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.rename")
_CHECKSUM = re.compile(rb"\d{1,10}}")
_SQLITE = b"SQLite format 3\0"


class JournalFile(BaseJournalBackend):
    """A journal file under a lock that the kernel releases when its holder is killed.

    Optuna's own backend reads the same files. A last line torn by a kill is cut off before the next
    is written. A file that is gone, another one, or shorter than what was written is not begun
    anew: its lines would not be part of the journal.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._size = path, 0
        self._opened: os.stat_result | None = None
        self._unread = 0, 0  # number and offset of the first line not read yet

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """The lines from a number on; a last line without its end is still being written.

        Raises:
            OSError: if the file is gone or is not a regular file.
            ValueError: if a line is damaged or longer than `limits.LINE`.
        """
        number, offset = self._unread if self._unread[0] <= log_number_from else (0, 0)
        with files.opened(self._path) as file:
            file.seek(offset)
            for line in iter(lambda: file.readline(limits.LINE), b""):
                if not line.endswith(b"\n"):
                    if len(line) < limits.LINE:
                        return
                    raise ValueError(f"line {number + 1} has more than {limits.LINE} bytes")
                log = decoded(line) if number >= log_number_from else {}
                if log is None:
                    raise ValueError(f"line {number + 1} is damaged")
                number, offset = number + 1, offset + len(line)
                self._unread = number, offset
                if number > log_number_from:
                    yield log

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Appends lines; those that finish a trial are on the disk when this returns.

        Raises:
            OSError: if they cannot be written, the file is another one, or it stays locked.
        """
        data = b"".join(encoded(log) + b"\n" for log in logs)
        # A claim need not survive a power cut; the line that finishes it syncs both.
        states = (TrialState(log["state"]) for log in logs if "state" in log)
        sync = any(state.is_finished() for state in states)
        with files.locked_file(self._path, follow=is_of_user(self._path)) as file:
            status = os.fstat(file.fileno())
            same = self._opened is None or os.path.samestat(self._opened, status)
            if not same or status.st_size < self._size:
                raise OSError(errno.ESTALE, "another file has taken its place", str(self._path))
            self._size, self._opened = files.append(file, data, sync=sync), status


def prepare(path: Path) -> None:
    """Makes a journal ready for opening: created if missing, without a torn last line.

    Lock files that killed users of Optuna's own locks have left are removed.

    Raises:
        CacheError: if its directory cannot be made.
        OSError: if it cannot be read and written, is not a regular file, or stays locked.
        UsageError: if it is no journal, unless it lies in the cache; it is then left as it is.
    """
    with files.locked_file(path, create=True, follow=is_of_user(path)) as file:
        head = file.read(limits.LINE)
        if not head or _is_journal(head):
            files.cut_torn_line(file)
            _remove_stale_locks(path, used=bool(head))
            return
        if is_of_user(path):
            advice = f"write sqlite:///{path}" if head.startswith(_SQLITE) else "give another file"
            kind = "an SQLite database" if head.startswith(_SQLITE) else "no journal of Optuna's"
            raise UsageError(f"{path}: is {kind}; {advice}")
        aside = files.move_aside(path, BROKEN)
        warnings.warn(f"{path}: no journal, kept as {aside.name}", stacklevel=5)
    prepare(path)


def is_of_user(path: Path) -> bool:
    """Whether the user named a journal, which then may be a link, rather than the cache."""
    return not path.is_relative_to(settings.cache_place())


def encoded(log: dict[str, Any]) -> bytes:
    """An operation as a line, as Optuna writes it, with a checksum that Optuna ignores."""
    text = json.dumps(log, separators=(",", ":")).encode()[:-1]
    return b'%s,"crc":%d}' % (text, crc32(text))


def decoded(line: bytes) -> dict[str, Any] | None:
    """The operation in a line, with or without a checksum; None if it is anything else."""
    text, _, checksum = line.rstrip().rpartition(b',"crc":')
    if text and _CHECKSUM.fullmatch(checksum) and crc32(text.lstrip()) != int(checksum[:-1]):
        return None
    try:
        log = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(log, dict) or type(log.get("op_code")) is not int:
        return None
    return log if isinstance(log.get("worker_id"), str) else None


def _is_journal(head: bytes) -> bool:
    """Whether the start of a file has a whole line of a journal, or a part of the first."""
    whole = head.split(b"\n")[:-1]
    return head.startswith(START) or any(decoded(line) is not None for line in whole)


def _remove_stale_locks(path: Path, *, used: bool) -> None:
    """Removes Optuna's lock files of this journal that are older than it waits for them.

    Only its own: a symbolic link to the journal, an empty file beside a journal that is in `used`,
    and either of them under the name that it has while it is released.
    """
    for lock in path.parent.iterdir():
        suffix = lock.name.removeprefix(path.name)
        if suffix == lock.name or not (suffix == _LOCK or _RELEASED.fullmatch(suffix)):
            continue
        with suppress(OSError):
            status = lock.lstat()
            linked = lock.is_symlink() and lock.readlink().name == path.name
            empty = used and lock.is_file() and not lock.is_symlink() and not status.st_size
            if (linked or empty) and time.time() - status.st_mtime > STALE_S:
                lock.unlink()
