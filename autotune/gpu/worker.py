"""The worker process: answers requests until it is killed or its parent is gone.

The parent sends the factory of a bench with its arguments, of which the last is the number of the
GPU, and then requests: a method's name with its arguments.
The worker sends `DeviceInfo` as soon as it has its GPU and `BenchReady` once the bench takes
requests, or instead of either the `AutotuneError` that prevents it. Each request is acknowledged by
`RequestReceived` and answered by `RequestResult`, or by `WorkerDying` if the process cannot go on.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection
from typing import Any

from autotune.child_process import ignore_signals
from autotune.device import Device
from autotune.errors import AutotuneError


@dataclass(frozen=True)
class PendingBench:
    """A bench that a factory has begun to open.

    Attributes:
        device: the GPU.
        driver: the CUDA version that the driver supports.
        finish: makes the bench.
    """

    device: Device
    driver: str
    finish: Callable[[], object]


@dataclass(frozen=True)
class DeviceInfo:
    """Message: the worker's GPU, and the CUDA version that its driver supports."""

    device: Device
    driver: str


@dataclass(frozen=True)
class BenchReady:
    """Message: the bench takes requests."""


@dataclass(frozen=True)
class RequestReceived:
    """Message: the request has arrived, so whatever happens from now on is its fault."""


@dataclass(frozen=True)
class RequestResult:
    """Message: the value that the bench returned."""

    value: object


@dataclass(frozen=True)
class WorkerDying:
    """Message: what the bench raised; the process ends after it."""

    reason: str


def main(descriptor: int) -> None:
    """Serves requests on an inherited socket until standard input, held by the parent, closes."""
    ignore_signals()  # one to all processes must not look like a crash
    threading.Thread(target=_end_with_parent, daemon=True).start()
    status = 0
    try:
        _serve(Connection(descriptor))
    except (EOFError, ConnectionError):
        pass  # the parent has closed the connection
    except BaseException:
        traceback.print_exc()
        status = 1
    sys.stderr.flush()
    os._exit(status)  # a broken context must not be cleaned up


def _serve(connection: Connection[Any, Any]) -> None:
    factory, arguments = connection.recv()
    threading.Thread(target=_start_driver, args=(arguments[-1],), daemon=True).start()
    module, _, name = factory.partition(":")
    try:
        pending = getattr(import_module(module), name)(*arguments)
        connection.send(DeviceInfo(pending.device, pending.driver))
        bench = pending.finish()
        connection.send(BenchReady())
    except AutotuneError as error:
        connection.send(error)
        return
    except Exception as error:
        connection.send(WorkerDying(f"{type(error).__name__}: {error}"))
        return
    while True:
        method, arguments = connection.recv()
        connection.send(RequestReceived())
        try:
            connection.send(RequestResult(getattr(bench, method)(*arguments)))
        except Exception as error:  # whatever a candidate did: its process ends with it
            connection.send(WorkerDying(f"{type(error).__name__}: {error}"))
            return


def _start_driver(index: int) -> None:
    """Initialises the driver and the GPU's primary context while the benches' modules are imported.

    That takes a good part of a second, outside the interpreter's lock. An error is ignored here: it
    occurs again, and is reported, when the session opens.
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
