"""The parent's end of worker processes: start, ask with a time limit, stop, start again."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import Pipe
from typing import TypeVar

from autotune.errors import AutotuneError, RunnerError
from autotune.gpu.worker import Dying, Hello, Reply, Standing, Taken
from autotune.runners.base import Failure

T = TypeVar("T")

# A process that is killed while it starts or is idle has done nothing yet, and is started again.
STARTS = 8
START_LIMIT = 120.0
STOP_LIMIT = 30.0

# The child sees the parent's modules, and does not run the parent's main module again.
PROGRAM = "import sys; sys.path[:] = {path!r}; from autotune.gpu.worker import main; main({socket})"


class GoneError(Exception):
    """The process was killed while it started, or had ended before it took the request."""


class LateError(Exception):
    """No message came in time."""


class Worker:
    """A worker process that serves one bench.

    Nothing waits for the start of the process but what needs it: `hello` for the GPU, `ask` for the
    bench.
    """

    def __init__(self, factory: str, arguments: tuple[object, ...]) -> None:
        """Starts the process; `module:function` opens its bench, called with `arguments`."""
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
        self._hello: Hello | None = None
        self._stands = False
        self._error: AutotuneError | None = None  # why it does not
        self._listening = threading.RLock()
        with suppress(OSError):  # it has ended already; whoever needs it is told why
            self._connection.send((factory, arguments))

    @property
    def hello(self) -> Hello:
        """What the bench says of its GPU; waits for that.

        Raises:
            AutotuneError: what the bench raised, such as a `MissingError`.
            RunnerError: if the process ended otherwise or took longer than `START_LIMIT`.
            GoneError: if it was killed.
        """
        with self._listening:
            return self._hello or self._awaited(Hello)

    @property
    def waits(self) -> bool:
        """Whether a request would have to wait for the bench; any thread may ask, at any time."""
        if not self._listening.acquire(blocking=False):
            return not self._stands  # another thread waits for it
        try:
            with suppress(AutotuneError, GoneError, OSError):
                while not self._stands and not self.ended and self._connection.poll():
                    self._awaited(Standing if self._hello else Hello)
        finally:
            self._listening.release()
        return not self._stands and not self.ended

    @property
    def ended(self) -> bool:
        """Whether it is of no further use. One that ends before it stands says why if asked."""
        over = self._stands and self._process.poll() is not None
        return over or self._connection.closed

    def ask(self, method: str, arguments: tuple[object, ...], limit: float) -> object:
        """The answer of a method of the bench, or why there is none as a `Failure`.

        It waits until the bench stands. The process is stopped unless it answered: a late answer
        would be taken for the next one's.

        Raises:
            GoneError: if the process had ended before the request came.
            AutotuneError: as `hello`, if the bench does not stand.
        """
        with self._listening:
            if not self._stands:
                _ = self.hello
                self._awaited(Standing)
        try:
            answer = self._asked(method, arguments, limit)
        except LateError:
            self.stop()
            return Failure("timeout", f"no answer within {limit:g} s")
        except BaseException:
            self.stop()
            raise
        if isinstance(answer, Reply):
            return answer.value
        self.stop()
        return Failure("crash", _reason(answer))

    def kill(self) -> None:
        """Kills the process and does not wait for its end."""
        self._process.kill()

    def stop(self) -> None:
        """Kills the process; may be called twice."""
        self.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_LIMIT)
        self._connection.close()
        if self._process.stdin:
            self._process.stdin.close()
        self._log.close()

    def _awaited(self, kind: type[T]) -> T:
        """The next message, which has to be of that kind; without it the process is stopped."""
        if self._connection.closed:
            raise self._error or RunnerError("the worker was stopped before it stood")
        try:
            answer = self._received(START_LIMIT)
        except LateError:
            self._error = RunnerError(f"the worker did not start within {START_LIMIT:.0f} s")
        except BaseException:
            self._error = RunnerError("the worker was stopped while it started")
            self.stop()
            raise
        else:
            if isinstance(answer, kind):
                self._hello = answer if isinstance(answer, Hello) else self._hello
                self._stands = isinstance(answer, Standing)
                return answer
            if self._process.poll() == -signal.SIGKILL:
                self.stop()
                raise GoneError(_reason(answer))
            unexpected = RunnerError(f"the worker did not start: {_reason(answer)}")
            self._error = answer if isinstance(answer, AutotuneError) else unexpected
        self.stop()
        raise self._error

    def _asked(self, method: str, arguments: tuple[object, ...], limit: float) -> object:
        try:
            self._connection.send((method, arguments))
            taken = self._received(START_LIMIT)
        except OSError as error:
            raise GoneError(self._epitaph()) from error
        if not isinstance(taken, Taken):
            raise GoneError(_reason(taken))
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


class Service:
    """A worker process that is started again if it has ended and is asked for something."""

    def __init__(self, factory: str, arguments: tuple[object, ...]) -> None:
        """Starts the process, as `Worker`."""
        self._opening = factory, arguments
        self._worker = Worker(*self._opening)
        self._hello: Hello | None = None

    @property
    def hello(self) -> Hello:
        """What its first process said of the GPU; raises what `Worker.hello` does."""
        if self._hello is None:
            self._hello = self._tried(lambda worker: worker.hello)
        return self._hello

    @property
    def waits(self) -> bool:
        """As that of `Worker`. One that has ended waits for nothing until it is asked."""
        return self._worker.waits

    @property
    def ended(self) -> bool:
        """Whether there is no process that could be asked."""
        return self._worker.ended

    def ask(self, method: str, arguments: tuple[object, ...], limit: float) -> object:
        """The answer of a method of the bench, or a `Failure`, as `Worker.ask`.

        Raises:
            AutotuneError: if a process cannot start, or `STARTS` are gone before the request comes.
        """
        return self._tried(lambda worker: worker.ask(method, arguments, limit))

    def turn_to(self, task: object, limit: float) -> None:
        """Has the process, and those that follow it, serve another task.

        Raises:
            AutotuneError: as `ask`.
        """
        factory, (_, *rest) = self._opening
        self._opening = factory, (task, *rest)
        if not self._worker.ended:
            self.ask("turn_to", (task,), limit)  # one that fails ends, and the next knows the task

    def kill(self) -> None:
        """Ends the process without waiting for its end."""
        self._worker.kill()

    def stop(self) -> None:
        """Ends the process; may be called twice."""
        self._worker.stop()

    def _tried(self, attempt: Callable[[Worker], T]) -> T:
        reason = ""
        for _ in range(STARTS):
            if self._worker.ended:
                self._worker.stop()
                self._worker = Worker(*self._opening)
            try:
                return attempt(self._worker)
            except GoneError as gone:  # the request is not to blame
                reason = str(gone)
        raise RunnerError(f"the worker did not start: {reason}")


def _reason(answer: object) -> str:
    return answer.reason if isinstance(answer, Dying) else f"the worker answered {answer!r}"
