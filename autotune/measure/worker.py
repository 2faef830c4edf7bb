"""Worker processes: the process itself, and its parent, which starts, asks, stops and restarts it.

The process answers requests until it is killed or its parent is gone.

The parent sends the factory of a bench with its arguments, the last one the number of the GPU, and
then requests: a method's name with its arguments.
The worker sends `DeviceInfo` as soon as it has its GPU and `BenchReady` once the bench takes
requests, or instead of either the `AutotuneError` that prevents it. Each request is acknowledged by
`RequestReceived` and answered by `RequestResult`, or by `WorkerDying` if the process cannot go on.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pkgutil import resolve_name
from typing import Any, TypeVar

from autotune import child_process, files
from autotune.child_process import ignore_signals, receive, send
from autotune.device import Device
from autotune.errors import AutotuneError, RunnerError
from autotune.measure.measurement import Failure


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
    factory, arguments = receive(connection)
    threading.Thread(target=_start_driver, args=(arguments[-1],), daemon=True).start()
    try:
        pending = resolve_name(factory)(*arguments)
        send(connection, DeviceInfo(pending.device, pending.driver))
        bench = pending.finish()
        send(connection, BenchReady())
    except AutotuneError as error:
        send(connection, error)
        return
    except Exception as error:
        send(connection, WorkerDying(f"{type(error).__name__}: {error}"))
        return
    while True:
        method, arguments = receive(connection)
        send(connection, RequestReceived())
        try:
            send(connection, RequestResult(getattr(bench, method)(*arguments)))
        except Exception as error:  # whatever a candidate did: its process ends with it
            send(connection, WorkerDying(f"{type(error).__name__}: {error}"))
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


T = TypeVar("T")

# A process that is killed while it starts or idles has done no harm and is started again.
STARTS = 8
START_LIMIT = 120.0
STOP_LIMIT = 30.0


class WorkerGoneError(Exception):
    """The process was killed while it started, or ended before it received the request."""


class MessageTimeoutError(Exception):
    """No message arrived in time."""


class Worker:
    """A worker process that serves one bench.

    Starting it waits for nothing; `device_info` waits for the GPU and `request` for the bench.
    """

    def __init__(self, factory: str, arguments: tuple[object, ...]) -> None:
        """Starts the process; `factory` is `module:function`, called there with `arguments`."""
        self._log = tempfile.TemporaryFile(dir=files.temporary_dir())  # noqa: SIM115 - `stop` closes it
        self._connection, self._process = child_process.start(
            "autotune.measure.worker", "main", stdin=subprocess.PIPE, stderr=self._log
        )
        self._device_info: DeviceInfo | None = None
        self._ready = False
        self._error: AutotuneError | None = None  # why it never gets ready
        self._stopped = False
        self._lock = threading.RLock()
        self._closing = threading.RLock()  # two threads must not close or read the log at once
        with suppress(OSError):  # it has ended already, which the next request reports
            send(self._connection, (factory, arguments))

    @property
    def device_info(self) -> DeviceInfo:
        """The worker's GPU; waits until it is known.

        Raises:
            AutotuneError: what the bench raised, such as a `MissingError`.
            RunnerError: if the process ended otherwise or took longer than `START_LIMIT`.
            WorkerGoneError: if it was killed.
        """
        with self._lock:
            return self._device_info or self._expected(DeviceInfo)

    @property
    def starting(self) -> bool:
        """Whether a request would have to wait for the bench. Never waits; for any thread."""
        if not self._lock.acquire(blocking=False):
            return not self._ready  # another thread is waiting for it
        try:
            with suppress(AutotuneError, WorkerGoneError, OSError):
                while not self._ready and not self.ended and self._connection.poll():
                    self._expected(BenchReady if self._device_info else DeviceInfo)
        finally:
            self._lock.release()
        return not self._ready and not self.ended

    @property
    def ended(self) -> bool:
        """Whether the process has ended. One that never got ready still has to report why."""
        over = self._ready and self._process.poll() is not None
        return over or self._connection.closed

    def request(self, method: str, arguments: tuple[object, ...], limit: float) -> object:
        """The result of a method of the bench, or a `Failure` that says why there is none.

        It waits until the bench is ready. Without an answer the process is stopped: a late answer
        would be mistaken for that of the next request.

        Raises:
            WorkerGoneError: if the process ended before it received the request.
            AutotuneError: as `device_info`, if the bench does not get ready; or if another thread
                stops the process, which says nothing about the request.
        """
        with self._lock:
            if not self._ready:
                _ = self.device_info
                self._expected(BenchReady)
        try:
            answer = self._answered(method, arguments, limit)
        except MessageTimeoutError:
            self.stop()
            return Failure("timeout", f"no answer within {limit:g} s")
        except BaseException:
            self.stop()
            raise
        if isinstance(answer, RequestResult):
            return answer.value
        self.stop()
        return Failure("crash", _reason(answer))

    def kill(self) -> None:
        """Kills the process without waiting for its end."""
        self._stopped = True
        self._process.kill()

    def stop(self) -> None:
        """Kills the process and waits for its end; may be called twice, by two threads at once."""
        self.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_LIMIT)
        with self._closing:
            self._connection.close()
            if self._process.stdin:
                self._process.stdin.close()
            self._log.close()

    def _expected(self, kind: type[T]) -> T:
        """The next message, which has to be of `kind`; otherwise the process is stopped."""
        if self._connection.closed:
            raise self._error or RunnerError("the worker was stopped before it was ready")
        try:
            answer = self._next_message(START_LIMIT)
        except MessageTimeoutError:
            self._error = RunnerError(f"the worker did not start within {START_LIMIT:.0f} s")
        except BaseException:
            self._error = RunnerError("the worker was stopped while it started")
            self.stop()
            raise
        else:
            if isinstance(answer, kind):
                self._device_info = answer if isinstance(answer, DeviceInfo) else self._device_info
                self._ready = isinstance(answer, BenchReady)
                return answer
            if self._process.poll() == -signal.SIGKILL:
                self.stop()
                raise WorkerGoneError(_reason(answer))
            unexpected = RunnerError(f"the worker did not start: {_reason(answer)}")
            self._error = answer if isinstance(answer, AutotuneError) else unexpected
        self.stop()
        raise self._error

    def _answered(self, method: str, arguments: tuple[object, ...], limit: float) -> object:
        try:
            send(self._connection, (method, arguments))
            receipt = self._next_message(START_LIMIT)
        except OSError as error:
            self._check_running()
            raise WorkerGoneError(self._end_reason()) from error
        if not isinstance(receipt, RequestReceived):
            raise WorkerGoneError(_reason(receipt))
        return self._next_message(limit)

    def _next_message(self, limit: float) -> object:
        """The next message; `WorkerDying` if the process ends without one.

        Raises:
            MessageTimeoutError: if there is none within `limit` seconds.
        """
        try:
            if not self._connection.poll(limit):
                raise MessageTimeoutError
            return receive(self._connection)
        except MessageTimeoutError:
            raise
        except Exception as error:
            self._check_running()
            if isinstance(error, EOFError | OSError):
                return WorkerDying(self._end_reason())
            return WorkerDying(f"the worker's answer cannot be read: {error}")

    def _check_running(self) -> None:
        if self._stopped:
            raise AutotuneError("the worker was stopped before it answered")

    def _end_reason(self) -> str:
        """The exit status of the process, and the last line of its standard error.

        Raises:
            AutotuneError: if another thread stopped the process.
        """
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_LIMIT)
        code = self._process.returncode
        if code is None:
            how = "closed its connection"
        elif code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"exited with status {code}"
        with self._closing:
            self._check_running()  # who stops it closes the log
            self._log.seek(0)
            lines = self._log.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"the worker {how}" + (f": {last}" if last else "")


class RestartingWorker:
    """A worker process that is started again if it has ended when a request comes."""

    def __init__(self, factory: str, arguments: tuple[object, ...]) -> None:
        """Starts the process, as `Worker`."""
        self._arguments = factory, arguments
        self._worker = Worker(*self._arguments)
        self._device_info: DeviceInfo | None = None

    @property
    def device_info(self) -> DeviceInfo:
        """The GPU of the first process; raises what `Worker.device_info` does."""
        if self._device_info is None:
            self._device_info = self._attempted(lambda worker: worker.device_info)
        return self._device_info

    @property
    def starting(self) -> bool:
        """Whether a request would have to wait for the bench; false once the process has ended."""
        return self._worker.starting

    @property
    def ended(self) -> bool:
        """Whether there is no running process."""
        return self._worker.ended

    def request(self, method: str, arguments: tuple[object, ...], limit: float) -> object:
        """The result of a method of the bench, or a `Failure`, as `Worker.request`.

        Raises:
            AutotuneError: if a process cannot start, or `STARTS` processes end before the request.
        """
        return self._attempted(lambda worker: worker.request(method, arguments, limit))

    def switch_to(self, task: object, limit: float) -> None:
        """Makes the process, and its successors, serve another task.

        Raises:
            AutotuneError: as `request`.
        """
        factory, (_, *rest) = self._arguments
        self._arguments = factory, (task, *rest)
        if not self._worker.ended:  # one that fails ends; the next starts with the task
            self.request("switch_to", (task,), limit)

    def kill(self) -> None:
        """Kills the process without waiting for its end."""
        self._worker.kill()

    def stop(self) -> None:
        """Kills the process and waits for its end; may be called twice."""
        self._worker.stop()

    def _attempted(self, attempt: Callable[[Worker], T]) -> T:
        reason = ""
        for _ in range(STARTS):
            if self._worker.ended:
                self._worker.stop()
                self._worker = Worker(*self._arguments)
            try:
                return attempt(self._worker)
            except WorkerGoneError as gone:  # not the fault of the request
                reason = str(gone)
        raise RunnerError(f"the worker did not start: {reason}")


def _reason(answer: object) -> str:
    return answer.reason if isinstance(answer, WorkerDying) else f"the worker answered {answer!r}"
