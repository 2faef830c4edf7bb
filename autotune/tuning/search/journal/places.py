"""Where studies are kept: a journal file, a database that SQLAlchemy connects to, a gRPC proxy."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from optuna.exceptions import OptunaError
from optuna.storages import BaseStorage, JournalStorage

from autotune import files
from autotune.errors import AutotuneError, CacheError, UsageError
from autotune.tuning.search.journal import databases, grpc_proxy, journal_file, mending

T = TypeVar("T")

JOURNAL = "journal://"
# Between attempts to open a database, which may be busy or starting.
PAUSES_S = (0.25, 0.5, 1.0)


class Place:
    """A journal file, a database, or a proxy for one.

    Of a damaged journal file, what can be understood is kept, and the damaged one as
    `<file>.broken-<n>`, with a warning.

    Attributes:
        name: for people, without a password.

    Args:
        where: path of a journal file, `journal:///path` for the same, or the URL of a database as
            SQLAlchemy spells it, such as `sqlite:///study.db` or `mysql://user:password@host/name`,
            or `grpc://host:port` of Optuna's gRPC proxy.

    Raises:
        UsageError: if it is none of these.
    """

    def __init__(self, where: Path | str) -> None:
        self._url = str(where)
        self._path = None
        if self._url.startswith(JOURNAL) or "://" not in self._url:
            try:
                self._path = Path(self._url.removeprefix(JOURNAL)).absolute()
            except FileNotFoundError as error:
                message = f"{where}: the working directory is gone; give an absolute path"
                raise UsageError(message) from error
            if self._url not in (JOURNAL + str(self._path), self._url.removeprefix(JOURNAL)):
                raise UsageError(f"{where}: not an absolute path; write {JOURNAL}{self._path}")
        self._proxied = self._url.startswith(grpc_proxy.SCHEME)
        if self._proxied:
            grpc_proxy.address(self._url)
        self.name = str(self._path or databases.redacted(self._url))

    @property
    def served(self) -> bool:
        """Whether a server has it, so that processes of other hosts may use it at any time."""
        return self._path is None and not self._url.startswith("sqlite")

    def opened(self, study: str, read: Callable[[BaseStorage], T]) -> T:
        """Calls `read` with the storage, which is created if needed, and returns its result.

        Args:
            study: the name of the study that is wanted of it.
            read: may be called again, with another storage, if it raises.

        Raises:
            AutotuneError: if it cannot be opened or written.
        """
        if self._path is None:
            return self._from_database(read)
        return self._from_file(self._path, study, read)

    def unwritable(self, error: Exception) -> CacheError:
        """The error to raise when `error` prevented writing."""
        if isinstance(error, CacheError):
            return error
        if self._path is not None and isinstance(error, OSError):
            if self._path.exists() and not self._path.is_file():
                message = f"{self.name}: cannot be written: {error.strerror}; give another file"
                return CacheError(message)
            return files.unwritable(self._path, 0, error)
        advice = "move it away" if self._path else "see whether it runs and has room"
        return CacheError(f"{self.name}: cannot be written: {self._line(error)}; {advice}")

    def _from_file(self, path: Path, study: str, read: Callable[[BaseStorage], T]) -> T:
        def prepared() -> T:
            journal_file.prepare(path)
            return read(JournalStorage(journal_file.JournalFile(path)))

        try:
            try:
                return prepared()
            except (AutotuneError, OSError):
                raise
            except Exception:  # Optuna trusts the file, so anything may be raised
                mending.mend(path, self.name, study)
            return prepared()
        except AutotuneError:
            raise
        except Exception as error:
            raise self.unwritable(error) from error

    def _from_database(self, read: Callable[[BaseStorage], T]) -> T:
        pauses = [*PAUSES_S]
        connected = grpc_proxy.connected if self._proxied else databases.connected
        while True:
            # Tracebacks would show the causes, whose messages may have a password in them.
            try:
                return read(connected(self._url))
            except AutotuneError:
                raise
            except _outages() as error:
                if not pauses:
                    raise self.unwritable(error) from None
            except Exception as error:
                message = f"{self.name}: holds what is no study of ours: {self._line(error)}"
                raise CacheError(f"{message}; choose another storage") from None
            time.sleep(pauses.pop(0))

    def _line(self, error: BaseException) -> str:
        """The first line of the message of an error, or of its cause, without passwords."""
        cause = error.__cause__ or error
        message = grpc_proxy.described(cause) or str(cause)
        line = message.partition("\n")[0] or type(cause).__name__
        return line if self._path else databases.without_secrets(line, self._url)


def _outages() -> tuple[type[Exception], ...]:
    """The errors of a server that may be back in a moment."""
    from sqlalchemy.exc import SQLAlchemyError

    return (OSError, OptunaError, SQLAlchemyError, *grpc_proxy.call_errors())
