"""Databases as storages: connected one process at a time, and named without their passwords."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote, unquote_plus

import optuna
from optuna.storages import BaseStorage

from autotune import files
from autotune.errors import MissingError, UsageError

HIDDEN = "***"
SHORTEST = 4
"""Shorter passwords are replaced in messages only where they stand as a word."""
PACKAGES = {
    "MySQLdb": "mysqlclient",
    "psycopg": "'psycopg[binary]'",
    "psycopg2": "psycopg2-binary",
}
"""The package with a driver's module, where it has another name."""

_USER = re.compile(r"://(?P<user>[^:/]*):(?P<password>.*)@")
_SECRET = re.compile(r"(?i)pass|pwd|secret|token|key|cred|auth|odbc_connect")


def redacted(url: str) -> str:
    """The URL without the values that may be secret."""
    start, mark, query = _USER.sub(rf"://\g<user>:{HIDDEN}@", url).partition("?")
    pairs = [
        f"{name}={HIDDEN}" if _SECRET.search(unquote(name)) and value else name + equals + value
        for name, equals, value in (pair.partition("=") for pair in query.split("&"))
    ]
    return start + mark + "&".join(pairs)


def without_secrets(message: str, url: str) -> str:
    """An error message without the secrets of the URL, in any spelling."""
    message = message.replace(url, redacted(url))
    spelled = {
        spell(secret)
        for secret in _secrets(url)
        for spell in (str, unquote, unquote_plus, quote, quote_plus)
    }
    for secret in sorted(spelled - {""}, key=len, reverse=True):
        pattern = re.escape(secret)
        edge = "" if len(secret) >= SHORTEST else r"\b"
        message = re.sub(f"{edge}{pattern}{edge}", HIDDEN, message)
    return message


def connected(url: str) -> BaseStorage:
    """The storage in a database, whose tables are created if needed.

    Raises:
        MissingError: if the driver is not installed; it names the package.
        UsageError: if it is no URL of a database.
        Exception: what Optuna, SQLAlchemy and the driver raise.
    """
    with _creation(url):
        try:
            return optuna.storages.get_storage(url)
        except ImportError as error:
            cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
            module = (cause.name or "").partition(".")[0]
            package = f": pip install {PACKAGES.get(module, module)}" if module else ""
            raise MissingError(
                f"{redacted(url)}: {without_secrets(str(cause), url)}; "
                f"install the driver of that database{package}"
            ) from None


def _creation(url: str) -> AbstractContextManager[None]:
    """Locks the folder of an SQLite file: processes that create its tables at once break it."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    name = redacted(url)
    try:
        parsed = make_url(url)
        parsed.get_dialect()
    except NoSuchModuleError as error:
        message = without_secrets(str(error), url)
        raise UsageError(f"{name}: no URL of a storage: {message}") from None
    except (ArgumentError, ValueError):  # its message has parts of the URL
        advice = "percent-encode :, /, ? and @ in the user's name and password"
        raise UsageError(f"{name}: no URL of a storage; {advice}") from None
    except ImportError:
        return nullcontext()
    database = parsed.database or ":memory:"
    if parsed.get_backend_name() != "sqlite" or ":memory:" in database:
        return nullcontext()
    file = unquote(database.removeprefix("file:")) if database.startswith("file:") else database
    return files.locked_folder(Path(file).absolute().parent)


def _secrets(url: str) -> list[str]:
    """The password, and the values in the query that may be secret."""
    match = _USER.search(url)
    pairs = [pair.partition("=") for pair in url.partition("?")[2].split("&")]
    secrets = [value for name, _, value in pairs if _SECRET.search(unquote(name))]
    # A connection string of ODBC has the password among its parts.
    parts = [part.partition("=") for text in secrets for part in unquote_plus(text).split(";")]
    secrets += [value.strip("{}") for name, _, value in parts if _SECRET.search(name)]
    return [match["password"], *secrets] if match else secrets
