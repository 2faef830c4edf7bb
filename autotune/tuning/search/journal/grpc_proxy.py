"""Optuna's gRPC proxy as a storage, `grpc://host:port`: a server passes calls on to a database."""

from __future__ import annotations

import re
import sys
import warnings
from typing import Any

from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage, GrpcStorageProxy
from optuna.trial import FrozenTrial

from autotune.errors import MissingError, UsageError

SCHEME = "grpc://"
PORT = 13000
DEADLINE_S = 10.0
"""A call without an answer for so long fails, as when the server's host is gone."""
# After a failure gRPC waits before it connects again, by default up to two minutes.
OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)

_ADDRESS = re.compile(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[^][:/?#@\s]+)(:(?P<port>\d{1,5}))?/?")
# What the server's storage says of a trial whose parameters have other words than the first one's.
_OTHER_WORDS = "does not support dynamic value space"


class Proxy(GrpcStorageProxy):
    """Optuna's client with deadlines and quick reconnection, and with the database's refusals."""

    def _setup(self) -> None:
        super()._setup()
        import grpc

        self._channel.close()
        self._channel = grpc.insecure_channel(f"{self._host}:{self._port}", options=OPTIONS)
        self._stub = type(self._stub)(grpc.intercept_channel(self._channel, _deadline()))
        self._cache.grpc_client = self._stub

    def create_new_trial(self, study_id: int, template_trial: FrozenTrial | None = None) -> int:
        """A new trial's id.

        Raises:
            ValueError: as the database behind the server raises it.
        """
        import grpc

        try:
            return super().create_new_trial(study_id, template_trial)
        except grpc.RpcError as error:
            if _OTHER_WORDS in (error.details() or ""):
                raise ValueError(error.details()) from error
            raise


def address(url: str) -> tuple[str, int]:
    """The host and the port of a URL.

    Raises:
        UsageError: if it is not `grpc://host` or `grpc://host:port`.
    """
    match = _ADDRESS.fullmatch(url.removeprefix(SCHEME))
    port = int(match["port"] or PORT) if match else 0
    if match is None or not 0 < port < 1 << 16:
        raise UsageError(f"{url}: no address of a gRPC proxy; write {SCHEME}HOST:{PORT}")
    return match["host"], port


def connected(url: str) -> BaseStorage:
    """The storage behind a proxy; its first call connects.

    Raises:
        MissingError: if a package of gRPC is not installed.
        UsageError: if it is no URL of a proxy.
    """
    host, port = address(url)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            return Proxy(host=host, port=port)
    except ImportError as error:
        raise MissingError(
            f"{url}: the packages of Optuna's gRPC proxy are missing: "
            "pip install grpcio 'protobuf>=5.28.1'"
        ) from error


def call_errors() -> tuple[type[Exception], ...]:
    """The errors of failed calls of a proxy; none before one was opened."""
    grpc = sys.modules.get("grpc")
    return () if grpc is None else (grpc.RpcError,)


def described(error: BaseException) -> str | None:
    """The status and the details of a failed call; None for another error."""
    if not isinstance(error, call_errors()):
        return None
    call: Any = error
    return f"{call.code().name}: {call.details()}"


def _deadline() -> Any:
    """Gives every call a deadline."""
    import grpc

    class Deadline(grpc.UnaryUnaryClientInterceptor):  # type: ignore[misc]
        def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
            return continuation(details._replace(timeout=DEADLINE_S), request)

    return Deadline()
