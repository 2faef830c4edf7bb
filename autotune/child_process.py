"""Child processes that run a function of the package, each connected to its parent by a pipe."""

from __future__ import annotations

import mmap
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import Pipe, reduction
from multiprocessing.connection import Connection
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


@dataclass(frozen=True)
class SharedMessage:
    """Message: a pickled one, whose arrays are in a file in memory. Its descriptor follows.

    Attributes:
        pickled: the message without the contents of its arrays.
        sizes: bytes of each array's contents; each begins at a multiple of `ALIGNMENT`.
    """

    pickled: bytes
    sizes: tuple[int, ...]


ALIGNMENT = 64


def send(connection: Connection[Any, Any], message: object) -> None:
    """Sends a message that `receive` returns at the other end.

    The contents of its NumPy arrays do not go through the pipe, which takes 2.5 s a gigabyte and
    blocks until the other process reads it.
    """
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(message, 5, buffer_callback=buffers.append)
    if not buffers or not hasattr(os, "memfd_create"):
        connection.send(message)
        return
    views = [buffer.raw() for buffer in buffers]
    sizes = tuple(view.nbytes for view in views)
    with os.fdopen(os.memfd_create("autotune"), "wb", buffering=0) as file:
        for view, start in zip(views, _starts(sizes), strict=False):
            file.seek(start)
            while view:
                view = view[file.write(view) :]
        file.truncate(_starts(sizes)[-1])
        connection.send(SharedMessage(pickled, sizes))
        reduction.send_handle(connection, file.fileno(), None)


def receive(connection: Connection[Any, Any]) -> Any:
    """The next message, as `send` sent it. Its arrays may be written to."""
    message = connection.recv()
    if not isinstance(message, SharedMessage):
        return message
    starts = _starts(message.sizes)
    with os.fdopen(reduction.recv_handle(connection), "rb") as file:
        # A private copy of what is written; the rest is shared with the file.
        memory = memoryview(mmap.mmap(file.fileno(), starts[-1], access=mmap.ACCESS_COPY))
    places = zip(starts, message.sizes, strict=False)
    return pickle.loads(message.pickled, buffers=[memory[at : at + size] for at, size in places])


def _starts(sizes: Sequence[int]) -> list[int]:
    """Offsets of each array's contents in the file, and the size of the file."""
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + (size // ALIGNMENT + 1) * ALIGNMENT)
    return starts


def ignore_signals() -> None:
    """Called in a child, leaves signals to a whole group of processes to the parent, which ends its
    children."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
