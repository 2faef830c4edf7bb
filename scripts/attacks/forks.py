"""Forked processes whose messages the parent reads: one import serves thousands of them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from typing import Any

FRAMES = 6
"""Frames of a traceback that are told."""

Send = Callable[[Any], None]
"""Sends a JSON value to the parent; a value that was sent survives the death of its sender."""


class Fork:
    """A forked process that runs a function.

    The function gets a `Send`. Its exception is sent as `{"raised": ...}`, with where.

    Attributes:
        pid: of the process.
        status: as `os.waitstatus_to_exitcode`; None while it runs.
    """

    def __init__(self, run: Callable[[Send], None]) -> None:
        reader, writer = os.pipe()
        self.status: int | None = None
        self._buffer = b""
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            _run(run, writer)
        os.close(writer)
        self._reader = reader

    def messages(self, seconds: float) -> Iterator[Any]:
        """The messages until the process ends, or for so many seconds."""
        deadline = monotonic() + seconds
        while (line := self.line(deadline)) is not None:
            yield line

    def line(self, deadline: float) -> Any | None:
        """The next message; None at the end of the process or at the deadline."""
        while b"\n" not in self._buffer:
            left = deadline - monotonic()
            if left <= 0 or not select.select([self._reader], [], [], left)[0]:
                return None
            chunk = os.read(self._reader, 1 << 16)
            if not chunk:
                return None
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return json.loads(line)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Sends a signal; a process that has ended ignores it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def ended(self) -> int:
        """The exit status, or minus the number of the signal; waits for the process."""
        if self.status is None:
            self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            os.close(self._reader)
        return self.status


def answer(run: Callable[[Send], None], seconds: float = 60.0) -> list[Any]:
    """All messages of a forked process, which is killed after so many seconds."""
    fork = Fork(run)
    try:
        return [*fork.messages(seconds)]
    finally:
        fork.kill()
        fork.ended()


def _run(run: Callable[[Send], None], writer: int) -> None:
    """The whole life of a forked process."""

    def send(message: Any) -> None:
        os.write(writer, json.dumps(message).encode() + b"\n")

    status = 1
    try:
        run(send)
        status = 0
    except BaseException as error:
        with contextlib.suppress(BaseException):
            what = f"{type(error).__name__}: {str(error)[:200]}"
            send({"raised": f"{what} ({_where(error)})"})
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def _where(error: BaseException) -> str:
    """The innermost frames of a traceback, the last one first."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    return " < ".join(
        f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames)
    )
