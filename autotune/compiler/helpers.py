"""Processes that compile beside this one.

NVRTC lets only one thread of a process parse: on 16 cores threads compile 9 programs a second, as
many as 4 of them do, and processes 21. So the first of several compilations at once runs in this
process, and each of the others in a helper process, which then waits for the next.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import threading
from contextlib import suppress
from multiprocessing.connection import Connection

from autotune import child_process
from autotune.child_process import ignore_signals
from autotune.compiler.nvrtc import Output, Request, compiled

IDLE_S = 60.0
"""A helper ends after these seconds without a request."""


class HelperGoneError(Exception):
    """A helper ended without an answer, through no fault of the request."""


class Helper:
    """A process that compiles one program at a time.

    Raises:
        OSError: if it cannot be started.
    """

    def __init__(self) -> None:
        self._connection, self._process = child_process.start(
            "autotune.compiler.helpers", "serve", stderr=subprocess.DEVNULL
        )

    def output(self, request: Request) -> Output:
        """The compiled program and the log; None and the signal if NVRTC crashes.

        Raises:
            HelperGoneError: if the process has ended for another reason.
        """
        try:
            self._connection.send(request)
            output: Output = self._connection.recv()
            return output
        except (EOFError, OSError) as error:
            code = self._process.wait()
            if code >= 0 or code == -signal.SIGKILL:
                raise HelperGoneError from error
            return None, f"NVRTC was killed by {signal.Signals(-code).name}"

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def stop(self) -> None:
        """Kills the process and waits for its end."""
        self._process.kill()
        self._process.wait()
        self._connection.close()


class Helpers:
    """The helpers of this process, started as they are needed. Thread-safe."""

    def __init__(self) -> None:
        self._here = threading.Lock()  # held while this process compiles itself
        self._idle: list[Helper] = []

    def output(self, request: Request) -> Output:
        """The compiled program and the log, from this process or from a helper."""
        if not self._here.acquire(blocking=False):
            with suppress(HelperGoneError, OSError):
                return self._beside(request)
            self._here.acquire()
        try:
            return compiled(request)
        finally:
            self._here.release()

    def forget(self) -> None:
        """Drops all helpers. A forked process calls it, as they serve its parent."""
        self._here, self._idle = threading.Lock(), []

    def close(self) -> None:
        """Stops the idle helpers."""
        while self._idle:
            self._idle.pop().stop()

    def _beside(self, request: Request) -> Output:
        helper = self._waiting() or Helper()
        try:
            output = helper.output(request)
        except BaseException:
            helper.stop()
            raise
        if helper.ended:
            helper.stop()
        else:
            self._idle.append(helper)
        return output

    def _waiting(self) -> Helper | None:
        """A helper that waits for a request."""
        with suppress(IndexError):
            while (helper := self._idle.pop()).ended:
                helper.stop()
            return helper
        return None


def serve(descriptor: int) -> None:
    """Answers requests on an inherited socket, until its other end closes or none comes."""
    ignore_signals()
    connection = Connection(descriptor)
    with suppress(EOFError, OSError):
        while connection.poll(IDLE_S):
            connection.send(compiled(connection.recv()))
    os._exit(0)


SHARED = Helpers()
"""The helpers of this process."""
os.register_at_fork(after_in_child=SHARED.forget)
atexit.register(SHARED.close)
