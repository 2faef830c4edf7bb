"""Processes that compile beside this one.

A compilation cannot be interrupted, may take all memory and may crash, so it runs in a helper
process, which has limits and can be killed. Helpers wait for further requests: NVRTC lets only one
thread of a process parse, so on 16 cores threads compile 9 programs a second, and processes 21.

A helper takes 0.2 s to start, twice what a small kernel takes to compile. Where a first product
waits for one of the package's own kernels, which neither hang nor grow, the first of several
compilations at once therefore runs in this process.
"""

from __future__ import annotations

import atexit
import os
import signal
import subprocess
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from multiprocessing.connection import Connection

from autotune import child_process
from autotune.child_process import ignore_signals
from autotune.compiler import limits
from autotune.compiler.nvrtc import Output, Request, compiled

IDLE_S = 60.0
"""A helper ends after these seconds without a request."""
PARENT_S = 0.5
"""Seconds between two looks whether its parent is alive."""


class HelperGoneError(Exception):
    """A helper ended without an answer, through no fault of the request."""


class Helper:
    """A process that compiles one program at a time, within the limits of `compiler.limits`.

    Raises:
        OSError: if it cannot be started.
    """

    def __init__(self) -> None:
        self._connection, self._process = child_process.start(
            "autotune.compiler.helpers", "serve", stderr=subprocess.DEVNULL
        )
        self._ready = False

    def output(self, request: Request) -> Output:
        """The compiled program and the log; None and a line if NVRTC crashes or takes too long.

        Raises:
            HelperGoneError: if the process has ended for another reason.
            OSError: if it never began to serve.
        """
        try:
            if not self._ready:
                self._connection.recv()
                limits.restrict(self._process.pid)
                self._ready = True
            self._connection.send(request)
            if not self._connection.poll(limits.SECONDS):
                self.stop()
                return None, limits.too_long("NVRTC")
            output: Output = self._connection.recv()
            return output
        except (EOFError, OSError) as error:
            code = self._process.wait()
            if not self._ready:
                raise OSError(f"a helper ended with {code} before it began to serve") from error
            if code >= 0 or code == -signal.SIGKILL:
                raise HelperGoneError from error
            return None, f"NVRTC was killed by {signal.Signals(-code).name}"

    @property
    def ended(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    def kill(self) -> None:
        """Ends the process, so that the thread that waits for its output goes on."""
        self._process.kill()

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
        self._busy: dict[int, Helper | None] = {}  # by the thread that waits; None was stopped

    def output(self, request: Request, *, here: bool = False) -> Output:
        """The compiled program and the log.

        Args:
            request: what to compile.
            here: whether this process compiles it, unless it is compiling already.
        """
        if not (here and self._here.acquire(blocking=False)):
            with suppress(OSError):  # without an interpreter
                return self._beside(request)
            self._here.acquire()
        try:
            return compiled(request)
        finally:
            self._here.release()

    def stop(self, threads: Collection[int]) -> None:
        """Ends the compilations that threads wait for; `threads` are their identifiers."""
        for thread in threads:
            if helper := self._busy.get(thread):
                self._busy[thread] = None
                helper.kill()

    def forget(self) -> None:
        """Drops all helpers. A forked process calls it, as they serve its parent."""
        self._here, self._idle, self._busy = threading.Lock(), [], {}

    def close(self) -> None:
        """Stops the idle helpers."""
        while self._idle:
            self._idle.pop().stop()

    def _beside(self, request: Request) -> Output:
        with suppress(HelperGoneError):
            return self._asked(self._waiting() or Helper(), request)
        # One that had waited too long, or was killed when memory ran out. A new one may do.
        with suppress(HelperGoneError):
            return self._asked(Helper(), request)
        return None, "error: the compiler's process ended without a message, twice"

    def _asked(self, helper: Helper, request: Request) -> Output:
        """The output of a helper, which then waits for the next request."""
        thread = threading.get_ident()
        self._busy[thread] = helper
        try:
            output = helper.output(request)
        except BaseException as error:
            helper.stop()
            if isinstance(error, HelperGoneError | OSError) and self._busy[thread] is None:
                return None, "error: the compilation was stopped"
            raise
        finally:
            del self._busy[thread]
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
    threading.Thread(target=_end_with, args=[os.getppid()], daemon=True).start()
    connection = Connection(descriptor)
    with suppress(EOFError, OSError):
        connection.send(True)
        while connection.poll(IDLE_S):
            connection.send(_within_memory(connection.recv()))
    os._exit(0)


def _within_memory(request: Request) -> Output:
    try:
        return compiled(request)
    except MemoryError:
        return None, limits.too_large("NVRTC")


def _end_with(parent: int) -> None:
    """Ends this process with its parent, also amid a compilation, which reads no socket."""
    while os.getppid() == parent:
        time.sleep(PARENT_S)
    os._exit(0)


SHARED = Helpers()
"""The helpers of this process."""
os.register_at_fork(after_in_child=SHARED.forget)
atexit.register(SHARED.close)
