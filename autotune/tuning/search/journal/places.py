"""Where studies are kept: a journal file, or whatever else Optuna has a storage for."""

from __future__ import annotations

import re
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol, TypeVar

import optuna
from optuna.exceptions import OptunaError
from optuna.storages import BaseStorage, JournalStorage

from autotune import files
from autotune.errors import AutotuneError, CacheError, MissingError, UsageError
from autotune.tuning.search.journal.lines import Lines, clear_locks, make

T = TypeVar("T")

JOURNAL = "journal://"
# Processes that make the tables of a database at the same time fall over each other.
ATTEMPTS = 3
PAUSE_S = 0.25


class Place(Protocol):
    """Where studies are kept.

    Attributes:
        name: for people, without a password.
    """

    name: str

    def opened(self, read: Callable[[BaseStorage], T]) -> T:
        """What `read` makes of the storage, which is made if needed.

        Raises:
            AutotuneError: if it cannot be opened or written.
        """
        ...

    def unwritable(self, error: Exception) -> CacheError:
        """The error to raise when `error` kept something from being written."""
        ...


def place_of(where: Path | str) -> Place:
    """The place that a path or a URL names.

    Args:
        where: path of a journal file, `journal:///path` for the same, or the URL of a database as
            SQLAlchemy spells it, such as `sqlite:///study.db` or `mysql://user:password@host/name`.

    Raises:
        UsageError: if it is none of these.
    """
    if isinstance(where, Path) or "://" not in where:
        return JournalFile(Path(where))
    if where.startswith(JOURNAL):
        path = Path(where.removeprefix(JOURNAL))
        if not path.is_absolute():
            raise UsageError(f"{where}: not an absolute path; write {JOURNAL}{path.absolute()}")
        return JournalFile(path)
    return Database(where)


class JournalFile:
    """A file of lines, which a kill at any moment leaves readable.

    A file that cannot be read is kept as `<file>.broken-<n>`, with a warning, and begun anew.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self.name = str(self._path)

    def opened(self, read: Callable[[BaseStorage], T]) -> T:
        try:
            before = make(self._path)
            clear_locks(self._path)
            return read(self._storage())
        except OSError as error:
            raise self.unwritable(error) from error
        except CacheError:
            raise
        except Exception as error:  # Optuna trusts the file, so it may trip over anything in it
            with files.locked(self._path.parent):
                # Unless another process has been here already.
                if self._path.stat().st_ino == before:
                    aside = files.copy_aside(self._path, "broken")
                    self._path.unlink()
                    message = f"{self._path}: broken, kept as {aside.name}: {error}"
                    warnings.warn(message, stacklevel=3)
            make(self._path)
            return read(self._storage())

    def unwritable(self, error: Exception) -> CacheError:
        if isinstance(error, CacheError):
            return error
        if isinstance(error, OSError):
            return files.unwritable(self._path, 0, error)
        return CacheError(f"{self._path}: cannot be written: {_line(error)}; move it away")

    def _storage(self) -> BaseStorage:
        return JournalStorage(Lines(self._path))


class Database:
    """What SQLAlchemy connects to."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.name = re.sub(r"(://[^/@:]*):.*@", r"\1:***@", url)

    def opened(self, read: Callable[[BaseStorage], T]) -> T:
        return self._opened(read, [PAUSE_S * 2**attempt for attempt in range(ATTEMPTS)])

    def _opened(self, read: Callable[[BaseStorage], T], pauses: Sequence[float]) -> T:
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

        try:
            return read(optuna.storages.get_storage(self._url))
        except AutotuneError:
            raise
        except (ArgumentError, NoSuchModuleError) as error:
            raise UsageError(f"{self.name}: no URL of a storage: {_line(error)}") from None
        except ImportError as error:
            what = f"{self.name}: {_line(error)}; install the driver of that database"
            raise MissingError(what) from error
        except (OSError, OptunaError, SQLAlchemyError) as error:
            if not pauses:
                raise self.unwritable(error) from error
        except Exception as error:
            what = f"{self.name}: holds what is no study of ours: {_line(error)}"
            raise CacheError(f"{what}; choose another storage") from error
        time.sleep(pauses[0])
        return self._opened(read, pauses[1:])

    def unwritable(self, error: Exception) -> CacheError:
        cause = error.__cause__ or error
        return CacheError(
            f"{self.name}: cannot be written: {_line(cause)}; see whether it runs and has room"
        )


def _line(error: BaseException) -> str:
    """The first line of what an error says."""
    return str(error).partition("\n")[0] or type(error).__name__
