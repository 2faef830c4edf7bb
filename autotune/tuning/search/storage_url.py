"""URLs of Optuna storages: opened, and shown without their passwords."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote, unquote_plus, urlsplit

import optuna
from optuna.storages import BaseStorage

from autotune import files
from autotune.errors import MissingError, UsageError

PROXY, PROXY_PORT, PROXY_S = "grpc://", 13000, 10.0
"""The URL of a gRPC proxy, its usual port, and how long it may take to answer at first."""

SQLITE, SQLITE_S = "sqlite:///", 60.0
"""The URL of an SQLite file, and how long another process may hold it."""

PACKAGES = {"MySQLdb": "mysqlclient", "grpc": "grpcio 'protobuf>=5.28.1'"}
"""The package of a module, if it has another name than the module."""

HIDDEN, SHORTEST = "***", 4
"""A password in a message; shorter ones are replaced only where they stand as a word."""

_USER = re.compile(r"://(?P<user>[^:/]*):(?P<password>.*)@")
_SECRET = re.compile(r"(?i)pass|pwd|secret|token|key|cred|auth|odbc_connect")


def connected(url: str) -> BaseStorage:
    """Opens the storage at a URL, and creates its tables if needed.

    Raises:
        MissingError: if a driver is not installed; it names the package.
        UsageError: if it is not the URL of a storage.
    """
    from sqlalchemy.exc import ArgumentError

    try:
        if url.startswith(PROXY):
            return _proxy(url)
        if not url.startswith(SQLITE):
            return optuna.storages.RDBStorage(url)
        # Processes that create its tables at once break the file.
        with files.locked_folder(
            Path(url.removeprefix(SQLITE).partition("?")[0]).absolute().parent
        ):
            waits = {"connect_args": {"timeout": SQLITE_S}}
            return optuna.storages.RDBStorage(url, engine_kwargs=waits)
    except ImportError as error:
        cause = error.__cause__ if isinstance(error.__cause__, ImportError) else error
        module = (cause.name or "").partition(".")[0]
        package = PACKAGES.get(module, module)
        why = f"{without_secrets(str(cause), url)}; install its package: pip install {package}"
    except (ArgumentError, ValueError):  # the message has parts of the URL
        advice = "percent-encode :, /, ? and @ in the user's name and password"
        raise UsageError(
            f"{redacted(url)}: is not the URL of an Optuna storage; write sqlite:////DIR/FILE.db, "
            f"grpc://HOST:PORT or dialect+driver://user:password@host/name, and {advice}"
        ) from None
    raise MissingError(f"{redacted(url)}: {why}")


def _proxy(url: str) -> BaseStorage:
    """Optuna's gRPC proxy at a URL; `ValueError` for another form of URL."""
    parts = urlsplit(url)
    if not parts.hostname or parts.netloc.rpartition("@")[1] or parts.path not in ("", "/"):
        raise ValueError(url)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        proxy = optuna.storages.GrpcStorageProxy(host=parts.hostname, port=parts.port or PROXY_PORT)
    proxy.wait_server_ready(PROXY_S)
    return proxy


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
    spellings = (str, unquote, unquote_plus, quote, quote_plus)
    spelled = {spell(secret) for secret in _secrets(url) for spell in spellings}
    for secret in sorted(spelled - {""}, key=len, reverse=True):
        edge = "" if len(secret) >= SHORTEST else r"\b"
        message = re.sub(f"{edge}{re.escape(secret)}{edge}", HIDDEN, message)
    return message


def _secrets(url: str) -> list[str]:
    """The password, and the values in the query that may be secret."""
    match = _USER.search(url)
    pairs = [pair.partition("=") for pair in url.partition("?")[2].split("&")]
    secrets = [value for name, _, value in pairs if _SECRET.search(unquote(name))]
    # A connection string of ODBC has the password among its parts.
    parts = [part.partition("=") for text in secrets for part in unquote_plus(text).split(";")]
    secrets += [value.strip("{}") for name, _, value in parts if _SECRET.search(name)]
    return [match["password"], *secrets] if match else secrets
