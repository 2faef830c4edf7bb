"""A server of Optuna's gRPC proxy of the tests' own, where the packages are installed."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

START_S = 60.0

SERVER = """
import sys, warnings
warnings.simplefilter("ignore")
from optuna.storages import get_storage, run_grpc_proxy_server
run_grpc_proxy_server(get_storage(sys.argv[1]), host="127.0.0.1", port=int(sys.argv[2]))
"""


class GrpcServer:
    """A running server over an SQLite file.

    Attributes:
        url: of the server.
    """

    def __init__(self, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._database = f"sqlite:///{folder}/study.db"
        self.url = f"grpc://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        """Starts the server and waits until it answers."""
        command = [sys.executable, "-c", SERVER, self._database, str(self._port)]
        self._process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + START_S
        while self._process.poll() is None and time.monotonic() < deadline:
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", self._port)) == 0:
                    return
            time.sleep(0.05)
        raise TimeoutError(f"no gRPC proxy on port {self._port} after {START_S:g} s")

    def crash(self) -> None:
        """Ends the server and its connections at once."""
        self._process.kill()
        self._process.wait()


@pytest.fixture
def grpc_server(tmp_path: Path) -> Iterator[GrpcServer]:
    """A server; the test is skipped where a package is missing."""
    for module, package in (("grpc", "grpcio"), ("google.protobuf", "protobuf")):
        if not _installed(module):
            pytest.skip(f"{package}, which Optuna's gRPC proxy needs, is not installed")
    server = GrpcServer(tmp_path)
    try:
        yield server
    finally:
        server.crash()


def _installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # a package above it
        return False
