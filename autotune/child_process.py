"""Child processes that run a function of the package, each connected to its parent by a pipe."""

from __future__ import annotations

import os
import pickle
import signal
import socket
import subprocess
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from tempfile import TemporaryFile
from typing import IO, Any

# A child has its parent's module path, but does not run the parent's main module again.
PROGRAM = (
    "import sys; sys.path[:] = {path!r}; from {module} import {function}; {function}({descriptor})"
)


def start(
    module: str,
    function: str,
    *,
    stdin: int = subprocess.DEVNULL,
    stderr: int | IO[bytes] = subprocess.DEVNULL,
) -> tuple[Connection[Any, Any], subprocess.Popen[bytes]]:
    """Starts a process, and returns the connection to it.

    Args:
        module: module of the function.
        function: called there with the file descriptor of the child's end of the pipe.
        stdin, stderr: as for `subprocess.Popen`. Standard output is discarded.

    Raises:
        OSError: if it cannot be started.
    """
    connection, remote = Pipe()
    names = {"path": sys.path, "module": module, "function": function}
    program = PROGRAM.format(**names, descriptor=remote.fileno())
    with remote:
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=stdin,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            pass_fds=[remote.fileno()],
        )
    return connection, process


def send(connection: Connection[Any, Any], message: object) -> None:
    """Sends a message that `receive` returns at the other end, in a file, on Linux in memory.

    Only its descriptor goes through the pipe, which takes 2.5 s a gigabyte and blocks until the
    other process reads it.
    """
    linux = hasattr(os, "memfd_create")
    with os.fdopen(os.memfd_create("autotune"), "wb") if linux else TemporaryFile("wb") as file:
        pickle.dump(message, file, 5)
        file.flush()
        with _socket(connection) as end:
            socket.send_fds(end, [b"\0"], [file.fileno()])


def receive(connection: Connection[Any, Any]) -> Any:
    """The next message, as `send` sent it. Its arrays are copies.

    Raises:
        EOFError: if the other end is closed.
    """
    with _socket(connection) as end:
        byte, descriptors, *_ = socket.recv_fds(end, 1, 1)
    if not byte:
        raise EOFError
    with os.fdopen(descriptors[0], "rb") as file:
        file.seek(0)
        return pickle.load(file)


def _socket(connection: Connection[Any, Any]) -> socket.socket:
    """The socket of a pipe, to be closed without closing the pipe.

    `multiprocessing.reduction` waits for the reader from Python 3.14 on, and on macOS.
    """
    return socket.socket(fileno=os.dup(connection.fileno()))


def ignore_signals() -> None:
    """Called in a child, leaves signals to a whole group of processes to the parent, which ends its
    children."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
