"""The parent's end of a worker process: start, ask with a time limit, stop."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from multiprocessing import Pipe

from autotune.errors import AutotuneError, RunnerError
from autotune.gpu.worker import Answer, Dying, Hello, Taken
from autotune.runner import Failure

# A process that is killed while it starts has done nothing yet, and is started again.
STARTS = 8
START_LIMIT = 120.0
STOP_LIMIT = 30.0

# The child sees the parent's modules, and does not run the parent's main module again.
PROGRAM = "import sys; sys.path[:] = {path!r}; from autotune.gpu.worker import main; main({socket})"


class GoneError(Exception):
    """The process had ended before it took the request."""


class LateError(Exception):
    """No message came in time."""


class Worker:
    """A running worker process that serves one bench.

    Attributes:
        hello: what the bench said of its GPU.
    """

    def __init__(self, factory: str, arguments: tuple[object, ...], *, warm: bool) -> None:
        """Starts the process and waits until its bench, `module:function`, stands.

        If `warm`, the bench then warms up by itself before it takes the first request.

        Raises:
            AutotuneError: what the bench raised, such as a `MissingError`.
            RunnerError: if the process ended otherwise or took longer than `START_LIMIT`.
        """
        for _ in range(STARTS):
            self._spawn()
            try:
                answer = self._greeted(factory, arguments, warm)
            except BaseException:
                self.stop()
                raise
            if isinstance(answer, Hello):
                self.hello = answer
                return
            killed = self._process.poll() == -signal.SIGKILL
            self.stop()
            if not killed:
                break
        if isinstance(answer, AutotuneError):
            raise answer
        raise RunnerError(f"the worker did not start: {_reason(answer)}")

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self._process.poll() is None

    def ask(self, method: str, arguments: tuple[object, ...], limit: float) -> object:
        """The answer of a method of the bench, or why there is none as a `Failure`.

        The process is stopped unless it answered: a late answer would be taken for the next one's.

        Raises:
            GoneError: if the process had ended before the request came.
        """
        try:
            answer = self._asked(method, arguments, limit)
        except LateError:
            self.stop()
            return Failure("timeout", f"no answer within {limit:g} s")
        except BaseException:
            self.stop()
            raise
        if isinstance(answer, Answer):
            return answer.value
        self.stop()
        return Failure("crash", _reason(answer))

    def stop(self) -> None:
        """Kills the process; may be called twice."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_LIMIT)
        self._connection.close()
        if self._process.stdin:
            self._process.stdin.close()
        self._log.close()

    def _spawn(self) -> None:
        self._connection, remote = Pipe()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - `stop` closes it
        program = PROGRAM.format(path=sys.path, socket=remote.fileno())
        with remote:
            self._process = subprocess.Popen(
                [sys.executable, "-c", program],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                pass_fds=[remote.fileno()],
            )

    def _greeted(self, factory: str, arguments: tuple[object, ...], warm: bool) -> object:
        try:
            self._connection.send((factory, arguments, warm))
            return self._received(START_LIMIT)
        except OSError:
            return Dying(self._epitaph())
        except LateError:
            raise RunnerError(f"the worker did not start within {START_LIMIT:.0f} s") from None

    def _asked(self, method: str, arguments: tuple[object, ...], limit: float) -> object:
        try:
            self._connection.send((method, arguments))
            taken = self._received(START_LIMIT)
        except OSError as error:
            raise GoneError from error
        if not isinstance(taken, Taken):
            raise GoneError
        return self._received(limit)

    def _received(self, limit: float) -> object:
        """The next message; a process that ends without one is `Dying`.

        Raises:
            LateError: if there is none within `limit` seconds.
        """
        try:
            if not self._connection.poll(limit):
                raise LateError
            return self._connection.recv()
        except LateError:
            raise
        except (EOFError, OSError):
            return Dying(self._epitaph())
        except Exception as error:
            return Dying(f"the worker's answer cannot be read: {error}")

    def _epitaph(self) -> str:
        """How the process ended, with the last line of its standard error."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_LIMIT)
        code = self._process.returncode
        if code is None:
            how = "closed its connection"
        elif code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        else:
            how = f"exited with status {code}"
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return f"the worker {how}" + (f": {last}" if last else "")


def _reason(answer: object) -> str:
    return answer.reason if isinstance(answer, Dying) else f"the worker answered {answer!r}"
