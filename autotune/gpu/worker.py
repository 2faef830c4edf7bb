"""The worker process: answers requests until it is killed or its parent is gone.

The parent sends the factory of the bench with its arguments, the last of which is the number of the
GPU, then requests; each is a method's name and arguments.
The worker sends `Hello` as soon as it knows its GPU and `Standing` once the bench takes requests,
or, in the place of either, the `AutotuneError` that keeps it from that. A request is answered by
`Taken` at once, and then by an `Reply`, or by `Dying` when the process can be of no further use.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from autotune.device import Device
from autotune.errors import AutotuneError


@dataclass(frozen=True)
class Opening:
    """What a factory returns: its GPU, the CUDA version of the driver, and what is left to do until
    there is a bench."""

    device: Device
    driver: str
    stand: Callable[[], object]


@dataclass(frozen=True)
class Hello:
    """The worker has found its GPU; and the CUDA version of the driver."""

    device: Device
    driver: str


@dataclass(frozen=True)
class Standing:
    """The bench takes requests."""


@dataclass(frozen=True)
class Taken:
    """The request has arrived; whatever happens from here on is its doing."""


@dataclass(frozen=True)
class Reply:
    """What the bench returned."""

    value: object


@dataclass(frozen=True)
class Dying:
    """What the bench raised; the process ends after this."""

    reason: str


def main(descriptor: int) -> None:
    """Serves requests on an inherited socket; standard input is the parent's sign of life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    threading.Thread(target=_end_with_parent, daemon=True).start()
    status = 0
    try:
        _serve(Connection(descriptor))
    except (EOFError, ConnectionError):
        pass  # the parent closed the connection
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    os._exit(status)  # a broken context must not be cleaned up


def _serve(connection: Connection[Any, Any]) -> None:
    factory, arguments = connection.recv()
    threading.Thread(target=_wake, args=(arguments[-1],), daemon=True).start()
    module, _, name = factory.partition(":")
    try:
        opening = getattr(import_module(module), name)(*arguments)
        connection.send(Hello(opening.device, opening.driver))
        bench = opening.stand()
        connection.send(Standing())
    except AutotuneError as error:
        connection.send(error)
        return
    except Exception as error:
        connection.send(Dying(f"{type(error).__name__}: {error}"))
        return
    while True:
        method, arguments = connection.recv()
        connection.send(Taken())
        try:
            connection.send(Reply(getattr(bench, method)(*arguments)))
        except Exception as error:  # whatever a candidate did; its process goes with it
            connection.send(Dying(f"{type(error).__name__}: {error}"))
            return


def _wake(index: int) -> None:
    """Has the driver start and make the GPU's primary context, which takes it a good part of a
    second, while the benches' modules are imported: it works outside the interpreter's lock.

    What fails here fails once more where it is told.
    """
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), index) == 0:
        # Never released: the process ends with it.
        cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    os._exit(0)
