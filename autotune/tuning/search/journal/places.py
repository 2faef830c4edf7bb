"""Where studies are kept: a journal file, or a database that SQLAlchemy connects to."""

from __future__ import annotations

import errno
import json
import re
import stat
import time
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import optuna
from optuna.exceptions import OptunaError
from optuna.storages import BaseStorage, JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from autotune import files
from autotune.errors import AutotuneError, CacheError, MissingError, UsageError

T = TypeVar("T")

JOURNAL = "journal://"
# Between attempts to open a database: processes that create its tables at once collide.
PAUSES_S = (0.25, 0.5, 1.0)
# Optuna takes a lock file this old for left behind.
STALE_S = 30.0


class Place:
    """A journal file or a database.

    A journal file that cannot be read is kept as `<file>.broken-<n>`, with a warning, and begun
    anew.

    Attributes:
        name: for people, without a password.

    Args:
        where: path of a journal file, `journal:///path` for the same, or the URL of a database as
            SQLAlchemy spells it, such as `sqlite:///study.db` or `mysql://user:password@host/name`.

    Raises:
        UsageError: if it is none of these.
    """

    def __init__(self, where: Path | str) -> None:
        self._url = str(where)
        self._path = None
        if self._url.startswith(JOURNAL) or "://" not in self._url:
            self._path = Path(self._url.removeprefix(JOURNAL)).absolute()
            if self._url not in (JOURNAL + str(self._path), self._url.removeprefix(JOURNAL)):
                raise UsageError(f"{where}: not an absolute path; write {JOURNAL}{self._path}")
        self.name = str(self._path or re.sub(r"(://[^/@:]*):.*@", r"\1:***@", self._url))

    def opened(self, read: Callable[[BaseStorage], T]) -> T:
        """What `read` returns for the storage, which is created if needed.

        Raises:
            AutotuneError: if it cannot be opened or written.
        """
        return (
            self._from_database(read) if self._path is None else self._from_file(self._path, read)
        )

    def unwritable(self, error: Exception) -> CacheError:
        """The error to raise when `error` prevented writing."""
        if isinstance(error, CacheError):
            return error
        if self._path is not None and isinstance(error, OSError):
            return files.unwritable(self._path, 0, error)
        advice = "move it away" if self._path else "see whether it runs and has room"
        why = _line(error.__cause__ or error)
        return CacheError(f"{self.name}: cannot be written: {why}; {advice}")

    def _from_file(self, path: Path, read: Callable[[BaseStorage], T]) -> T:
        try:
            inode = _prepare(path)
            return read(JournalStorage(JournalFile(path)))
        except CacheError:
            raise
        except OSError as error:
            raise self.unwritable(error) from error
        except Exception as error:  # Optuna trusts the file, so anything may be raised
            with files.locked(path.parent):
                if path.stat().st_ino == inode:  # no other process has begun it anew
                    aside = files.copy_aside(path, "broken")
                    path.unlink()
                    message = f"{path}: broken, kept as {aside.name}: {error}"
                    warnings.warn(message, stacklevel=4)
            _prepare(path)
            return read(JournalStorage(JournalFile(path)))

    def _from_database(self, read: Callable[[BaseStorage], T]) -> T:
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

        pauses = [*PAUSES_S]
        while True:
            try:
                return read(optuna.storages.get_storage(self._url))
            except AutotuneError:
                raise
            except (ArgumentError, NoSuchModuleError) as error:
                raise UsageError(f"{self.name}: no URL of a storage: {_line(error)}") from None
            except ImportError as error:
                message = f"{self.name}: {_line(error)}; install the driver of that database"
                raise MissingError(message) from error
            except (OSError, OptunaError, SQLAlchemyError) as error:
                if not pauses:
                    raise self.unwritable(error) from error
            except Exception as error:
                message = f"{self.name}: holds what is no study of ours: {_line(error)}"
                raise CacheError(f"{message}; choose another storage") from error
            time.sleep(pauses.pop(0))


class JournalFile(JournalFileBackend):
    """Optuna's journal file under a lock that the kernel releases when its holder is killed.

    A last line torn by a kill is cut off before the next is written. A file that is gone or shorter
    than what was written is not begun anew: its lines would not be part of the journal.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._size = path, 0
        super().__init__(str(path))

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Appends lines; those that finish a trial are on the disk when this returns.

        Raises:
            OSError: if they cannot be written, the file is another one, or it stays locked.
        """
        data = b"".join(json.dumps(log, separators=(",", ":")).encode() + b"\n" for log in logs)
        # A claim need not survive a power cut; the line that finishes it syncs both.
        states = (TrialState(log["state"]) for log in logs if "state" in log)
        sync = any(state.is_finished() for state in states)
        self._check()
        with files.locked_existing(self._path.parent):
            self._check()
            self._size = files.append(self._path, data, sync=sync)

    def _check(self) -> None:
        status = self._path.stat()
        if stat.S_ISREG(status.st_mode) and status.st_size < self._size:
            raise OSError(errno.ESTALE, "another file has taken its place", str(self._path))


def _prepare(path: Path) -> int:
    """Creates the file if needed, cuts a torn last line, and returns the file's inode.

    Removes the lock files that killed users of Optuna's own locks have left.
    """
    with files.locked(path.parent):
        files.cut_torn_line(path)
        for lock in path.parent.glob(f"{path.name}.lock*"):
            with suppress(OSError):
                if time.time() - lock.lstat().st_mtime > STALE_S:
                    lock.unlink()
        return path.stat().st_ino


def _line(error: BaseException) -> str:
    """The first line of an error's message."""
    return str(error).partition("\n")[0] or type(error).__name__
